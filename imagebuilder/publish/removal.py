# SPDX-License-Identifier: Apache-2.0
"""Remove releases, by name or the old ones; never one that a node runs or may boot.

The folder that makes a release exist goes first, by a rename, then its root and its reports, then
refs and objects.  A killed command leaves a root or reports without a release, which gc removes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path

from imagebuilder.digest import Json
from imagebuilder.errors import InputError
from imagebuilder.files import make_folder, move_away, remove_unfinished, sync
from imagebuilder.folders import folders_in, matching
from imagebuilder.locks import file_lock
from imagebuilder.nodes.evidence.usage import DAYS, Usage, find_usage, is_since, list_names
from imagebuilder.nodes.load import load_nodes
from imagebuilder.publish.channel.gate import is_under_test, lock_of_tests
from imagebuilder.publish.channel.move import find_previous
from imagebuilder.publish.find import (
    changing,
    check_channels,
    find_channels,
    find_release,
    find_releases,
)
from imagebuilder.publish.journal import KEEP, UNKEEP, UNPUBLISH, Event, append, read_tail
from imagebuilder.publish.release.packed import drop_unshared, find_shared
from imagebuilder.publish.release.repo import drop_unneeded
from imagebuilder.report.save import LOCK, sweep
from imagebuilder.store.repository import Store
from imagebuilder.store.workplace import new_id, workplace
from imagebuilder.tree import STABLE, ReleaseName, Tree
from imagebuilder.ui import Ui

# A node that got a release needs this long to load its kernel and report.
BOOT_MINUTES = 10


@dataclass(frozen=True)
class CollectedReleases:
    """What gc removed or would remove: releases and leftovers; and why the others stay."""

    releases: tuple[ReleaseName, ...]
    left: tuple[ReleaseName, ...]
    kept: tuple[tuple[ReleaseName, str], ...]

    def as_json(self) -> dict[str, Json]:
        return {
            "releases": [str(release) for release in self.releases],
            "unfinished": [str(release) for release in self.left],
            "kept": {str(release): why for release, why in self.kept},
        }

    def render(self, *, dry_run: bool) -> str:
        verb = "would remove" if dry_run else "removed"
        lines = [f"{verb} {release}" for release in self.releases]
        lines += [f"{verb} the leftovers of {release}" for release in self.left]
        lines += [f"kept {release}: {why}" for release, why in self.kept]
        return "\n".join(lines or ["nothing to remove"])


@dataclass(frozen=True)
class Reason:
    """Why a release stays, and what to do about it."""

    what: str
    hint: str


@dataclass(frozen=True)
class Caution:
    """When a release counts as unused.

    A node counts as a user for `days` after its last sign.  A node that got a release may take
    `boot_minutes` to report it.  NFS clients that never reported may run any release, unless
    `strangers` says that they are no nodes.
    """

    days: int = DAYS
    boot_minutes: float = BOOT_MINUTES
    strangers: bool = False


def unpublish(tree: Tree, name: str, ui: Ui, caution: Caution) -> ReleaseName:
    """Remove the release `profile@version`.

    Raises InputError if a channel points to it, it is kept or being tested, or a node is pinned to
    it or runs it.
    """
    with changing(tree, ui, removing=True):
        release = find_release(tree, name)
        usage = find_usage(tree, days=caution.days, whole=True)
        why = find_reasons(tree, caution, usage).get(release)
        if why is not None:
            raise InputError(f"cannot be removed: {why.what}", where=str(release), hint=why.hint)
        with ui.step(f"Removing {release}"):
            remove_releases(tree, [release], [])
    return release


def collect_releases(
    tree: Tree, ui: Ui, caution: Caution, *, keep: int, dry_run: bool
) -> CollectedReleases:
    """Remove all but the newest `keep` releases of each profile and those with a reason to stay.

    Raises InputError if nodes.yaml, which may pin releases, is invalid.
    """
    with changing(tree, ui, removing=True):
        there = find_releases(tree)
        usage = find_usage(tree, days=caution.days, whole=not dry_run)
        for doubt in usage.doubts:
            ui.warn(f"keeping every release: {doubt}")
        reasons = {**find_returns(tree, there), **find_reasons(tree, caution, usage)}
        old = beyond(there, keep)
        going = [release for release in old if release not in reasons]
        loose = [left for left in find_parts(tree) if left not in there]
        if not dry_run:
            with ui.step("Removing old releases"):
                remove_releases(tree, going, loose)
                drop_unshared(tree)
                drop_unfinished(tree)
    kept = tuple((release, reasons[release].what) for release in old if release in reasons)
    return CollectedReleases(tuple(going), tuple(loose), kept)


def beyond(releases: Sequence[ReleaseName], keep: int) -> list[ReleaseName]:
    """Those that are not among the newest `keep` of their profile; `releases` oldest first."""
    profiles = dict.fromkeys(release.profile for release in releases)
    groups = ([r for r in releases if r.profile == profile] for profile in profiles)
    return [release for group in groups for release in group[:-keep]]


def find_returns(tree: Tree, there: Sequence[ReleaseName]) -> dict[ReleaseName, Reason]:
    """The release of each profile that a rollback would go to."""
    profiles = dict.fromkeys(release.profile for release in there)
    found = ((profile, find_previous(tree, profile)) for profile in profiles)
    why = Reason("a rollback would return to it", "")
    return {ReleaseName(profile, version): why for profile, version in found if version}


def find_reasons(tree: Tree, caution: Caution, usage: Usage) -> dict[ReleaseName, Reason]:
    """Every release that must stay, with the first reason that applies."""
    check_channels(tree)  # nobody knows which release a damaged one needs
    clients = () if caution.strangers else usage.clients
    pinned = {ReleaseName(node.profile, node.version): node.name for node in load_nodes(tree).nodes}
    recent = left_lately(tree, caution.boot_minutes)
    found: dict[ReleaseName, Reason] = {}
    for release in find_releases(tree):
        reasons = chain(
            find_users(tree, release, caution, usage),
            find_marks(tree, release, pinned.get(release, "")),
            just_left(caution) if release in recent else (),
            find_possible_users(usage, clients),
        )
        if why := next(reasons, None):
            found[release] = why
    return found


def find_users(
    tree: Tree, release: ReleaseName, caution: Caution, usage: Usage
) -> Iterator[Reason]:
    """Channels that point to it, nodes that run it, and machines that claim to."""
    if channels := find_channels(tree, release):
        name = release.profile
        hint = f"move the channel with imagebuilder publish, promote or rollback {name}; if no "
        hint += (
            f"node boots {name} any more, remove its links in {tree.channel(name, STABLE).parent}"
        )
        yield Reason(f"it is {' and '.join(channels)}", hint)
    days = f"{caution.days} days"
    if users := usage.used.get(release):
        hint = f"boot another release there; a node counts for {days} after its last sign"
        yield Reason(f"in use by {list_names(users)}", hint)
    if users := usage.claimed.get(release):
        hint = f"such a report counts for {days}; if none of these machines is yours, remove "
        yield Reason(f"in use by {list_names(users)}, without proof", f"{hint}{tree.strangers}")


def find_marks(tree: Tree, release: ReleaseName, node: str) -> Iterator[Reason]:
    """`node` is one that nodes.yaml pins to it, or empty."""
    if node:
        hint = f"change that with imagebuilder nodes set {node}"
        yield Reason(f"node {node} is pinned to it", hint)
    if tree.kept(release).exists():
        yield Reason("it is kept", f"run imagebuilder keep {release} --off")
    if is_under_test(tree, release):
        yield Reason("it is being tested", "wait until imagebuilder test has finished")


def just_left(caution: Caution) -> Iterator[Reason]:
    """A channel pointed to it a moment ago."""
    hint = f"wait {caution.boot_minutes:g} minutes: by then a node that runs it has reported it"
    yield Reason("a node may be booting it now", hint)


def find_possible_users(usage: Usage, clients: Sequence[str]) -> Iterator[Reason]:
    """NFS clients that never reported their release, and records that may be incomplete."""
    if clients:
        hint = "use --ignore-unknown-clients if they use other exports, or wait until they are gone"
        yield Reason(f"NFS clients that never reported may use it: {', '.join(clients)}", hint)
    yield from (Reason(doubt.what, doubt.hint) for doubt in usage.doubts)


def left_lately(tree: Tree, minutes: float) -> set[ReleaseName]:
    """The releases that a channel stopped pointing to in the last `minutes`."""
    limit = datetime.now(UTC) - timedelta(minutes=minutes)
    events = read_tail(tree.journal)
    return {
        ReleaseName(event.profile, event.previous)
        for event in events
        if event.previous and is_since(event.time, limit)
    }


def find_parts(tree: Tree) -> list[ReleaseName]:
    """Every name that has a root or reports, even without a release."""
    tops = (tree.roots, tree.path / "reports")
    found = {
        ReleaseName(p, v) for top in tops for p in folders_in(top) for v in folders_in(top / p)
    }
    return sorted({*found, *find_shared(tree)})


def remove_releases(
    tree: Tree, releases: Sequence[ReleaseName], left: Sequence[ReleaseName]
) -> None:
    """Remove releases with all their files, and leftovers of others; prune the repository."""
    with workplace(tree.path, new_id("remove")) as work:
        for number, release in enumerate([*releases, *left]):
            if release in releases:
                append(tree, Event(UNPUBLISH, release.profile, release.version))
            for name, path in (
                (f"{number}.http", tree.release(release)),
                (f"{number}.root", tree.root(release)),
                (f"{number}.reports", tree.reports(release)),
            ):
                set_aside(path, work / name)
            for path in (
                tree.shared_squashfs(release),
                tree.verified(release),
                tree.kept(release),
            ):
                path.unlink(missing_ok=True)
            for lock in (tree.lock(f"release-{release}"), lock_of_tests(tree, release)):
                lock.unlink(missing_ok=True)
    if Store(tree.repo).is_there():
        drop_unneeded(tree)


def drop_unfinished(tree: Tree) -> None:
    """Remove unfinished reports and records of killed commands, not those being written."""
    for top in matching(tree.path / "reports", "*/*"):
        if top.is_dir():
            with file_lock(top / LOCK):
                sweep(top)
    for path in matching(tree.path / "verified", "*/.*.json.new"):
        remove_unfinished(path)


def set_aside(path: Path, to: Path) -> None:
    """Move a folder into the work folder, if it exists."""
    if path.is_dir():
        move_away(path, to)


def keep_release(tree: Tree, name: str, ui: Ui, *, off: bool = False) -> ReleaseName:
    """Mark a release so that gc keeps it, or remove the mark."""
    with changing(tree, ui), file_lock(tree.lock("kept")):
        release = find_release(tree, name)
        mark = tree.kept(release)
        if mark.exists() is not off:
            return release
        append(tree, Event(UNKEEP if off else KEEP, release.profile, release.version))
        if off:
            mark.unlink()
        else:
            make_folder(mark.parent)
            mark.touch(0o644)
        sync(mark.parent)
    return release
