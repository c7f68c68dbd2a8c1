# SPDX-License-Identifier: Apache-2.0
"""Channels: the only part of a tree that changes.  A move renames one symlink."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from imagebuilder.digest import Json
from imagebuilder.errors import InputError, WorkError
from imagebuilder.files import make_folder, point_link
from imagebuilder.locks import file_lock
from imagebuilder.nodes.references import find_version, read_channel
from imagebuilder.publish.channel.gate import (
    NOT_NEEDED,
    Passage,
    check_reason,
    note_unneeded,
    pass_gate,
    was_stable,
)
from imagebuilder.publish.find import changing, find_profile, find_release, find_releases
from imagebuilder.publish.journal import (
    PROMOTE,
    ROLLBACK,
    SET,
    TAIL,
    Event,
    append,
    find_history,
    read_tail,
)
from imagebuilder.publish.release.content import check_release
from imagebuilder.publish.release.packed import restore_share
from imagebuilder.publish.space import space_needed
from imagebuilder.tree import CANDIDATE, CHANNELS, STABLE, ReleaseName, Tree
from imagebuilder.ui import Ui

DAMAGED = "?"  # no version has this name


@dataclass(frozen=True)
class Moved:
    """A channel now points to `version`; `previous` is where it pointed before (empty: nowhere).

    `passage` is why the release may be stable.
    """

    profile: str
    channel: str
    version: str
    previous: str
    passage: Passage = NOT_NEEDED

    def as_json(self) -> dict[str, Json]:
        return {
            "profile": self.profile,
            "channel": self.channel,
            "version": self.version,
            "previous": self.previous or None,
            "report": self.passage.report or None,
            "untested": self.passage.reason or None,
        }

    def render(self) -> str:
        name = f"{self.profile}: {self.channel}"
        if self.version == self.previous:
            return f"{name} is already {self.version}"
        was = f"was {self.previous}" if self.previous else "its first release"
        return f"{name} is now {self.version}, {was}{self.passage}"


def check_channel(channel: str) -> None:
    """Raise InputError for an unknown channel."""
    if channel not in CHANNELS:
        raise InputError(f"unknown channel {channel!r}", hint=f"use one of: {', '.join(CHANNELS)}")


@contextmanager
def moving(tree: Tree, profile: str) -> Iterator[None]:
    """Allow one move of a profile's channels at a time."""
    with file_lock(tree.lock(f"channel-{profile}")):
        yield


def point(
    tree: Tree, release: ReleaseName, channel: str, event: str, passage: Passage = NOT_NEEDED
) -> Moved:
    """Point a channel to a release; the caller is inside moving() and has checked the release.

    A move to stable has a `passage`.
    """
    pointer = read_channel(tree, release.profile, channel)
    link = tree.channel(release.profile, channel)
    if pointer.fault and not link.is_symlink():  # only a link can be replaced by a link
        raise WorkError.of([pointer.fault])
    previous = pointer.version
    if previous != release.version:
        make_folder(link.parent)
        append(
            tree,
            Event(event, release.profile, release.version, channel, previous,
                  passage.report, passage.reason),
        )  # fmt: skip
        point_link(link, f"../../http/releases/{release.profile}/{release.version}")
    return Moved(release.profile, channel, release.version, previous, passage)


def promote(tree: Tree, name: str, ui: Ui, *, untested: str = "") -> Moved:
    """Make `profile@version`, or the candidate of `profile`, stable.

    `untested` is the reason to do so without a passed boot test.  Raises InputError if the release
    does not exist, DamagedError if it is damaged, WorkError if none of its boot tests passed.
    """
    check_reason(untested)
    profile, _, version = name.partition("@")
    find_profile(tree, profile)
    with space_needed(tree.path), changing(tree, ui), moving(tree, profile):
        if not version and (fault := read_channel(tree, profile, CANDIDATE).fault):
            raise WorkError.of([fault])
        version = version or find_version(tree, profile, CANDIDATE)
        if not version:
            raise InputError(
                f"{profile} has no candidate",
                hint=f"run imagebuilder promote {profile}@VERSION; imagebuilder releases {profile} "
                "lists the versions",
            )
        release = find_release(tree, f"{profile}@{version}")
        restore_share(tree, release, ui)
        check_release(tree, release)
        passage = pass_gate(tree, release, ui, untested=untested)
        return point(tree, release, STABLE, PROMOTE, passage)


def rollback(tree: Tree, profile: str, ui: Ui, *, to: str = "", untested: str = "") -> Moved:
    """Move stable of `profile` back to the previous release, or to the version `to`.

    A second rollback goes further back.  Raises InputError if there is no earlier release, and
    what promote() raises for a version that never was stable.
    """
    check_reason(untested)
    if "@" in profile:
        raise InputError("is a version, not a profile", where=profile, hint="use --to VERSION")
    find_profile(tree, profile)
    with space_needed(tree.path), changing(tree, ui), moving(tree, profile):
        pointer = read_channel(tree, profile, STABLE)
        if pointer.fault and not to:
            raise WorkError.of([pointer.fault])
        # A damaged channel has no version, but it is not empty either: its last move took place.
        now = DAMAGED if pointer.fault else pointer.version
        if to:
            release = find_release(tree, f"{profile}@{to}")
            event = ROLLBACK if release.version in find_past(tree, profile) else SET
        elif earlier := find_previous(tree, profile):
            release, event = ReleaseName(profile, earlier), ROLLBACK
        else:
            raise no_earlier_release(tree, profile, now)
        restore_share(tree, release, ui)
        check_release(tree, release)
        passage = NOT_NEEDED
        if not to or was_stable(read_tail(tree.journal), release, now):
            note_unneeded(untested, "it was stable before", ui)
        else:
            passage = pass_gate(tree, release, ui, untested=untested)
        return point(tree, release, STABLE, event, passage)


def no_earlier_release(tree: Tree, profile: str, now: str) -> InputError:
    others = [r.version for r in find_releases(tree, profile) if r.version != now]
    return InputError(
        f"no release that was stable before {now} still exists"
        if now
        else "the profile has no stable release",
        where=profile,
        hint=f"name one with --to VERSION; available: {', '.join(others)}"
        if others
        else f"run imagebuilder publish {profile} to make another release",
    )


def find_previous(tree: Tree, profile: str) -> str:
    """The version a rollback goes to: the last earlier one that still exists; empty if none."""
    now = find_version(tree, profile, STABLE)
    there = {release.version for release in find_releases(tree, profile)} - {now}
    for most in (TAIL, 0):  # the end of the journal is nearly always enough
        history = find_past(tree, profile, most)
        if found := [version for version in history[:-1] if version in there]:
            return found[-1]
    return ""


def find_past(tree: Tree, profile: str, most: int = 0) -> list[str]:
    """The history of stable, oldest first, in the last `most` bytes of the journal or all of it."""
    now = find_version(tree, profile, STABLE)
    return find_history(read_tail(tree.journal, most), profile, STABLE, now)
