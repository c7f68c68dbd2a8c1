# SPDX-License-Identifier: Apache-2.0
"""Which packages the streams of modules show and hide, as dnf decides it.

A stream of a module is active if the recipe enables it, if an active stream requires it, or if it
is the default of its module.  Packages of other streams are hidden; and so are all packages that
have, or provide, the name of a package of an active stream and are not of it: its newer version
elsewhere would replace it (libdnf5/module/module_sack.cpp of dnf5).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from imagebuilder.errors import Fault, InputError
from imagebuilder.families.rpm.modulemd import (
    ModuleDefault,
    ModuleStream,
    Requires,
    read_modules,
)
from imagebuilder.families.rpm.repository import Index
from imagebuilder.phrases import quote, suggest
from imagebuilder.recipe.types import Source

PLATFORM = "platform"  # the distribution, as if it were a module


@dataclass(frozen=True)
class ModuleFilter:
    """Packages are NAME-EPOCH:VERSION-RELEASE.ARCHITECTURE; none but those `shown` has or provides
    one of `names`.  `active` are the streams, as NAME:STREAM.
    """

    shown: frozenset[str] = frozenset()
    hidden: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    active: tuple[str, ...] = ()

    def is_visible(
        self,
        name: str,
        version: str,
        architecture: str,
        provides: Collection[str] = (),
    ) -> bool:
        """Whether a package may be chosen.

        `version` is [EPOCH:]VERSION-RELEASE; `provides` are the names that the package provides.
        Modules of one repository hide packages of all of them.
        """
        if not self.hidden and not self.names:
            return True
        whole = version if ":" in version else f"0:{version}"
        package = f"{name}-{whole}.{architecture}"
        if package in self.shown:
            return True
        if package in self.hidden or name in self.names:
            return False
        return self.names.isdisjoint(provides)


def module_filter(indexes: Sequence[Index]) -> ModuleFilter:
    """What the modules of all repositories show and hide, with the streams that sources enable.

    Raises InputError for a stream that does not exist, two streams of one module, and a stream that
    requires what is not there or not enabled; WorkError for a modules.yaml that is damaged.
    """
    sources = {index.repository.source.id: index.repository.source for index in indexes}
    streams, defaults = read_modules(indexes)
    modules = ModuleSet(streams, default_streams(defaults), platform_of(sources.values()))
    active = modules.activate(requested_streams(sources.values(), modules))
    return ModuleFilter(
        shown=frozenset().union(*(each.artifacts for each in active)),
        hidden=frozenset().union(*(each.artifacts for each in streams)),
        names=frozenset().union(*(each.names for each in active)),
        active=tuple(dict.fromkeys(each.shown for each in active)),
    )


def platform_of(sources: Iterable[Source]) -> str:
    """The stream of `platform` of a distribution, such as `el9`; "" if its suite does not say."""
    for source in sources:
        major = re.match(r"[0-9]+", source.suites[0]) if source.mirror and source.suites else None
        if major:
            return f"el{major[0]}"
    return ""


def default_streams(defaults: Iterable[ModuleDefault]) -> dict[str, str]:
    """The default stream of each module: the newest decision counts, and none if there are two."""
    newest: dict[str, list[ModuleDefault]] = {}
    for default in sorted(defaults, key=lambda each: -each.modified):
        listed = newest.setdefault(default.module, [])
        if not listed or listed[0].modified == default.modified:
            listed.append(default)
    chosen = {name: {each.stream for each in listed} for name, listed in newest.items()}
    return {
        name: found.pop() for name, found in chosen.items() if len(found) == 1 and "" not in found
    }


class ModuleSet:
    """All streams by module and name; `platform` is that of the distribution, "" if unknown."""

    def __init__(
        self, streams: Iterable[ModuleStream], defaults: Mapping[str, str], platform: str
    ) -> None:
        self.defaults, self.platform = defaults, platform
        self.builds: dict[str, dict[str, list[ModuleStream]]] = {}
        for each in streams:
            self.builds.setdefault(each.name, {}).setdefault(each.stream, []).append(each)

    def streams_of(self, module: str) -> list[str]:
        return sorted(self.builds.get(module, {}))

    def activate(self, requested: Mapping[str, str]) -> list[ModuleStream]:
        """The builds of all active streams.

        Raises InputError for a requested stream whose requirements cannot be active too.
        """
        active = dict(requested)
        todo = list(requested)
        while todo:
            name = todo.pop(0)
            for module, stream in self.needed(name, active).items():
                active[module] = stream
                todo.append(module)
        whole = {**{name: s for name, s in self.defaults.items() if name not in active}, **active}
        while dropped := [n for n in whole if n not in active and not self.fitting(n, whole)]:
            for name in dropped:  # a default that nobody asked for
                del whole[name]
        return [build for name in sorted(whole) for build in self.chosen(name, whole)]

    def chosen(self, name: str, active: Mapping[str, str]) -> Iterator[ModuleStream]:
        """The builds of an active stream that are active: of the newest one, every version."""
        fitting = self.fitting(name, active)
        newest = max(fitting, key=lambda each: (each.version, each.kind))
        yield from (each for each in fitting if each.kind == newest.kind)

    def fitting(self, name: str, active: Mapping[str, str]) -> list[ModuleStream]:
        """The builds of an active stream all of whose requirements are active."""
        builds = self.builds.get(name, {}).get(active[name], [])
        return [
            build
            for build in builds
            if any(not self.unmet(each, active) for each in build.requires)
        ]

    def unmet(self, requires: Requires, active: Mapping[str, str]) -> list[tuple[str, list[str]]]:
        """The modules that are required and not active as required, with the streams that would do.

        An active module of another stream has none.
        """
        found: list[tuple[str, list[str]]] = []
        for module, streams in requires:
            if module == PLATFORM:
                wanted = [self.platform] if self.platform else []
                if wanted and wanted[0] not in allowed(streams, wanted):
                    found.append((module, []))
            elif module in active:
                if active[module] not in allowed(streams, [active[module]]):
                    found.append((module, []))
            else:
                found.append((module, allowed(streams, self.streams_of(module))))
        return found

    def needed(self, name: str, active: Mapping[str, str]) -> dict[str, str]:
        """Further streams to activate for a stream; empty if it has what it requires.

        Raises InputError if they do not exist, are of an active module, or are a choice.
        """
        if self.fitting(name, active):
            return {}
        builds = sorted(self.builds[name][active[name]], key=lambda each: -each.version)
        ways = [self.unmet(each, active) for build in builds for each in build.requires]
        for way in ways:
            picked = {module: self.pick(module, streams) for module, streams in way}
            if all(picked.values()):
                return {module: stream for module, stream in picked.items() if stream}
        raise InputError.of([self.unmet_fault(builds[0], ways[0], active)])

    def pick(self, module: str, streams: Sequence[str]) -> str:
        """The stream to activate of those that would do; "" if that is for a person to choose."""
        default = self.defaults.get(module, "")
        if default in streams:
            return default
        return streams[0] if len(streams) == 1 else ""

    def unmet_fault(
        self,
        build: ModuleStream,
        way: Sequence[tuple[str, Sequence[str]]],
        active: Mapping[str, str],
    ) -> Fault:
        """The fault of a stream whose requirements cannot be activated."""
        module, streams = next(each for each in way if not self.pick(*each))
        wanted = {name: found for each in build.requires for name, found in each}
        text = f"module {module}" + "".join(f" {stream}" for stream in wanted.get(module, ()))
        where, shown = f"source {build.source}", build.shown
        if module == PLATFORM:
            what = f"{shown} is for {' or '.join(wanted.get(module, ()))}, not for {self.platform}"
            return Fault(where, what, "use the repository of this distribution")
        if streams:
            choices = ", ".join(f"{module}:{stream}" for stream in streams)
            return Fault(where, f"{shown} requires {text}", f"enable one of {choices} in `modules`")
        if module in active:
            what = f"{shown} requires {text}, but {module}:{active[module]} is enabled"
            return Fault(where, what, "enable streams that belong together in `modules`")
        return Fault(where, f"{shown} requires {text}, which no source has")


def allowed(streams: Sequence[str], known: Iterable[str]) -> list[str]:
    """Those of `known` that required streams allow: `-NAME` excludes one, an empty list none."""
    excluded = {stream[1:] for stream in streams if stream.startswith("-")}
    included = {stream for stream in streams if not stream.startswith("-")}
    return [each for each in known if (not included or each in included) and each not in excluded]


def requested_streams(sources: Iterable[Source], modules: ModuleSet) -> dict[str, str]:
    """The streams that sources enable, by module.  Raises InputError."""
    found: dict[str, str] = {}
    faults: list[Fault] = []
    for source in sources:
        for word in source.streams:
            name, _, stream = word.partition(":")
            if fault := unknown_fault(source, name, stream, modules):
                faults.append(fault)
            elif found.setdefault(name, stream) != stream:
                what = f"{word} and {name}:{found[name]} are both enabled"
                hint = "enable one stream of a module"
                faults.append(Fault(f"source {source.id}", what, hint))
    if faults:
        raise InputError.of(faults)
    return found


def unknown_fault(source: Source, name: str, stream: str, modules: ModuleSet) -> Fault | None:
    """The fault of a stream that the source does not have; None if it has it."""
    where = f"source {source.id}"
    here = {
        (each.name, each.stream)
        for streams in modules.builds.values()
        for builds in streams.values()
        for each in builds
        if each.source == source.id
    }
    if (name, stream) in here:
        return None
    names = {each for each, _ in here}
    if name not in names:
        return Fault(where, f"it has no module {name}", suggest(name, names))
    streams = sorted(each for found, each in here if found == name)
    what = (
        f"its module {name} has no stream {quote(stream)}" if stream else f"{name} names no stream"
    )
    return Fault(where, what, f"use one of {', '.join(f'{name}:{each}' for each in streams)}")
