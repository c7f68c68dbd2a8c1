# SPDX-License-Identifier: Apache-2.0
"""What a tree has: its releases by name, and where its channels point."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from imagebuilder.errors import InputError, WorkError
from imagebuilder.locks import file_lock
from imagebuilder.nodes.files import read_offers, refresh_menu
from imagebuilder.nodes.references import find_channel_faults, find_offers, find_version
from imagebuilder.rights import check_enterable, check_writable
from imagebuilder.tree import CHANNELS, ReleaseName, Tree, check_folders, close_tree
from imagebuilder.ui import Ui


def open_tree(path: Path) -> Tree:
    """The tree that is there; an older one is closed to others.

    Raises what find_tree() raises, and HostError where only root may look.
    """
    tree = find_tree(path)
    with contextlib.suppress(OSError):
        close_tree(tree)
    for folder in (tree.repo, tree.roots):
        check_enterable(folder)
    return tree


def find_tree(path: Path) -> Tree:
    """The tree that is there, for what everybody may read.

    Raises InputError when nothing was ever published, HostError for a link in a folder's place.
    """
    tree = Tree(path.absolute())
    check_folders(tree)
    if not (tree.http / "releases").is_dir():
        raise InputError(
            "there is no netboot tree",
            where=os.fspath(tree.path),
            hint="imagebuilder publish PROFILE makes it; --tree names another place",
        )
    return tree


def folders(path: Path) -> list[str]:
    """The names of the folders in a folder, sorted; none when it is not there."""
    if not path.is_dir():
        return []
    return sorted(p.name for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))


def find_releases(tree: Tree, profile: str = "") -> list[ReleaseName]:
    """Every release, of one profile or of all, in the order in which they were published."""
    top = tree.http / "releases"
    profiles = [name for name in folders(top) if profile in ("", name)]
    found = [ReleaseName(name, version) for name in profiles for version in folders(top / name)]
    return sorted(found, key=lambda r: (r.profile, tree.published(r), r.version))


def find_profile(tree: Tree, profile: str) -> list[ReleaseName]:
    """The releases of a profile, at least one.  Raises InputError."""
    if profile and (there := find_releases(tree, profile)):
        return there
    raise InputError(
        f"no release of profile {profile} in {tree.path}",
        hint=f"imagebuilder publish {profile} makes one; imagebuilder releases lists them",
    )


def find_release(tree: Tree, name: str) -> ReleaseName:
    """The release `profile@version`; a unique start or part of the version is enough.

    Raises InputError.
    """
    profile, _, version = name.partition("@")
    there = [release.version for release in find_profile(tree, profile)]
    if not version:
        raise InputError(
            "which version?",
            where=name,
            hint=f"write {profile}@VERSION; there are: {', '.join(there)}",
        )
    fitting = [v for v in there if v == version] or [v for v in there if version in v]
    if len(fitting) != 1:
        what = "more than one release" if fitting else "no release"
        raise InputError(
            f"{what} of {profile} fits {version!r}",
            hint=f"there are: {', '.join(fitting or there)}",
        )
    return ReleaseName(profile, fitting[0])


def check_channels(tree: Tree, profile: str = "") -> None:
    """Raise WorkError for channels, of a profile or all, that lead to no release of their own."""
    if faults := find_channel_faults(tree, profile):
        raise WorkError.of(faults)


def find_channels(tree: Tree, release: ReleaseName) -> tuple[str, ...]:
    return tuple(c for c in CHANNELS if find_version(tree, release.profile, c) == release.version)


@contextmanager
def changing(tree: Tree, ui: Ui, *, removing: bool = False) -> Iterator[None]:
    """While something is added or pointed to nothing is removed, and the other way round.

    The menu follows when a profile comes or goes.
    """

    def waiting() -> None:
        other = "a command that uses releases" if removing else "a command that removes releases"
        ui.note(f"{other} is running: waiting for it")

    check_writable(tree.path)
    with file_lock(tree.lock("gc"), shared=not removing, waiting=waiting):
        yield
        # Not the state before: a command that was killed may have left the menu behind.
        if find_offers(tree) != read_offers(tree):
            refresh_menu(tree, ui)
