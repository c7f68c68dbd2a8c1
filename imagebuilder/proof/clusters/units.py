# SPDX-License-Identifier: Apache-2.0
"""The services of a site that start at boot, by the program that they run."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from imagebuilder.image.proof import Evidence
from imagebuilder.proof.services.environment import (
    Environment,
    environment_of,
    expanded,
    unquoted,
)
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.systemd import LoadedUnit, Startup
from imagebuilder.recipe.engines import find_engine


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
    def words(self) -> tuple[str, ...]:
        """The command line with variables expanded, and what a variable of the engine adds."""
        added: list[str] = []
        for engine in self.subject.expectations.engines:
            if engine.unit == self.name:
                name = find_engine(self.subject.engines, engine.engine).model.arguments
                variable = self.environment.get(name)
                added += unquoted(variable.value) if variable else []
        return (*expanded(self.written, self.environment), *added)

    @property
    def evidence(self) -> Evidence:
        path = self.unit.paths[-1] if self.unit.paths else "/"
        return Evidence(path, said=f"ExecStart={' '.join(self.written)}")

    def option(self, *names: str) -> str | None:
        """The value of the last of some options, None without one; "" for one without a value."""
        found: str | None = None
        for number, word in enumerate(self.words):
            name, has_value, value = word.partition("=")
            if name in names:
                following = self.words[number + 1 : number + 2]
                found = value if has_value else next(iter(following), "")
        return found


def site_services(subject: Subject, startup: Startup) -> Iterator[SiteService]:
    """The services that start at boot or that overlays declare, but those that are as their
    packages ship them.
    """
    declared = subject.expectations.engines, subject.expectations.services
    names = {each.unit for group in declared for each in group}
    starting = {unit.name: unit for unit in startup.starting()}
    loaded = {name: unit for name, unit in startup.units.items() if name in names}
    for unit in {**starting, **loaded}.values():
        if all(path in subject.shipped for path in unit.paths):
            continue
        yield from (SiteService(subject, unit, w) for w in unit.commands.get("ExecStart", ()) if w)


def services_of(subject: Subject, startup: Startup, program: str) -> Iterator[SiteService]:
    """Every service that starts at boot and runs a program of this name."""
    for unit in startup.starting():
        for words in unit.commands.get("ExecStart", ()):
            if words and posixpath.basename(words[0]) == program:
                yield SiteService(subject, unit, words)
