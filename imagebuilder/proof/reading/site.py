# SPDX-License-Identifier: Apache-2.0
"""What a site brings: the services that start at boot, by their program, and its files."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from imagebuilder.image.proof import Evidence
from imagebuilder.proof.reading.commands import CommandLine, command_of
from imagebuilder.proof.reading.environment import Environment, environment_of
from imagebuilder.proof.reading.systemd import LoadedUnit
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.engines import find_engine

# Names that people give to what shall not be read.
SET_ASIDE = re.compile(
    r"\..*|README.*|.*~|.*[.-](bak|backup|dist|disabled|\w+-(dist|new|old|tmp)|example|in|off|old|orig|rpm\w+|"
    r"sample|save|template)|.*\.md"
)


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
    """The services that start at boot or that overlays declare, but those that are as their
    packages ship them.
    """
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
