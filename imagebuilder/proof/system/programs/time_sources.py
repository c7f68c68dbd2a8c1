# SPDX-License-Identifier: Apache-2.0
"""Servers that chronyd never selects: it runs, and nothing sets the clock (chrony.conf(5))."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.includes import read_including
from imagebuilder.proof.reading.numbers import whole
from imagebuilder.proof.reading.site import SiteService, services_of
from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.root import Root

FILES = ("/etc/chrony/chrony.conf", "/etc/chrony.conf")
SOURCES = "sourcedir"
COMMENTS = ("#", "!", ";", "%")
# How many sources a line may bring; a pool has four unless it says otherwise (maxsources).
POOL, OTHERS = "pool", ("server", "peer", "refclock")
FROM_POOL = 4


@dataclass(frozen=True)
class ChronyLine:
    """The words of a line, the first in lower case, and where."""

    words: tuple[str, ...]
    path: str

    @property
    def where(self) -> Evidence:
        return Evidence(self.path, said=" ".join(self.words))

    def option(self, name: str) -> str:
        """The word after an option, "" without one."""
        after = self.words[self.words.index(name) + 1 :] if name in self.words else ()
        return next(iter(after), "")


def prove_time_sources(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """Warnings: what is added when a node boots, the image does not say."""
    for service in [*services_of(subject, startup, "chronyd")][:1]:
        lines = list(read_chrony(subject.root, service))
        sources = [line for line in lines if line.words[0] in (POOL, *OTHERS)]
        settings = {line.words[0]: line for line in lines}
        yield from prove_authenticated(service, sources, settings.get("authselectmode"))
        # Files with more servers may be made when a node boots.
        is_open = any(SOURCES in subject.root.text(path) for path in {x.path for x in lines})
        least = settings.get("minsources")
        many = sum(map(count, sources))
        if least and sources and not is_open and whole(least.words[1]) > many:
            what = f"{service.name} never sets the clock: {' '.join(least.words)} of {least.path}, "
            what += f"but it has only {many} of them"
            yield SAY.warning(what, least.where, hint="name more servers, or remove minsources")


def prove_authenticated(
    service: SiteService, sources: list[ChronyLine], mode: ChronyLine | None
) -> Iterator[Finding]:
    if mode is None or mode.words[1:2] != ("require",) or not sources:
        return
    if any(line.words[0] == "refclock" or {"nts", "key"} & {*line.words[2:]} for line in sources):
        return
    what = f"{service.name} never sets the clock: authselectmode require of {mode.path} needs "
    what += "servers that authenticate, and none has nts or key"
    hint = "add nts or key to the servers, or use authselectmode prefer"
    yield SAY.warning(what, mode.where, *(line.where for line in sources[:1]), hint=hint)


def count(line: ChronyLine) -> int:
    most = line.option("maxsources")
    return (whole(most) if most.isdecimal() else FROM_POOL) if line.words[0] == POOL else 1


def read_chrony(root: Root, service: SiteService) -> Iterator[ChronyLine]:
    """The lines of the file that chronyd is told to read, and of those that it includes."""
    told = service.option("-f")
    path = told or next(filter(root.is_file, FILES), FILES[0])

    def lines_of(path: str) -> Iterator[ChronyLine]:
        for text in root.text(path).splitlines():
            words = text.split()
            if words and not words[0].startswith(COMMENTS):
                # Each with at least one argument, so that a setting without any is none.
                yield ChronyLine((words[0].lower(), *(words[1:] or [""])), path)

    def included(line: ChronyLine) -> list[str] | None:
        name, *folders = line.words
        if name == "include":
            return [path for pattern in folders for path in root.glob(pattern)]
        if name == "confdir":
            found = {n: f"{folder}/{n}" for folder in reversed(folders) for n in root.names(folder)
                     if n.endswith(".conf")}  # fmt: skip
            return [found[name] for name in sorted(found)]
        if name == SOURCES:
            return [f"{f}/{n}" for f in folders for n in root.names(f) if n.endswith(".sources")]
        return None

    yield from read_including(posixpath.normpath(path), lines_of, included)
