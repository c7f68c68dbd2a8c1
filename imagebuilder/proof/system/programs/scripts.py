# SPDX-License-Identifier: Apache-2.0
"""What a site's scripts need and the image lacks: an interpreter, a command, a file to read.

A script is found where a unit, udev, cron or the kernel starts it, or where its folder says when it
runs; the scripts that it starts are read too.  Those of packages are left to the packages, whose
dependencies bring what they need.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from imagebuilder.image.proof import Evidence, Findings, fault, warning
from imagebuilder.proof.clusters.slurm import job_programs
from imagebuilder.proof.privileges.searched import find_programs
from imagebuilder.proof.reading.environment import environment_of, expanded
from imagebuilder.proof.reading.scripts import ENV, PYTHON, behind_env, first_line, runs, site_files
from imagebuilder.proof.reading.shell import (
    BASH,
    MOST_BYTES,
    SHELL,
    Consequence,
    ShellCommand,
    ShellScript,
    parse_shell,
)
from imagebuilder.proof.reading.systemd import LoadedUnit, said_in
from imagebuilder.proof.reading.units import find_program, prefixes_of
from imagebuilder.proof.services.start import IN_IMAGE, PATH, is_there
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system.files.unread import READ
from imagebuilder.proof.system.programs import syntax
from imagebuilder.proof.system.programs.commands import prove_upgrade
from imagebuilder.root import Root

SHELLS = frozenset(("sh", "dash", "bash"))
RUNNERS = re.compile(rf"{'|'.join(sorted(SHELLS))}|{PYTHON.pattern}")
# The options of a shell that end it at the first failure, and that give it its script as a text.
ERREXIT, TEXT = re.compile(r"-(?=[a-z]*?e)[a-z]+"), re.compile(r"-(?=[a-z]*?c)[a-z]+")
# What only a shell understands, as a word of its own.
FOR_SHELLS = frozenset(("&&", "||", "|", ">", ">>", "&>", "<", "&"))
BUILT_IN = frozenset(("source", ".", "cd", "export", "eval", "alias", "ulimit", "umask", "set"))
NAME = re.compile(r"[a-zA-Z][\w.+-]*|\[\[")
HINT = "install the package that has it, or test whether it exists first: command -v, [ -x PATH ]"
LOGINS = ("/etc/profile", "/etc/profile.d/*.sh")
OLD_PATH = re.compile(r"\$PATH\b|\$\{PATH\}")


@dataclass(frozen=True)
class SiteProgram:
    """A program that something starts, or the text that a shell gets (`text`, of the file `path`).

    `said` names it in a message, `folders` are searched for its commands.  `matters`: who starts it
    fails with it.  `is_named`: the site names its path.  `runner` are the words of the shell or the
    Python that is told to run it, none if the kernel executes it.
    """

    path: str
    said: str
    folders: tuple[str, ...]
    matters: bool = True
    text: str = ""
    is_named: bool = False
    runner: tuple[str, ...] = ()
    python_path: str = ""


def prove_scripts(subject: Subject) -> Findings:
    yield from prove_shell_words(subject)
    queue = [*of_units(subject), *of_others(subject), *of_slurm(subject)]
    seen: set[tuple[str, str]] = set()
    pythons: list[syntax.PythonScript] = []
    shells: list[syntax.ShellText] = [*of_logins(subject)]
    while queue:
        program = queue.pop(0)
        path = subject.root.resolve(program.path) or program.path
        if (path, program.text) in seen or path in subject.shipped:
            continue
        seen.add((path, program.text))
        reading = ScriptReading(subject, program)
        yield from reading.prove()
        queue += reading.started()
        pythons += filter(None, [reading.python])
        shells += filter(None, [reading.shell_text])
    yield from syntax.prove_python_scripts(subject, pythons)
    yield from syntax.prove_shell_syntax(subject, shells)


def prove_shell_words(subject: Subject) -> Findings:
    """Faults of command lines that are written for a shell, which systemd does not start."""
    for unit in {unit.name: unit for unit in subject.startup.units.values()}.values():
        for key, words in unit.started():
            meant = [word for word in words if word in FOR_SHELLS or word.startswith("2>")]
            program = posixpath.basename(words[0])
            where = said_in(subject.root, unit, key)
            if where.path in subject.shipped or RUNNERS.fullmatch(program) or program == ENV:
                continue
            if meant or program in BUILT_IN:
                does = "becomes an argument" if meant else "is not a program"
                what = f"systemd starts {key}= of {unit.name} without a shell: "
                what += f"{(meant or [program])[0]} {does}"
                hint = "write /bin/bash -c '...', or start the program itself"
                yield fault(what, where, hint=hint)


def of_units(subject: Subject) -> Iterator[SiteProgram]:
    """The programs of services that start at boot or on demand."""
    for unit in subject.startup.starting():
        environment = environment_of(subject, unit)
        search = environment.get("PATH")
        folders = tuple((search.value if search else PATH).split(":"))
        variable = environment.get("PYTHONPATH")
        more = variable.value if variable else ""
        for key, words in unit.started():
            start = f"which {unit.name} starts ({key}=)"
            where = said_in(subject.root, unit, key).path
            program = SiteProgram(
                words[0], f"{words[0]}, {start},", folders, python_path=more,
                matters="-" not in prefixes_of(subject.root, unit, key, words[0]),
                is_named=where not in subject.shipped and not is_condition(unit, words),
            )  # fmt: skip
            if RUNNERS.fullmatch(posixpath.basename(words[0])):
                yield from of_runner(program, expanded(words, environment), where, start)
            else:
                yield program


def is_condition(unit: LoadedUnit, words: Sequence[str]) -> bool:
    """Whether a unit starts only where a path of these words exists."""
    paths = [word for word in words if word.startswith("/")]
    keys = [key for key in unit.values if key.startswith(("Condition", "Assert"))]
    return any(path in value for key in keys for value in unit.every(key) for path in paths)


def of_runner(
    program: SiteProgram, words: Sequence[str], where: str, start: str
) -> Iterator[SiteProgram]:
    """What the arguments of a shell or of Python name: a script, or a text, which `where` has."""
    options = [word for word in words if word.startswith("-")]
    rest = [word for word in words[1:] if not word.startswith("-")]
    program = replace(program, runner=(words[0], *options))
    if rest and any(map(TEXT.fullmatch, options)):
        yield replace(program, path=where, said=f"{words[0]} -c, {start},", text=rest[0])
    elif rest and "-m" in options:
        said = f"the module {rest[0]}, {start},"
        options.remove("-m")
        runner = (words[0], *options)
        yield replace(program, path=where, said=said, text=f"import {rest[0]}", runner=runner)
    elif rest:
        yield replace(program, path=rest[0], said=f"{rest[0]}, {start},")


def of_others(subject: Subject) -> Iterator[SiteProgram]:
    """The programs of udev, cron, modprobe and the kernel, and of folders that something runs."""
    folders = tuple(PATH.split(":"))
    for path in sorted(find_programs(subject)):
        yield SiteProgram(path, f"{path}, which root starts without a unit,", folders)
    for folder in READ:
        for path in site_files(subject, f"{folder.pattern}/*") if folder.runs else ():
            yield SiteProgram(path, f"{path}, which {folder.reader} starts,", folders)


def of_slurm(subject: Subject) -> Iterator[SiteProgram]:
    """The programs of slurmd: it drains a node whose prolog or epilog fails (slurm.conf(5))."""
    for path, key in job_programs(subject):
        drains = key.lower() in ("prolog", "epilog")
        said = f"{path}, which slurmd runs ({key}=),"
        if drains:
            said = f"{path}, which slurmd runs with each job ({key}=) and whose failure drains the "
            said += "node,"
        yield SiteProgram(path, said, tuple(PATH.split(":")), matters=drains, is_named=drains)


def of_logins(subject: Subject) -> Iterator[syntax.ShellText]:
    """The site's files that a login shell reads."""
    for path in site_files(subject, *LOGINS):
        said = f"{path}, which every login shell reads,"
        yield syntax.ShellText("/bin/sh", subject.root.text(path), path, said, matters=False)


def beginning(root: Root, path: str) -> bytes:
    """What is read of a file: all of a script, and not all of a program with a model in it."""
    return bytes((root.map(path) or b"")[: MOST_BYTES + 1])


@dataclass(frozen=True)
class ScriptReading:
    """A program of the site, read as a script if it is one."""

    subject: Subject
    program: SiteProgram

    @cached_property
    def data(self) -> bytes:
        return self.program.text.encode() or beginning(self.subject.root, self.program.path)

    @cached_property
    def first(self) -> list[str]:
        """The words of the `#!` line."""
        return first_line(self.data)

    @cached_property
    def shell(self) -> str:
        """The name of the shell that runs it, "" for what is no script of a shell."""
        named = next(iter(behind_env(self.program.runner or self.first)), "")
        if posixpath.basename(named) not in SHELLS:
            return ""
        found = self.subject.root.resolve(named if "/" in named else f"/bin/{named}")
        return name if (name := posixpath.basename(found or "")) in SHELLS else ""

    @cached_property
    def python(self) -> syntax.PythonScript | None:
        """The program if Python runs it."""
        words = self.program.runner or self.first
        if not runs(PYTHON, words) or not self.data:
            return None
        runner = tuple(word for word in behind_env(words) if not TEXT.fullmatch(word))
        program = self.program
        return syntax.PythonScript(
            program.path, program.text, program.said, runner, program.python_path, program.matters
        )

    @cached_property
    def shell_text(self) -> syntax.ShellText | None:
        """The whole of the program if a shell runs it."""
        if not self.shell or len(self.data) > MOST_BYTES:
            return None
        program, text = self.program, self.data.decode(errors="surrogateescape")
        return syntax.ShellText(
            f"/bin/{self.shell}", text, program.path, program.said, program.matters
        )

    @cached_property
    def script(self) -> ShellScript | None:
        options = (self.program.runner or self.first)[1:]
        ends_on_errors = any(map(ERREXIT.fullmatch, options))
        return parse_shell(self.data, ends_on_errors=ends_on_errors) if self.shell else None

    def prove(self) -> Findings:
        say = fault if self.program.matters else warning
        if self.program.is_named and self.lacks(self.program.path):
            what = f"{self.program.said} is not in the image"
            yield say(what, Evidence(self.program.path), hint="install it, or correct the path")
        elif not self.program.runner and (why := self.refused()):
            what = f"{self.program.said} cannot run: {why}"
            hint = "begin it with the line `#!INTERPRETER`, without a carriage return, with an "
            hint += "interpreter that is in the image"
            yield say(what, Evidence(self.program.path, said=" ".join(self.first)), hint=hint)
        else:
            yield from self.prove_commands()

    def prove_commands(self) -> Findings:
        for command in self.script.commands if self.script else ():
            where = Evidence(self.program.path, said=f"line {command.line}")
            words = (command.name, *command.words)
            yield from prove_upgrade(self.subject, self.program.said, words, where)
        for command, why in self.missing():
            ends = self.program.matters and command.failure == Consequence.ENDS
            does = "ends at" if ends else "cannot run"
            place = f"{does} line {command.line}"
            say = fault if ends else warning
            hint = "begin it with `#!/bin/bash`" if command.name in BASH else HINT
            evidence = Evidence(self.program.path, said=command.name)
            yield say(f"{self.program.said} {place}: {why}", evidence, hint=hint)

    def refused(self) -> str:
        """Why the kernel does not execute the file, "" if it does."""
        root = self.subject.root
        if not self.data.startswith(b"#!"):
            is_text = b"\0" not in self.data[:4096] and root.is_file(self.program.path)
            return "it has no `#!` line" if is_text else ""
        interpreter = next(iter(self.first), "")
        if interpreter.startswith(IN_IMAGE) and not root.is_file(interpreter):
            ends = (
                ", and its line ends with a carriage return" if interpreter.endswith("\r") else ""
            )
            return f"its interpreter {interpreter.strip()} is not in the image{ends}"
        named = next(iter(behind_env(self.first)), "")
        if posixpath.basename(interpreter) == ENV and named and not self.find(named):
            return f"its interpreter {named.strip()} is not in the image"
        return ""

    def missing(self) -> Iterator[tuple[ShellCommand, str]]:
        """The commands and files that the image lacks, each with the reason."""
        script = self.script
        if script is None:
            return
        known = self.known(script)
        asked = script.asked | {posixpath.basename(word) for word in script.asked}
        for command in script.commands:
            name = command.name
            if name in asked or command.failure == Consequence.EXPECTED:
                continue
            if name in BASH and self.shell == "dash" and not self.find(name):
                yield command, f"dash, which runs it, has no {name}"
            elif (
                self.lacks(name) if "/" in name else known is not None and self.is_new(name, known)
            ):
                yield command, f"{name} is not in the image"
        for file in script.sourced:
            if self.lacks(file.name) and file.name not in asked and file.failure:
                yield file, f"it reads {file.name}, which is not in the image"

    def known(self, script: ShellScript) -> frozenset[str] | None:
        """The names that need no file: None if a file that nobody can name may define more."""
        names = SHELL | script.functions | (BASH if self.shell != "dash" else frozenset())
        queue, seen = [file.name for file in script.sourced], set[str]()
        while queue:
            path = queue.pop()
            # A node may get a file that the image lacks.
            is_there = path.startswith("/") and self.subject.root.is_file(path)
            more = parse_shell(beginning(self.subject.root, path)) if is_there else None
            if more is None or more.path:
                return None
            names |= more.functions
            queue += [file.name for file in more.sourced if file.name not in seen]
            seen.update(queue)
        return names if all(map(self.folders, script.path)) else None

    def folders(self, value: str) -> tuple[str, ...]:
        """The folders of a value of PATH, none if it has another variable in it."""
        value = OLD_PATH.sub(":".join(self.program.folders), value)
        return () if "$" in value or "`" in value else tuple(value.split(":"))

    def lacks(self, path: str) -> bool:
        """Whether a path should be in the image and is not."""
        return path.startswith(IN_IMAGE) and not is_there(self.subject, path)

    def is_new(self, name: str, known: frozenset[str]) -> bool:
        return bool(NAME.fullmatch(name)) and name not in known and not self.find(name)

    def find(self, name: str) -> str:
        """The path of a command that is called by its name, "" if there is none."""
        values = self.script.path if self.script else ()
        more = [folder for value in values for folder in self.folders(value)]
        return find_program(self.subject.root, name, (*more, *self.program.folders))

    def started(self) -> Iterator[SiteProgram]:
        for command in self.script.commands if self.script else ():
            name = command.name
            if path := name if name.startswith("/") else self.find(name):
                said = f"{path}, which {self.program.path} starts,"
                matters = self.program.matters and command.failure == Consequence.ENDS
                yield SiteProgram(path, said, self.program.folders, matters)
