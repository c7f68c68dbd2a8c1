# SPDX-License-Identifier: Apache-2.0
"""The root of a release as one file: which formats it needs, packing, and its name for NFS.

    http/releases/PROFILE/VERSION/root.squashfs, root.erofs
    roots/PROFILE/VERSION.squashfs      a hard link to root.squashfs

Only roots/ is exported.  The link is made before the release has root.squashfs and removed after
it; the next publish replaces a link that a killed command left, or gc removes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from imagebuilder.digest import digest_of_file
from imagebuilder.files import link_in
from imagebuilder.folders import folders_in
from imagebuilder.image.formats import check_packer, pack_root
from imagebuilder.image.types import Image
from imagebuilder.nodes.evidence.usage import known_nodes
from imagebuilder.publish.release.content import SQUASHFS, is_shared
from imagebuilder.rootkind import FORMAT_OF, Format, name_of
from imagebuilder.store.workplace import new_id, workplace
from imagebuilder.tree import SHARED, ReleaseName, Tree
from imagebuilder.ui import Ui


def needed_formats(tree: Tree, image: Image, requested: Iterable[Format]) -> tuple[Format, ...]:
    """The formats to pack a root in: those requested, the image's own and its nodes'.

    Raises HostError if a program for one is missing.
    """
    nodes = known_nodes(tree).nodes
    kinds = {image.boot.root, *(n.root for n in nodes if n.profile == image.profile)}
    wanted = {*requested, *(FORMAT_OF[kind] for kind in kinds if kind in FORMAT_OF)}
    needed = tuple(packed for packed in Format if packed in wanted)
    for packed in needed:
        check_packer(packed)
    return needed


def pack(
    root: Path, staged: Path, image: Image, formats: Iterable[Format], ui: Ui
) -> dict[str, str]:
    """Pack `root` beside the other files, for all to read; names and sha256."""
    sums: dict[str, str] = {}
    for packed in formats:
        target = staged / name_of(packed)
        with ui.step(f"Packing {target.name}"):
            pack_root(root, target, packed, epoch=image.epoch, commit=image.root.commit)
            target.chmod(0o644)
            sums[target.name] = digest_of_file(target)
    return sums


def share(tree: Tree, release: ReleaseName, source: Path, work: Path) -> None:
    """Give the squashfs `source` its name below roots/, replacing whatever has it."""
    place = tree.shared_squashfs(release)
    link_in(source, place, work / place.name)


def restore_share(tree: Tree, release: ReleaseName, ui: Ui) -> None:
    """Share root.squashfs of a release again if its link is lost, or was never made."""
    source = tree.release(release) / SQUASHFS
    if not source.is_file() or is_shared(tree, release):
        return
    with ui.step(f"Sharing {SQUASHFS}"), workplace(tree.path, new_id("share")) as work:
        share(tree, release, source, work)


def find_shared(tree: Tree) -> list[ReleaseName]:
    """The releases that have a squashfs below roots/, even if the release is gone."""
    return [
        ReleaseName(profile, path.name.removesuffix(SHARED))
        for profile in folders_in(tree.roots)
        for path in sorted((tree.roots / profile).glob(f"[!.]*{SHARED}"))
        if path.is_file()
    ]


def drop_unshared(tree: Tree) -> None:
    """Remove the squashfs below roots/ of releases that have none, or are gone."""
    for release in find_shared(tree):
        if not (tree.release(release) / SQUASHFS).exists():
            tree.shared_squashfs(release).unlink()
