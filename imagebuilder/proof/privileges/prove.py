# SPDX-License-Identifier: Apache-2.0
"""Who may become root?  A way that no overlay grants and no package installs is a fault."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from imagebuilder.image.proof import Evidence, Finding, Findings, fact, fault, warning
from imagebuilder.proof.privileges import files, searched
from imagebuilder.proof.privileges.login import find_ways_in
from imagebuilder.proof.privileges.sudo import find_rules, prove_patterns
from imagebuilder.proof.privileges.types import Opening, Privilege
from imagebuilder.proof.reading.accounts import PASSWD
from imagebuilder.proof.reading.mounts import with_tmpfiles
from imagebuilder.proof.reading.provenance import Provenance
from imagebuilder.proof.reading.texts import is_loopback
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root
from imagebuilder.ui import format_count

MOST_PATHS = 50
ROOT = ("", "root", "0")
# Tables with many authors: the origin of the file does not tell that of a line.
TABLES = (Opening.ROOT_ACCOUNTS, Opening.GROUPS, Opening.NEVER)
LISTENING = {"ListenStream": "tcp", "ListenDatagram": "udp"}
# An address with a port, as systemd prints it; a path is no port.
LISTENS = re.compile(r"(?:(?P<address>\[[^\]]*\]|[0-9.]*):)?(?P<port>\d+)(\s.*)?")
PATH_MAX = 4096  # linux/limits.h


def prove_privileges(subject: Subject) -> Findings:
    """Every finding about ways to become root; none for a root without accounts."""
    if not subject.root.is_file(PASSWD):
        return
    provenance = subject.provenance or Provenance({})
    by_packages: list[Privilege] = []
    for one in find_privileges(subject):
        if overlay := granted_by(subject, one):
            yield fact(f"{one.gains}: granted by the overlay {overlay}", evidence(one))
        elif one.opening not in TABLES and provenance.is_packaged(one.path):
            by_packages.append(one)
        else:
            yield undeclared(one, provenance.who(one.path))
    yield from prove_patterns(subject)
    if by_packages:
        many = format_count(len(by_packages), "way")
        what = f"{many} to act as root, all of them from packages"
        yield fact(what, *(evidence(one) for one in by_packages[:MOST_PATHS]))


def find_privileges(subject: Subject) -> Iterator[Privilege]:
    root = subject.root
    run = with_parents({*programs_of(subject), *searched.find_programs(subject), *preloaded(root)})
    entries = with_tmpfiles(subject, subject.entries)
    yield from files.find_files(root, entries, subject.accounts.group_names, run)
    yield from searched.find_open_folders(searched.find_search_folders(root), entries)
    users = {user.name: frozenset(user.groups) for user in subject.image.users}
    yield from files.find_accounts(root, users)
    yield from find_rules(root)
    yield from find_ways_in(subject, entries)
    yield from files.find_consoles(subject)
    yield from files.find_devices(subject)
    yield from find_ports(subject)
    for each in subject.family.find_unsigned(root):
        gains = f"{each.what}: packages are installed without a valid signature"
        yield Privilege(Opening.SOURCES, each.path, each.path, gains, line=each.line)


def find_ports(subject: Subject) -> Iterator[Privilege]:
    """Sockets of systemd that no overlay lists under `listens:`; none if the image is older."""
    declared = subject.image.listens
    for name, unit in subject.startup.booting() if declared is not None else ():
        pairs = ((value, each) for key, each in LISTENING.items() for value in unit.every(key))
        for value, protocol in pairs if name.endswith(".socket") else ():
            match = LISTENS.fullmatch(value)
            if match is None or is_loopback(match["address"] or ""):
                continue
            port = f"{match['port']}/{protocol}"
            if port not in (declared or ()):
                gains = f"{name} listens on {port}, which no overlay lists under `listens:`"
                yield Privilege(Opening.NEVER, port, (unit.paths or (name,))[0], gains)


def programs_of(subject: Subject) -> frozenset[str]:
    """The programs that services start as root."""
    return frozenset(
        words[0]
        for unit in subject.startup.units.values()
        if unit.last("User") in ROOT
        for words in unit.lines
        if words[0].startswith("/")
    )


def preloaded(root: Root) -> frozenset[str]:
    """The libraries that every program loads (ld.so(8))."""
    return frozenset(root.text("/etc/ld.so.preload").replace(":", " ").split())


def with_parents(paths: Iterable[str]) -> frozenset[str]:
    """Absolute paths, with one slash where several are written, and the folders above them.

    Others are none that the kernel takes, or are looked for in several folders (ld.so.preload).
    """
    taken = [path for path in paths if path.startswith("/") and len(path) < PATH_MAX]
    whole = {PurePosixPath("/", *path.split("/")) for path in taken}
    above = {folder for path in whole for folder in path.parents} - {PurePosixPath("/")}
    return frozenset(map(str, whole | above))


def granted_by(subject: Subject, one: Privilege) -> str:
    """The overlay that grants a way, "" if none does."""
    if one.opening is Opening.NEVER:
        return ""
    key = one.opening.replace("-", "_")
    for overlay, grants in (subject.image.grants or {}).items():
        if any(fnmatch.fnmatchcase(one.name, pattern) for pattern in getattr(grants, key)):
            return overlay
    return ""


def undeclared(one: Privilege, who: str) -> Finding:
    what, remove = one.gains, "remove it"
    if one.opening is not Opening.NEVER:
        what += ", which no overlay grants"
        remove += f", or declare it in the overlay: `grants: {{{one.opening}: ['{one.name}']}}`"
    found = Evidence(one.where, said=who)
    return warning(what, found, hint=remove) if one.minor else fault(what, found, hint=remove)


def evidence(one: Privilege) -> Evidence:
    return Evidence(one.where, said=one.gains)
