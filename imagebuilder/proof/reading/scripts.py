# SPDX-License-Identifier: Apache-2.0
"""What a site brings: the services that start at boot, by their program, its files, and its scripts
with the commands that they run.
"""

from __future__ import annotations

import mmap
import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import dropwhile

from imagebuilder.image.proof import Evidence
from imagebuilder.proof.reading.commands import CommandLine, command_of
from imagebuilder.proof.reading.environment import Environment, environment_of, expanded
from imagebuilder.proof.reading.shell import MOST_BYTES, parse_shell
from imagebuilder.proof.reading.systemd import LoadedUnit, said_in
from imagebuilder.proof.reading.units import find_program
from imagebuilder.proof.subject import Subject, once
from imagebuilder.recipe.engines import find_engine
from imagebuilder.root import Root

# A variable that gets a value which a shell does not split or expand.
LITERAL = re.compile(
    r"(?m)^[ \t]*(?:(?:export|readonly|local)[ \t]+)?(?P<name>[A-Za-z_]\w*)="
    r"(?P<mark>[\"']?)(?P<value>[\w./:@%+,-]*)(?P=mark)(?=[ \t]*(?:[;#\n]|\Z))"
)
CHANGED = re.compile(r"(?<![\w$])(?:read[ \t]+|for[ \t]+)?([A-Za-z_]\w*)(?=\+?=|[ \t]+in[ \t])")
REFERENCE = re.compile(r"\$(?:\{(?P<braced>\w+)\}|(?P<plain>[A-Za-z_]\w*))")
MOST_SCRIPTS = 50  # that one command line leads to
SHELL, PYTHON = re.compile(r"(ba|da|k|z)?sh"), re.compile(r"python[\d.]*")
INTERPRETER = re.compile(
    rf"{SHELL.pattern}|{PYTHON.pattern}|(perl|ruby|node|lua)[\d.]*|env|java|busybox"
)
ENV = "env"
EXECUTABLE = 0o111
FIRST_LINE = 256  # bytes that the kernel reads of it (BINPRM_BUF_SIZE)
MOST_READ = 1 << 20
# Names that people give to what shall not be read.
SET_ASIDE = re.compile(
    r"\..*|README.*|.*~|.*[.-](bak|backup|dist|disabled|\w+-(dist|new|old|tmp)|example|in|off|old|orig|rpm\w+|"
    r"sample|save|template)|.*\.md"
)


@dataclass(frozen=True)
class ShellFile:
    """A shell script: its file, or the unit that has it in a command line; `text` with the values
    of variables that are written out and set once.
    """

    path: str
    text: str


@dataclass(frozen=True)
class UnitCommand:
    """A command that a unit runs, by itself or in a script of the site (`script`)."""

    unit: LoadedUnit
    words: tuple[str, ...]
    evidence: Evidence
    script: ShellFile | None = field(default=None, compare=False)

    @property
    def program(self) -> str:
        """The name of the program, without its folder."""
        return posixpath.basename(self.words[0])

    @property
    def texts(self) -> list[str]:
        """The command line, and the script that it is in."""
        return [" ".join(self.words), *([self.script.text] if self.script else [])]

    @property
    def said(self) -> str:
        """The script or the unit, as the subject of a sentence."""
        return self.script.path if self.script else self.unit.name


@once
def unit_commands(subject: Subject) -> tuple[UnitCommand, ...]:
    """The commands of every service that starts at boot or on demand, but those of packages."""
    return tuple(find_commands(subject))


def find_commands(subject: Subject) -> Iterator[UnitCommand]:
    for unit in subject.startup.starting():
        environment = environment_of(subject, unit)
        for key, written in unit.started():
            where = said_in(subject.root, unit, key)
            words = behind_env(expanded(written, environment))
            if not words:
                continue
            if where.path not in subject.shipped:
                yield UnitCommand(unit, tuple(words), where)
            for script in shell_files(subject, words, where.path):
                parsed = parse_shell(script.text.encode())
                for each in parsed.commands if parsed else ():
                    line = Evidence(script.path, said=f"line {each.line}")
                    yield UnitCommand(unit, (each.name, *each.words), line, script)


def shell_files(subject: Subject, words: Sequence[str], place: str) -> Iterator[ShellFile]:
    """The site's shell script that a command line runs, and those that it starts in its turn."""
    queue, seen = [(tuple(words), place)], set[str]()
    while queue and len(seen) < MOST_SCRIPTS:
        command, path = queue.pop(0)
        script = script_of(subject.root, command, path)
        is_new = script and (script.path == place or script.path not in seen)
        if script is None or not is_new or script.path in subject.shipped:
            continue
        seen.add(script.path)
        yield script
        parsed = parse_shell(script.text.encode())
        for each in parsed.commands if parsed else ():
            if program := find_program(subject.root, each.name):
                queue.append(((program, *each.words), script.path))


def script_of(root: Root, words: Sequence[str], place: str) -> ShellFile | None:
    """The shell script that a command line runs; `place` has the text of `sh -c TEXT`."""
    words = behind_env(words)
    if not words:
        return None
    if runs(SHELL, words):
        if "-c" in words[:-1]:
            return ShellFile(place, words[words.index("-c") + 1])
        path = next((word for word in words[1:] if not word.startswith("-")), "")
        is_script = path.startswith("/")
    else:
        path = find_program(root, words[0])
        is_script = path.startswith("/") and runs(SHELL, first_line(root.map(path)))
    content = bytes((root.map(path) or b"")[: MOST_BYTES + 1]) if is_script else b""
    if not content or len(content) > MOST_BYTES:
        return None
    return ShellFile(path, with_values(content.decode(errors="replace")))


def with_values(text: str) -> str:
    """A script with the values of variables in it that get one text, and no other anywhere."""
    changes = Counter(CHANGED.findall(text))
    for _ in range(2):  # a value may have a variable of this kind in it
        found = {m["name"]: m["value"] for m in LITERAL.finditer(text) if changes[m["name"]] == 1}
        text = REFERENCE.sub(partial(value_of, found), text)
    return text


def value_of(found: Mapping[str, str], match: re.Match[str]) -> str:
    """What stands for a reference to a variable."""
    return found.get(match["braced"] or match["plain"], match[0])


def first_line(content: bytes | mmap.mmap | None) -> list[str]:
    """The words of a `#!` line, a carriage return at its end included; none if it has no such line.

    The kernel separates them by blanks and tabs.
    """
    line = bytes((content or b"")[:FIRST_LINE]).partition(b"\n")[0]
    if not line.startswith(b"#!"):
        return []
    return [word for word in re.split(r"[ \t]+", line[2:].decode(errors="replace")) if word]


def behind_env(words: Sequence[str]) -> list[str]:
    """A command line from the program on that it runs: env(1) finds it by its name."""
    if not words or posixpath.basename(words[0]) != ENV:
        return list(words)
    return list(dropwhile(lambda word: word.startswith("-") or "=" in word, words[1:]))


def runs(pattern: re.Pattern[str], words: Sequence[str]) -> bool:
    """Whether the program of a command line has such a name."""
    program = next(iter(behind_env(words)), "")
    return pattern.fullmatch(posixpath.basename(program)) is not None


def texts_of(root: Root, words: Sequence[str]) -> Iterator[str]:
    """A command line, and the script that it runs."""
    yield " ".join(words)
    content = root.map(words[0]) if words and words[0].startswith("/") else None
    if first_line(content):
        yield bytes((content or b"")[:MOST_READ]).decode(errors="replace")


def cannot_run(root: Root, program: str) -> str:
    """Why a program of a unit cannot be run, "" if it can."""
    found = find_program(root, program)
    host = root.host(found) if found else None
    if host is None:
        return "which is not in the image"
    if not host.stat().st_mode & EXECUTABLE:
        return "which is not executable"
    for name in first_line(root.map(found))[:1]:
        if not root.is_file(name):
            return f"whose interpreter {name} is not in the image"
    return ""


@dataclass(frozen=True)
class SiteService:
    """A service that starts at boot, with the words of one of its command lines."""

    subject: Subject
    unit: LoadedUnit
    written: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.unit.name

    @property
    def program(self) -> str:
        """The name of the program, without its folder."""
        return posixpath.basename(self.written[0])

    @cached_property
    def environment(self) -> Environment:
        return environment_of(self.subject, self.unit)

    @cached_property
    def command(self) -> CommandLine:
        """The command line with variables expanded, and what a variable of the engine adds."""
        engines = self.subject.expectations.engines
        names = (each.engine for each in engines if each.unit == self.name)
        kinds = (find_engine(self.subject.engines, name) for name in names)
        arguments = next((kind.model.arguments for kind in kinds), "")
        return command_of(self.unit, self.written, self.environment, arguments)

    @property
    def words(self) -> Sequence[str]:
        return self.command.words

    @property
    def evidence(self) -> Evidence:
        return Evidence(self.unit.place, said=f"ExecStart={' '.join(self.written)}")

    def option(self, *names: str) -> str | None:
        return self.command.option(*names)


def starting_units(subject: Subject) -> Iterator[LoadedUnit]:
    """The services that start at boot, and those that overlays declare."""
    names = subject.expectations.units
    starting = {unit.name: unit for unit in subject.startup.starting()}
    loaded = {name: unit for name, unit in subject.startup.units.items() if name in names}
    yield from {**starting, **loaded}.values()


def site_services(subject: Subject) -> Iterator[SiteService]:
    """The services that start or that overlays declare, but those as packages ship them."""
    for unit in starting_units(subject):
        if all(path in subject.shipped for path in unit.paths):
            continue
        yield from (SiteService(subject, unit, w) for w in unit.commands.get("ExecStart", ()) if w)


def services_of(subject: Subject, program: str) -> Iterator[SiteService]:
    """Every service that starts at boot and runs a program of this name."""
    for unit in subject.startup.starting():
        for words in unit.commands.get("ExecStart", ()):
            if words and posixpath.basename(words[0]) == program:
                yield SiteService(subject, unit, words)


def site_files(subject: Subject, *patterns: str) -> Iterator[str]:
    """The files and links of globs that no package ships and whose names do not set them aside."""
    for path in subject.root.glob(*patterns):
        if path not in subject.shipped and not SET_ASIDE.fullmatch(posixpath.basename(path)):
            yield path
