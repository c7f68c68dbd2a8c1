# SPDX-License-Identifier: Apache-2.0
"""List the releases of a tree with their channels, sizes, ages and users."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from imagebuilder.digest import Json
from imagebuilder.errors import Fault
from imagebuilder.image.types import find_image
from imagebuilder.nodes.evidence.usage import Usage, find_usage, list_names
from imagebuilder.nodes.references import find_version
from imagebuilder.publish.channel.standing import release_standing
from imagebuilder.publish.find import find_channels, find_releases
from imagebuilder.publish.journal import Event, find_moves, read_tail
from imagebuilder.publish.release.content import DamagedError, check_release
from imagebuilder.report.standing import Standing, State
from imagebuilder.rootkind import Format, name_of
from imagebuilder.tree import STABLE, ReleaseName, Tree
from imagebuilder.ui import Ui, format_size


@dataclass(frozen=True)
class ListedRelease:
    """One release; `published` in seconds since 1970, sizes in bytes.

    `size` is that of the root, `files` that of what a web server sends, `formats` the formats its
    root is also packed in, `standing` the result of its boot tests, `forced` the move that made it
    stable without one, `nodes` the nodes that run it.
    """

    release: ReleaseName
    channels: tuple[str, ...]
    published: int
    size: int
    files: int
    formats: tuple[Format, ...]
    kept: bool
    standing: Standing
    forced: Event | None
    nodes: tuple[str, ...]

    @property
    def is_forced(self) -> bool:
        """Whether it became stable without a boot test, and none has passed since."""
        return self.forced is not None and self.standing.state is not State.PASSED

    @property
    def tested(self) -> str:
        """The result of its boot tests for people, and whether it was promoted without one."""
        word = TESTED[self.standing.state]
        if self.standing.machine not in ("", platform.node()):  # it came with the release
            word += f", {self.standing.machine} {self.standing.time[:16].replace('T', ' ')}"
        if not self.is_forced:
            return word
        return f"{'no' if word == '-' else word}, forced"

    def row(self) -> tuple[str, ...]:
        return (
            str(self.release),
            ", ".join(self.channels) or "-",
            time.strftime("%Y-%m-%d %H:%M", time.localtime(self.published)),
            format_size(self.size),
            format_size(self.files),
            self.tested,
            "yes" if self.kept else "-",
            list_names(self.nodes) or "-",
        )

    def as_json(self) -> dict[str, Json]:
        return {
            "profile": self.release.profile,
            "version": self.release.version,
            "channels": list(self.channels),
            "published": datetime.fromtimestamp(self.published, UTC).isoformat(),
            "root-size": self.size,
            "http-size": self.files,
            "formats": list(self.formats),
            "kept": self.kept,
            "tested": self.standing.tested,
            "standing": str(self.standing.state),
            "report": self.standing.report or None,
            "tested-on": self.standing.machine or None,
            "tested-at": self.standing.time or None,
            "untested": self.forced.reason if self.forced else None,
            "nodes": list(self.nodes),
        }


TESTED = {
    State.PASSED: "yes",
    State.FAILED: "failed",
    State.UNTESTED: "-",
    State.OTHER_BYTES: "other bytes",
    State.OTHER_ROOT: "other root",
}
HEADERS = ("release", "channels", "published", "root", "http", "tested", "kept", "in use by")


def list_releases(tree: Tree, profile: str = "", usage: Usage | None = None) -> list[ListedRelease]:
    """Every release of one profile or of all, oldest first, with its users in `usage` or now."""
    usage = usage or find_usage(tree)
    forced = find_forced(tree)
    return [
        describe(tree, release, usage.users(release), forced.get(release))
        for release in find_releases(tree, profile)
    ]


def find_forced(tree: Tree) -> dict[ReleaseName, Event]:
    """The releases whose last move to stable had no boot test, with that move."""
    events = read_tail(tree.journal)
    found: dict[ReleaseName, Event] = {}
    for profile in dict.fromkeys(event.profile for event in events):
        now = find_version(tree, profile, STABLE)
        for move in find_moves(events, profile, STABLE, now):
            if move.report or move.reason:  # a rollback needs neither
                found[ReleaseName(profile, move.version)] = move
    return {release: move for release, move in found.items() if move.reason}


def tell_forced(listed: Sequence[ListedRelease], ui: Ui) -> None:
    """Warn about every release that is stable without a boot test: it is easily forgotten."""
    for release in listed:
        if STABLE in release.channels and release.is_forced and release.forced:
            move = release.forced
            since = f"has been stable without a boot test since {move.time[:10]}"
            ui.warn(f"{release.release} {since}: {move.reason} ({move.by})")


def describe(
    tree: Tree, release: ReleaseName, nodes: tuple[str, ...], forced: Event | None
) -> ListedRelease:
    """One release.  With a damaged manifest its root has 0 bytes; promote reports the damage."""
    folder = tree.release(release)
    image = find_image(folder)
    return ListedRelease(
        release=release,
        channels=find_channels(tree, release),
        published=int(tree.published(release)),
        size=image.root.size if image else 0,
        files=sum(path.stat().st_size for path in folder.iterdir()),
        formats=tuple(packed for packed in Format if (folder / name_of(packed)).is_file()),
        kept=tree.kept(release).exists(),
        standing=release_standing(tree, release),
        forced=forced,
        nodes=nodes,
    )


def verify_releases(tree: Tree, ui: Ui, profile: str = "") -> int:
    """Read every byte of every release and its root; returns the number of releases.

    Raises DamagedError that names every file that differs from what was published.
    """
    faults: list[Fault] = []
    releases = find_releases(tree, profile)
    for release in releases:
        with ui.step(f"Verifying {release}") as step:
            found = find_damages(tree, release)
            step.remark(f"{len(found)} damaged" if found else "intact")
            faults.extend(found)
    if faults:
        raise DamagedError.of(faults)
    return len(releases)


def find_damages(tree: Tree, release: ReleaseName) -> tuple[Fault, ...]:
    """What is wrong with a release.  Reads every byte of it."""
    try:
        check_release(tree, release, full=True)
    except DamagedError as error:
        return error.faults
    return ()
