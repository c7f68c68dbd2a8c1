# SPDX-License-Identifier: Apache-2.0
"""The commands that a shell script calls, and whether it survives the failure of each.

tree-sitter's grammar reads bash, and what dash understands of it.  Only what is written out counts:
a word with a variable in it names no command here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from itertools import takewhile

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

# Larger files are archives with a script in front of them.  The time that the parser takes grows
# with the square of the number of here documents.
MOST_BYTES, MOST_DOCUMENTS = 128 << 10, 500
# It looks ahead to the end of the file at each of some texts.  What it reads again and again says
# so, the same on each machine; scripts of 128 KiB take 60 pieces.
PIECE, MOST_PIECES = 4096, 20_000
# What dash and bash do themselves (dash(1), "Builtins").
SHELL = frozenset(
    (
        ".", ":", "[", "alias", "bg", "break", "cd", "chdir", "command", "continue", "echo", "eval",
        "exec", "exit", "export", "false", "fg", "getopts", "hash", "jobs", "kill", "local",
        "printf", "pwd", "read", "readonly", "return", "set", "shift", "test", "times", "trap",
        "true", "type", "ulimit", "umask", "unalias", "unset", "wait",
    )
)  # fmt: skip
# What only bash does (bash(1), "SHELL BUILTIN COMMANDS").
BASH = frozenset(
    (
        "[[", "bind", "builtin", "caller", "compgen", "complete", "compopt", "declare", "dirs",
        "disown", "enable", "fc", "help", "history", "let", "logout", "mapfile", "popd", "pushd",
        "readarray", "shopt", "source", "suspend", "time", "typeset",
    )
)  # fmt: skip
# As the name of a command they say that the grammar did not understand what is before them.
RESERVED = frozenset(("case", "do", "done", "elif", "else", "esac", "fi", "then", "until", "while"))
SOURCING = frozenset((".", "source"))
# Commands that run the command behind them, and those that say whether one exists.
RUNNERS = frozenset(("command", "env", "exec", "nohup", "setsid", "sudo"))
ASKING = frozenset(("command", "type", "which", "hash", "test", "["))
LEAVING = frozenset(("exec", "exit", "return"))
# What may stand before a command.
BEFORE = frozenset((b"", *(bytes((each,)) for each in b" \t\n;&|(){}!`")))
ERREXIT = re.compile(r"-[a-zA-Z]*e[a-zA-Z]*|errexit")
NO_ERREXIT = re.compile(r"\+[a-zA-Z]*e[a-zA-Z]*")
ASSIGNMENT = re.compile(r"\w+=")


class Consequence(IntEnum):
    """What follows if a command fails: the script has an answer to it, goes on, or fails too."""

    EXPECTED = 0
    IGNORED = 1
    ENDS = 2


@dataclass(frozen=True)
class ShellCommand:
    """A command, or a file that the script reads into itself; its line, from 1.

    `words` are the arguments, "" for those that are not written out.
    """

    name: str
    line: int
    failure: Consequence
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class ShellScript:
    """What a script calls and defines, in the order of its lines.

    `asked` are the words whose existence it tests, `sourced` the files that it reads into itself,
    "" for one that is not written out; `path` the values that it gives to PATH.
    """

    commands: tuple[ShellCommand, ...]
    sourced: tuple[ShellCommand, ...]
    functions: frozenset[str]
    asked: frozenset[str]
    path: tuple[str, ...]


def parse_shell(data: bytes, *, ends_on_errors: bool = False) -> ShellScript | None:
    """What a script calls; None if it is no shell script that the grammar covers.

    `ends_on_errors`: as if it began with `set -e`.
    """
    if len(data) > MOST_BYTES or data.count(b"<<") > MOST_DOCUMENTS:
        return None
    program = syntax_of(data)
    if program is None or program.has_error:
        return None
    reading = ShellReading(data, ends_on_errors=ends_on_errors)
    try:
        reading.block(program, Consequence.ENDS)
        called = {name for name, _ in reading.called}
        for name in [name for name in reading.bodies if name not in called]:
            reading.call(name, Consequence.IGNORED)
    except RecursionError:
        return None
    if any(command.name in RESERVED for command in reading.commands):
        return None
    return ShellScript(
        once(reading.commands),
        once(reading.sourced),
        frozenset(reading.bodies) | frozenset(reading.aliases),
        frozenset(reading.asked),
        tuple(reading.path),
    )


def syntax_of(data: bytes) -> Node | None:
    """The tree of a script, None if the parser would take long."""
    pieces = 0

    def read(offset: int, _: object) -> bytes:
        nonlocal pieces
        pieces += 1
        return data[offset : offset + PIECE]

    try:
        tree = Parser(grammar()).parse(read, progress_callback=lambda *_: pieces > MOST_PIECES)
    except ValueError:  # it was ended
        return None
    return tree.root_node if tree else None


@cache
def grammar() -> Language:
    return Language(tree_sitter_bash.language())


def once(commands: Sequence[ShellCommand]) -> tuple[ShellCommand, ...]:
    """Each command of a line once, with the worst that its failure does in any call."""
    worst: dict[tuple[int, str], ShellCommand] = {}
    for each in sorted(commands, key=lambda command: (command.line, command.failure)):
        worst[(each.line, each.name)] = each
    return tuple(worst.values())


class ShellReading:
    """One walk over a script, in the order in which it runs."""

    def __init__(self, data: bytes, *, ends_on_errors: bool) -> None:
        self.data = data
        self.ends_on_errors = ends_on_errors
        self.commands: list[ShellCommand] = []
        self.sourced: list[ShellCommand] = []
        self.bodies: dict[str, Node] = {}
        self.aliases: set[str] = set()
        self.asked: set[str] = set()
        self.path: list[str] = []
        self.called: set[tuple[str, Consequence]] = set()

    def text(self, node: Node) -> str:
        """What is written there; `node.text` reads the script again."""
        return self.data[node.start_byte : node.end_byte].decode(errors="replace")

    def literal(self, node: Node | None) -> str:
        """A word or a quoted text without a variable in it, else ""."""
        if node is None:
            return ""
        kind = node.type
        if kind in ("word", "number"):
            text = self.text(node)
            return "" if "\\" in text else text
        if kind in ("command_name", "concatenation"):
            parts = [self.literal(child) for child in node.children]
            return "".join(parts) if all(parts) else ""
        is_text = kind == "raw_string" or (
            kind == "string" and [child.type for child in node.named_children] == ["string_content"]
        )
        return self.text(node)[1:-1] if is_text else ""

    def block(self, block: Node, failure: Consequence) -> None:
        """Statements one after the other: with `set -e` each may end the script, else the last."""
        children = block.children
        behind = dict(zip((node.id for node in children), children[1:], strict=False))
        statements = [node for node in children if node.is_named and node.type != "comment"]
        for node in statements:
            leaves = self.literal(node.child_by_field_name("name")) in LEAVING
            goes_on = node is not statements[-1] and not self.ends_on_errors and not leaves
            in_background = node.id in behind and behind[node.id].type == "&"
            self.node(
                node, min(failure, Consequence.IGNORED) if goes_on or in_background else failure
            )
            if leaves:
                return

    def node(self, node: Node, failure: Consequence) -> None:
        match node.type:
            case "command":
                self.command(node, failure)
            case "compound_statement" | "subshell" | "command_substitution":
                self.block(node, failure)
            case "function_definition":
                name, body = (node.child_by_field_name(field) for field in ("name", "body"))
                if name and body:
                    self.bodies[self.literal(name)] = body
            case "list":
                self.both(node, failure)
            case "pipeline":
                self.within(node, failure, only_last=True)
            case "redirected_statement" | "string" | "concatenation":
                self.within(node, failure)
            case "variable_assignment":
                self.assignment(node)
                self.within(node, failure)
            case "if_statement" | "elif_clause" | "while_statement":
                self.conditional(node)
            case "test_command":
                self.test(node)
            case _:
                self.within(node, Consequence.IGNORED)

    def within(self, node: Node, failure: Consequence, *, only_last: bool = False) -> None:
        children = node.named_children
        for child in children:
            decides = not only_last or child == children[-1]
            self.node(child, failure if decides else min(failure, Consequence.IGNORED))

    def both(self, node: Node, failure: Consequence) -> None:
        """`A && B` or `A || B`: without A, `||` has B, and `&&` goes on even with `set -e`."""
        for child in node.children:
            if child.is_named:
                is_left = child == node.children[0]
                is_answered = is_left and any(c.type == "||" for c in node.children)
                worst = Consequence.EXPECTED if is_answered else Consequence.IGNORED
                self.node(child, min(failure, worst))

    def conditional(self, node: Node) -> None:
        failure = Consequence.EXPECTED
        for child in node.children:
            if child.type in ("then", "do_group"):
                failure = Consequence.IGNORED
            if child.is_named:
                self.node(child, failure)

    def test(self, node: Node) -> None:
        if node.children[0].type == "[[":
            self.commands.append(ShellCommand("[[", node.start_point.row + 1, Consequence.IGNORED))
        self.asked.update(filter(None, map(self.literal, every(node))))
        self.within(node, Consequence.IGNORED)

    def assignment(self, node: Node) -> None:
        name, _, value = self.text(node).partition("=")
        if name == "PATH":
            self.path.append(value.strip("\"'"))

    def command(self, node: Node, failure: Consequence) -> None:
        self.within(node, Consequence.IGNORED)
        name = self.literal(node.child_by_field_name("name"))
        words = [self.literal(child) for child in node.children_by_field_name("argument")]
        first = words[0] if words else ""
        line = node.start_point.row + 1
        if name in ASKING:
            self.asked.update(words)
        if name in SOURCING:
            self.sourced.append(ShellCommand(first, line, failure))
        elif name == "eval":
            self.sourced.append(ShellCommand("", line, Consequence.EXPECTED))
        elif name == "set":
            options = list(takewhile(lambda word: word != "--", words))
            on, off = (any(map(kind.fullmatch, options)) for kind in (ERREXIT, NO_ERREXIT))
            self.ends_on_errors = (self.ends_on_errors or on) and not off
        elif name == "alias":
            self.aliases.update(word.partition("=")[0] for word in words)
        elif name in RUNNERS and first[:1] not in ("", "-") and not ASSIGNMENT.match(first):
            self.commands.append(ShellCommand(first, line, failure, tuple(words[1:])))
        if name in self.bodies:
            self.call(name, failure)
        elif name and self.begins_word(node.child_by_field_name("name") or node):
            self.commands.append(ShellCommand(name, line, failure, tuple(words)))

    def begins_word(self, node: Node) -> bool:
        """Whether a command begins a word: the grammar takes a part of `A=$B/$c.d` for one."""
        return self.data[max(node.start_byte - 1, 0) : node.start_byte] in BEFORE

    def call(self, name: str, failure: Consequence) -> None:
        if (name, failure) not in self.called:
            self.called.add((name, failure))
            self.node(self.bodies[name], failure)


def every(node: Node) -> list[Node]:
    return [node, *(each for child in node.named_children for each in every(child))]
