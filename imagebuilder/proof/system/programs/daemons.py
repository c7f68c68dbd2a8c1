# SPDX-License-Identifier: Apache-2.0
"""Daemons that run, and do nothing: chronyd (chrony.conf(5)), logrotate(8) and TuneD."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence, Findings, warning
from imagebuilder.proof.reading.config import read_including
from imagebuilder.proof.reading.scripts import SiteService, services_of, site_files
from imagebuilder.proof.reading.texts import whole
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

CHRONY = ("/etc/chrony/chrony.conf", "/etc/chrony.conf")
SOURCES = "sourcedir"
COMMENTS = ("#", "!", ";", "%")
# How many sources a line may bring; a pool has four unless it says otherwise (maxsources).
POOL, OTHERS = "pool", ("server", "peer", "refclock")
FROM_POOL = 4
RULES = ("/etc/logrotate.conf", "/etc/logrotate.d/*")
# create [MODE] [USER GROUP], createolddir [MODE] [USER GROUP], su USER GROUP
OWNERS = re.compile(
    r"^[ \t]*(?P<key>create|createolddir|su)[ \t]+(?:0?[0-7]{3,4}[ \t]+)?"
    r"(?P<user>[A-Za-z_][\w.-]*)[ \t]+(?P<group>[A-Za-z_][\w.-]*)[ \t]*(?:#.*)?$",
    re.MULTILINE,
)
ACTIVE = "/etc/tuned/active_profile"
# Since 2.23 in folders of their own (redhat-performance/tuned, tuned/consts.py: LOAD_DIRECTORIES).
NEW = ("/etc/tuned/profiles", "/usr/lib/tuned/profiles")
OLD = ("/etc/tuned", "/usr/lib/tuned")
INCLUDE = re.compile(r"^[ \t]*include[ \t]*=[ \t]*(?P<names>[^#\n]+)", re.MULTILINE)
MOST_PROFILES = 20  # profiles that include each other


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


def prove_time_sources(subject: Subject) -> Findings:
    """Warnings of servers in the image that chronyd never selects."""
    for service in [*services_of(subject, "chronyd")][:1]:
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
            yield warning(what, least.where, hint="name more servers, or remove minsources")


def prove_authenticated(
    service: SiteService, sources: list[ChronyLine], mode: ChronyLine | None
) -> Findings:
    if mode is None or mode.words[1:2] != ("require",) or not sources:
        return
    if any(line.words[0] == "refclock" or {"nts", "key"} & {*line.words[2:]} for line in sources):
        return
    what = f"{service.name} never sets the clock: authselectmode require of {mode.path} needs "
    what += "servers that authenticate, and none has nts or key"
    hint = "add nts or key to the servers, or use authselectmode prefer"
    yield warning(what, mode.where, *(line.where for line in sources[:1]), hint=hint)


def count(line: ChronyLine) -> int:
    most = line.option("maxsources")
    return (whole(most) if most.isdecimal() else FROM_POOL) if line.words[0] == POOL else 1


def read_chrony(root: Root, service: SiteService) -> Iterator[ChronyLine]:
    """The lines of the file that chronyd is told to read, and of those that it includes."""
    told = service.option("-f")
    path = told or next(filter(root.is_file, CHRONY), CHRONY[0])

    def lines_of(path: str) -> Iterator[ChronyLine]:
        for text in root.text(path).splitlines():
            words = text.split()
            if words and not words[0].startswith(COMMENTS):
                # Each with at least one argument, so that a setting without any is none.
                yield ChronyLine((words[0].lower(), *(words[1:] or [""])), path)

    def included(line: ChronyLine) -> list[str] | None:
        name, *folders = line.words
        if name == "include":
            return root.glob(*folders)
        if name == "confdir":
            found = {n: f"{folder}/{n}" for folder in reversed(folders) for n in root.names(folder)
                     if n.endswith(".conf")}  # fmt: skip
            return [found[name] for name in sorted(found)]
        if name == SOURCES:
            return [f"{f}/{n}" for f in folders for n in root.names(f) if n.endswith(".sources")]
        return None

    yield from read_including(posixpath.normpath(path), lines_of, included)


def prove_rotation(subject: Subject) -> Findings:
    """Warnings of rules of logrotate(8) with accounts that do not exist: it skips them."""
    if not subject.root.is_file("/usr/sbin/logrotate"):
        return
    # systemd makes them when the service starts, with a group of the same name.
    units = [u for u in subject.startup.starting() if u.last("DynamicUser") == "yes"]
    dynamic = {unit.last("User") or unit.name.removesuffix(".service") for unit in units}
    users = subject.accounts.users.keys() | dynamic
    groups = subject.accounts.groups.keys() | dynamic
    for path in site_files(subject, *RULES):
        for line in OWNERS.finditer(subject.root.text(path)):
            lost = [f"the account {line['user']}"] if line["user"] not in users else []
            lost += [f"the group {line['group']}"] if line["group"] not in groups else []
            if lost:
                said = " ".join(line[0].split())
                what = f"logrotate skips the logs of {path}: {said} names {' and '.join(lost)}, "
                what += "which the image does not have, and the logs grow without end"
                hint = "name an account and a group of the image, such as root adm on Debian"
                yield warning(what, Evidence(path, said=said), hint=hint)


def prove_tuning(subject: Subject) -> Findings:
    """Warnings of the active profile, and of those that it includes."""
    folders = profile_folders(subject.root)
    root = subject.root
    todo = root.text(ACTIVE).split()
    where = Evidence(ACTIVE, said=" ".join(todo))
    service = next(services_of(subject, "tuned"), None)
    if service is None or not folders:
        return
    seen: set[str] = set()
    places = {name: where for name in todo}
    while todo and len(seen) < MOST_PROFILES:
        name = todo.pop(0)
        if name in seen or "$" in name:
            continue
        seen.add(name)
        paths = (f"{folder}/{name}/tuned.conf" for folder in folders)
        path = next(filter(root.is_file, paths), "")
        for found in INCLUDE.finditer(root.text(path)) if path else ():
            more = [each.lstrip("-") for each in re.split(r"[,;\s]+", found["names"].strip())]
            optional = re.findall(r"-(\S+?)(?=[,;\s]|$)", found["names"])
            more = [each for each in more if each and each not in optional]
            places |= {each: Evidence(path, said=found[0].strip()) for each in more}
            todo += more
        if not path:
            others = (f"{folder}/{name}/tuned.conf" for folder in {*OLD, *NEW} - {*folders})
            other = next(filter(root.is_file, others), "")
            what = f"{service.name} tunes nothing: the profile {name} is not in "
            what += " or ".join(folders)
            what += f", but {other} is in a folder of other releases of TuneD" if other else ""
            hint = f"put it into {folders[0]}/{name}" if other else "install or correct the profile"
            yield warning(what, places[name], hint=hint)


def profile_folders(root: Root) -> tuple[str, ...]:
    """Where this TuneD looks for profiles, by its own ones; none if it has none."""
    for folders in (NEW, OLD):
        if root.glob(f"{folders[1]}/*/tuned.conf"):
            return folders
    return ()
