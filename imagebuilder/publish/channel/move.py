# SPDX-License-Identifier: Apache-2.0
"""Channels: the one thing of a tree that changes.  A move is the renaming of one symlink."""

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
    NOT_ASKED,
    Passage,
    check_reason,
    pass_gate,
    tell_unneeded,
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
from imagebuilder.publish.release.packed import mend_share
from imagebuilder.publish.space import space_needed
from imagebuilder.tree import CANDIDATE, CHANNELS, STABLE, ReleaseName, Tree
from imagebuilder.ui import Ui

DAMAGED = "?"  # no version has this name


@dataclass(frozen=True)
class Moved:
    """A channel now points to `version`; `previous` is where it did (empty: nowhere).

    `passage` is why it may be stable.
    """

    profile: str
    channel: str
    version: str
    previous: str
    passage: Passage = NOT_ASKED

    def as_json(self) -> dict[str, Json]:
        """As a value for programs."""
        return {
            "profile": self.profile,
            "channel": self.channel,
            "version": self.version,
            "previous": self.previous or None,
            "report": self.passage.report or None,
            "untested": self.passage.reason or None,
        }

    def render(self) -> str:
        """As a sentence."""
        name = f"{self.profile}: {self.channel}"
        if self.version == self.previous:
            return f"{name} is {self.version} already"
        was = f"was {self.previous}" if self.previous else "the first one"
        return f"{name} is now {self.version}, {was}{self.passage}"


def check_channel(channel: str) -> None:
    """Raise InputError unless there is such a channel."""
    if channel not in CHANNELS:
        raise InputError(f"no channel {channel!r}", hint=f"there are: {', '.join(CHANNELS)}")


@contextmanager
def moving(tree: Tree, profile: str) -> Iterator[None]:
    """One move of a profile's channels at a time."""
    with file_lock(tree.lock(f"channel-{profile}")):
        yield


def point(
    tree: Tree, release: ReleaseName, channel: str, event: str, passage: Passage = NOT_ASKED
) -> Moved:
    """Let a channel point to a release; the caller holds moving() and knows that it is whole.

    For stable it has a `passage`.
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
    """Make `profile@version`, or what is candidate of `profile`, stable.

    `untested` is the reason to do so without a boot test that passed.  Raises InputError when
    there is no such release, DamagedError when it is not whole, WorkError when no boot test of it
    has passed.
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
                hint=f"imagebuilder promote {profile}@VERSION names one; imagebuilder releases "
                f"{profile} lists them",
            )
        release = find_release(tree, f"{profile}@{version}")
        mend_share(tree, release, ui)
        check_release(tree, release)
        passage = pass_gate(tree, release, ui, untested=untested)
        return point(tree, release, STABLE, PROMOTE, passage)


def rollback(tree: Tree, profile: str, ui: Ui, *, to: str = "", untested: str = "") -> Moved:
    """Let stable of `profile` point to what it pointed to before, or to the version `to`.

    A second rollback goes further back.  Raises InputError when there is nothing to go back to,
    and for a version that never was stable what promote() does.
    """
    check_reason(untested)
    if "@" in profile:
        raise InputError("names a version", where=profile, hint="write --to VERSION")
    find_profile(tree, profile)
    with space_needed(tree.path), changing(tree, ui), moving(tree, profile):
        pointer = read_channel(tree, profile, STABLE)
        if pointer.fault and not to:
            raise WorkError.of([pointer.fault])
        # Where a damaged one leads is no version, and not nowhere: its last move took place.
        now = DAMAGED if pointer.fault else pointer.version
        if to:
            release = find_release(tree, f"{profile}@{to}")
            event = ROLLBACK if release.version in find_past(tree, profile, STABLE) else SET
        elif earlier := find_previous(tree, profile, STABLE):
            release, event = ReleaseName(profile, earlier), ROLLBACK
        else:
            raise nowhere_to_go(tree, profile, now)
        mend_share(tree, release, ui)
        check_release(tree, release)
        passage = NOT_ASKED
        if not to or was_stable(read_tail(tree.journal), release, now):
            tell_unneeded(untested, "it was stable before", ui)
        else:
            passage = pass_gate(tree, release, ui, untested=untested)
        return point(tree, release, STABLE, event, passage)


def nowhere_to_go(tree: Tree, profile: str, now: str) -> InputError:
    """The error for a channel without a past."""
    others = [r.version for r in find_releases(tree, profile) if r.version != now]
    return InputError(
        f"no release was stable before {now} and still exists"
        if now
        else "there is no stable release",
        where=profile,
        hint=f"--to VERSION names one; there are: {', '.join(others)}"
        if others
        else f"imagebuilder publish {profile} makes another release",
    )


def find_previous(tree: Tree, profile: str, channel: str) -> str:
    """The version a rollback goes to: the last one before that still exists; empty for none."""
    now = find_version(tree, profile, channel)
    there = {release.version for release in find_releases(tree, profile)} - {now}
    for most in (TAIL, 0):  # its end tells nearly always
        history = find_history(read_tail(tree.journal, most), profile, channel, now)
        if found := [version for version in history[:-1] if version in there]:
            return found[-1]
    return ""


def find_past(tree: Tree, profile: str, channel: str) -> list[str]:
    """Every version in the history of a channel, oldest first."""
    now = find_version(tree, profile, channel)
    return find_history(read_tail(tree.journal), profile, channel, now)
