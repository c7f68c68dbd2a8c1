# SPDX-License-Identifier: Apache-2.0
"""Find the releases of a tree by name, and where its channels point."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from imagebuilder.errors import InputError, WorkError, one_line
from imagebuilder.folders import folders_in
from imagebuilder.locks import file_lock
from imagebuilder.nodes.files import read_offers, refresh_menu
from imagebuilder.nodes.references import find_channel_faults, find_offers, find_version
from imagebuilder.phrases import suggest
from imagebuilder.publish.space import keep_reserve, use_reserve
from imagebuilder.rights import check_enterable, check_writable
from imagebuilder.tree import CHANNELS, ReleaseName, Tree, check_folders, close_tree
from imagebuilder.ui import Ui


def open_tree(path: Path) -> Tree:
    """The existing tree; one of an older version is closed to other users.

    Raises what find_tree() raises, and HostError if only root may read it.
    """
    tree = find_tree(path)
    with contextlib.suppress(OSError):
        close_tree(tree)
    for folder in (tree.repo, tree.roots):
        check_enterable(folder)
    return tree


def find_tree(path: Path) -> Tree:
    """The existing tree, for what every user may read.

    Raises InputError if nothing was ever published, HostError for a link in place of a folder.
    """
    tree = Tree(path.absolute())
    check_folders(tree)
    if not (tree.http / "releases").is_dir():
        raise InputError(
            "the netboot tree does not exist",
            where=os.fspath(tree.path),
            hint="run imagebuilder publish PROFILE to make it, or name another with --tree",
        )
    return tree


def find_releases(tree: Tree, profile: str = "") -> list[ReleaseName]:
    """Every release of one profile or of all, in the order of publication."""
    top = tree.http / "releases"
    profiles = [name for name in folders_in(top) if profile in ("", name)]
    found = [ReleaseName(name, version) for name in profiles for version in folders_in(top / name)]
    return sorted(found, key=lambda r: (r.profile, tree.published(r), r.version))


def find_profile(tree: Tree, profile: str) -> list[ReleaseName]:
    """The releases of a profile, at least one.  Raises InputError."""
    if profile and (there := find_releases(tree, profile)):
        return there
    named = one_line(profile)
    publish = f"run imagebuilder publish {named} to make one; imagebuilder releases lists all"
    near = suggest(profile, {release.profile for release in find_releases(tree)}, closest=True)
    raise InputError(f"profile {named} has no release in {tree.path}", hint=near or publish)


def find_release(tree: Tree, name: str) -> ReleaseName:
    """The release `profile@version`; a unique start or part of the version is enough.

    Raises InputError.
    """
    profile, _, version = name.partition("@")
    there = [release.version for release in find_profile(tree, profile)]
    if not version:
        raise InputError(
            "names no version",
            where=name,
            hint=f"write {profile}@VERSION; available: {', '.join(there)}",
        )
    fitting = [v for v in there if v == version] or [v for v in there if version in v]
    if len(fitting) != 1:
        what = "more than one release" if fitting else "no release"
        raise InputError(
            f"{what} of {profile} matches {version!r}",
            hint=f"available: {', '.join(fitting or there)}",
        )
    return ReleaseName(profile, fitting[0])


def check_channels(tree: Tree, profile: str = "") -> None:
    """Raise WorkError for channels, of one profile or of all, that point to no release of it."""
    if faults := find_channel_faults(tree, profile):
        raise WorkError.of(faults)


def find_channels(tree: Tree, release: ReleaseName) -> tuple[str, ...]:
    return tuple(c for c in CHANNELS if find_version(tree, release.profile, c) == release.version)


@contextmanager
def changing(tree: Tree, ui: Ui, *, removing: bool = False) -> Iterator[None]:
    """Keep releases from being removed while others are added or used, and the other way round.

    Writes the boot menu again if a profile was added or removed.
    """

    def waiting() -> None:
        ui.note(f"waiting for a command that {'uses' if removing else 'removes'} releases")

    check_writable(tree.path)
    with file_lock(tree.lock("gc"), shared=not removing, waiting=waiting):
        if removing:
            use_reserve(tree)
        try:
            yield
            # Compared with the file: a killed command may have left an old menu.
            if find_offers(tree) != read_offers(tree):
                refresh_menu(tree, ui)
        finally:
            keep_reserve(tree)
