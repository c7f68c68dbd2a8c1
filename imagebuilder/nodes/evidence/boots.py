# SPDX-License-Identifier: Apache-2.0
"""Which releases nodes became ready with, how often others failed, and what to boot instead.

    TREE/serve/boots.json

A try is a script that the web server sent to a node.  It is over when the node's ssh server answers
after its initrd reported: then the release is confirmed for this node.  A release that is not
confirmed and was tried TRIES times is not given to the node again, as long as there is one that
is: the node falls back, and the next release is tried again.  This is derived from evidence every
time a node's script is made; nobody decides it, and nodes.yaml stays as it is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from imagebuilder.decode import JsonFile, parse_json
from imagebuilder.errors import InputError
from imagebuilder.files import place_file
from imagebuilder.locks import file_lock
from imagebuilder.nodes.evidence.seen import DamagedRecordError, read_bounded
from imagebuilder.nodes.references import find_release
from imagebuilder.nodes.types import Node
from imagebuilder.tree import ReleaseName, Tree

TRIES = 2
KEPT = 8  # releases of a node that are remembered
MOST_BYTES = 4 * 1024**2
LOCK = "reports"  # of everything that is read from the web server's log


@dataclass(frozen=True)
class NodeBoots:
    """The boots of one node; releases are PROFILE@VERSION.

    `confirmed` are those it became ready with, the newest first, `tries` counts those since.
    `asked` is when it fetched its script last (ISO 8601 in UTC) and `release` what that led to,
    empty once the node is ready; `reported` is whether its initrd told so itself.  `answered` is
    when its ssh server was seen to answer after that.
    """

    node: str
    confirmed: tuple[str, ...] = ()
    tries: Mapping[str, int] = field(default_factory=dict)
    asked: str = ""
    release: str = ""
    reported: bool = False
    answered: str = ""

    def fetched(self, release: str, time: str) -> NodeBoots:
        """After it fetched a script that leads to `release`; the same line again is not counted."""
        if time <= self.asked:
            return self
        tries = dict(self.tries)
        tries[release] = tries.get(release, 0) + 1
        last = dict([*tries.items()][-KEPT:])
        return replace(self, tries=last, asked=time, release=release, reported=False)

    def told(self, release: str) -> NodeBoots:
        """After its initrd reported; what it boots is what it says."""
        if not self.release or self.reported:
            return self
        tries = dict(self.tries)
        if release != self.release:
            if self.release in tries:
                tries[self.release] -= 1
            tries[release] = tries.get(release, 0) + 1
        return replace(self, tries=tries, release=release, reported=True)

    def ready(self, time: str) -> NodeBoots:
        """After its ssh server answered: the release is confirmed."""
        others = [each for each in self.confirmed if each != self.release]
        tries = {each: n for each, n in self.tries.items() if each != self.release}
        confirmed = (self.release, *others)[:KEPT]
        return replace(
            self, confirmed=confirmed, tries=tries, release="", reported=False, answered=time
        )

    @property
    def awaits_ssh(self) -> bool:
        return bool(self.release) and self.reported

    @property
    def ready_since(self) -> datetime | None:
        """When its ssh server was seen to answer in the last boot; None if it was not."""
        with contextlib.suppress(ValueError):
            return datetime.fromisoformat(self.answered) if not self.release else None
        return None

    def has_failed(self, release: str) -> bool:
        return release not in self.confirmed and self.tries.get(release, 0) >= TRIES


@dataclass(frozen=True)
class BootRecords:
    """The file."""

    nodes: tuple[NodeBoots, ...] = ()


BOOTS = JsonFile(BootRecords, 1, "the next boots of the nodes make another")


def read_boots(tree: Tree) -> dict[str, NodeBoots]:
    """What is known by node; nothing where the file is damaged."""
    with contextlib.suppress(DamagedRecordError, InputError):
        if content := read_bounded(tree.boots, MOST_BYTES):
            records = BOOTS.decode(parse_json(content, ""), os.fspath(tree.boots))
            return {each.node: each for each in records.nodes}
    return {}


def write_boots(tree: Tree, boots: Mapping[str, NodeBoots]) -> None:
    """Write it down.  The caller holds the lock of reports."""
    records = BootRecords(tuple(boots[name] for name in sorted(boots)))
    place_file(tree.boots, BOOTS.render(records).encode())


def confirm_boots(tree: Tree, names: Iterable[str]) -> None:
    """The ssh servers of these nodes answer: what they booted is confirmed."""
    now = datetime.now(UTC).isoformat()
    with file_lock(tree.lock(LOCK)):
        boots = read_boots(tree)
        ready = {n: boots[n].ready(now) for n in names if n in boots and boots[n].awaits_ssh}
        if ready:
            write_boots(tree, boots | ready)


def forget_tries(tree: Tree, names: Iterable[str], release: ReleaseName) -> None:
    """A person wants this release on these nodes: it is tried again."""
    with file_lock(tree.lock(LOCK)):
        boots = read_boots(tree)
        cleared = {
            name: replace(boots[name], tries={k: n for k, n in boots[name].tries.items()
                                              if k != str(release)})
            for name in names
            if name in boots and str(release) in boots[name].tries
        }  # fmt: skip
        if cleared:
            write_boots(tree, boots | cleared)


def any_failed(tree: Tree) -> bool:
    """Whether what some node boots depends on where channels point to now."""
    return any(record.has_failed(r) for record in read_boots(tree).values() for r in record.tries)


@dataclass(frozen=True)
class FellBack:
    """A node is not given `wanted`, but `version`, with which it became ready before."""

    wanted: ReleaseName
    version: str
    tries: int

    def __str__(self) -> str:
        return (
            f"fell back from {self.wanted.version}: {self.tries} boots of it did not become ready"
        )


def find_fallbacks(tree: Tree, nodes: Iterable[Node]) -> dict[str, FellBack]:
    """The nodes that are given another release than nodes.yaml says, by name."""
    boots = read_boots(tree)
    known = [node for node in nodes if node.name in boots and boots[node.name].tries]
    found = {}
    for node in known:
        wanted = ReleaseName(node.profile, find_release(tree, node))
        record = boots[node.name]
        if record.has_failed(str(wanted)) and (version := find_good(tree, record, wanted)):
            found[node.name] = FellBack(wanted, version, record.tries[str(wanted)])
    return found


def find_good(tree: Tree, record: NodeBoots, wanted: ReleaseName) -> str:
    """The version of the profile that the node became ready with last, and that still exists."""
    for name in record.confirmed:
        profile, _, version = name.partition("@")
        good = ReleaseName(profile, version)
        if profile == wanted.profile and good != wanted and tree.release(good).is_dir():
            return version
    return ""


def fallen_back(node: Node, fallbacks: Mapping[str, FellBack]) -> Node:
    """The node as its script is made: pinned to what it falls back to."""
    fallback = fallbacks.get(node.name)
    return replace(node, version=fallback.version) if fallback else node
