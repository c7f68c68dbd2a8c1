# SPDX-License-Identifier: Apache-2.0
"""Which releases nodes became ready with, how often others failed, and what to boot instead.

    TREE/serve/boots.json

A try is a script that the web server sent to a node.  It ends when the node's ssh server answers
after a report of its initrd: then the release is confirmed for this node.  If it answers without a
report, the node is up and nothing failed: any of its users may fetch its script.  After TRIES tries
without confirmation, the node falls back to a confirmed release, if it has one; it tries the next
release again.  This is derived from evidence whenever a node's script is made; nobody edits
nodes.yaml.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from imagebuilder.decode import JsonFile, ZonedTimeIfAny
from imagebuilder.files import place_file
from imagebuilder.locks import file_lock
from imagebuilder.nodes.evidence.seen import find_file
from imagebuilder.nodes.references import find_release
from imagebuilder.nodes.types import Node
from imagebuilder.tree import ReleaseName, ReleaseText, Tree

TRIES = 2
KEPT = 8  # releases per node
MOST_BYTES = 4 * 1024**2
LOCK = "reports"  # of everything that is read from the web server's log


@dataclass(frozen=True)
class NodeBoots:
    """The boots of one node; releases are PROFILE@VERSION.

    `confirmed` are those it became ready with, the newest first, `tries` counts those since.
    `asked` is when it last fetched its script (ISO 8601 in UTC), `release` what the script boots,
    empty once the node is ready; `reported` is whether its initrd reported that release.
    `unreported` are the scripts since the last report or answer.  `answered` is when its ssh server
    answered after a report.
    """

    node: str
    confirmed: tuple[ReleaseText, ...] = ()
    tries: Mapping[ReleaseText, int] = field(default_factory=dict)
    asked: ZonedTimeIfAny = ""
    release: ReleaseText = ""
    reported: bool = False
    unreported: tuple[ReleaseText, ...] = ()
    answered: ZonedTimeIfAny = ""

    def fetched(self, release: str, time: str) -> NodeBoots:
        """After it fetched a script for `release`; a repeated line is not counted."""
        if time <= self.asked:
            return self
        tries = dict(self.tries)
        tries[release] = tries.get(release, 0) + 1
        last = dict([*tries.items()][-KEPT:])
        # One that was reported and not ready yet may still become so.
        before = (self.release,) if self.reported else self.unreported
        unreported = (*before, release)[-KEPT:]
        return replace(
            self, tries=last, asked=time, release=release, reported=False, unreported=unreported
        )

    def told(self, release: str) -> NodeBoots:
        """After its initrd reported the release that it boots."""
        if not self.release or self.reported:
            return self
        tries = dict(self.tries)
        if release != self.release:
            if self.release in tries:
                tries[self.release] -= 1
            tries[release] = tries.get(release, 0) + 1
        return replace(self, tries=tries, release=release, reported=True, unreported=())

    def greeted(self, time: str) -> NodeBoots:
        """After its ssh server answered."""
        return self.ready(time) if self.reported else self.still_up()

    def still_up(self) -> NodeBoots:
        """None of what it fetched since it was last heard of has failed."""
        many = Counter(self.unreported)
        left = {release: n - many[release] for release, n in self.tries.items()}
        tries = {release: n for release, n in left.items() if n > 0}
        return replace(self, tries=tries, release="", unreported=())

    def ready(self, time: str) -> NodeBoots:
        """The release is confirmed."""
        others = [each for each in self.confirmed if each != self.release]
        tries = {each: n for each, n in self.tries.items() if each != self.release}
        confirmed = (self.release, *others)[:KEPT]
        return replace(
            self, confirmed=confirmed, tries=tries, release="", reported=False, answered=time
        )

    @property
    def awaits_ssh(self) -> bool:
        return bool(self.release)

    @property
    def ready_since(self) -> datetime | None:
        """When its ssh server answered in the last boot; None if it did not."""
        is_ready = self.answered and not self.release
        return datetime.fromisoformat(self.answered) if is_ready else None

    def has_failed(self, release: str) -> bool:
        return release not in self.confirmed and self.tries.get(release, 0) >= TRIES


@dataclass(frozen=True)
class BootRecords:
    nodes: tuple[NodeBoots, ...] = ()


BOOTS = JsonFile(BootRecords, 1, "the next boots of the nodes create another")


def read_boots(tree: Tree) -> dict[str, NodeBoots]:
    """The boots by node; none if the file is damaged."""
    found = find_file(tree.boots, BOOTS, MOST_BYTES)
    return {each.node: each for each in found.nodes} if found else {}


def write_boots(tree: Tree, boots: Mapping[str, NodeBoots]) -> None:
    """Save the boots.  The caller holds the lock of reports."""
    records = BootRecords(tuple(boots[name] for name in sorted(boots)))
    place_file(tree.boots, BOOTS.render(records).encode())


def confirm_boots(tree: Tree, names: Iterable[str]) -> None:
    """Confirm what these nodes booted: their ssh servers answer."""
    now = datetime.now(UTC).isoformat()
    with file_lock(tree.lock(LOCK)):
        boots = read_boots(tree)
        ready = {n: boots[n].greeted(now) for n in names if n in boots and boots[n].awaits_ssh}
        if ready:
            write_boots(tree, boots | ready)


def forget_tries(tree: Tree, names: Iterable[str], release: ReleaseName) -> None:
    """Let these nodes try the release again, because a person wants it."""
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
    """Whether the fallback of some node depends on where channels point."""
    return any(record.has_failed(r) for record in read_boots(tree).values() for r in record.tries)


@dataclass(frozen=True)
class FellBack:
    """A node boots `version`, with which it became ready before, instead of `wanted`."""

    wanted: ReleaseName
    version: str
    tries: int

    def __str__(self) -> str:
        return (
            f"fell back from {self.wanted.version}: {self.tries} boots of it did not become ready"
        )


def find_fallbacks(tree: Tree, nodes: Iterable[Node]) -> dict[str, FellBack]:
    """The nodes that boot another release than nodes.yaml says, by name."""
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
    """The last version of the profile that the node became ready with and that still exists."""
    for name in record.confirmed:
        profile, _, version = name.partition("@")
        good = ReleaseName(profile, version)
        if profile == wanted.profile and good != wanted and tree.release(good).is_dir():
            return version
    return ""


def fallen_back(node: Node, fallbacks: Mapping[str, FellBack]) -> Node:
    """The node for its script: pinned to its fallback."""
    fallback = fallbacks.get(node.name)
    return replace(node, version=fallback.version) if fallback else node
