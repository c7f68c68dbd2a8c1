# SPDX-License-Identifier: Apache-2.0
"""What binds SHA256SUMS of a release: the folder, manifest.json, the journal, the root's ref.

SHA256SUMS alone proves little: a line that is missing takes its file out of every check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from imagebuilder.digest import digest_of_file
from imagebuilder.files import read_text
from imagebuilder.image.types import find_image
from imagebuilder.publish.journal import PUBLISH, read_tail
from imagebuilder.tree import Tree

SUMS = "SHA256SUMS"
ROOTS = "root"  # refs of the tree's repository below which the roots' commits are


def find_unlisted(folder: Path, sums: Mapping[str, str]) -> Iterator[Path]:
    """What lies in the folder of a release and is not in its SHA256SUMS."""
    for path in sorted(folder.iterdir()):
        if path.name not in sums and path.name != SUMS:
            yield path


def find_unbound(
    tree: Tree, profile: str, version: str, sums: Mapping[str, str]
) -> Iterator[tuple[Path, str]]:
    """What contradicts `sums`, with where; its manifest.json matches its own sum."""
    folder = tree.release(profile, version)
    image = find_image(folder)
    if image is None:
        yield folder / "manifest.json", "is not the manifest of an image"
        return
    for name, recorded in image.sums.items():
        if sums.get(name) != recorded:
            yield folder / SUMS, f"has {sums.get(name)} for {name}, manifest.json has {recorded}"
    written = {
        event.sums
        for event in read_tail(tree.journal)
        if event.event == PUBLISH and (event.profile, event.version) == (profile, version)
    } - {""}
    if written and digest_of_file(folder / SUMS) not in written:
        yield folder / SUMS, "is not what imagebuilder publish wrote"
    commit = read_commit_of(tree, profile, version)
    if commit != image.root.commit:
        what = f"has commit {commit or 'nothing'}, manifest.json has {image.root.commit}"
        yield ref_of(tree, profile, version), what


def ref_of(tree: Tree, profile: str, version: str) -> Path:
    """The file that names the commit of a root."""
    return tree.repo / "refs/heads" / ROOTS / profile / version


def read_commit_of(tree: Tree, profile: str, version: str) -> str:
    """The commit of a release's root; empty when it cannot be read."""
    try:
        return read_text(ref_of(tree, profile, version)).strip()
    except OSError:
        return ""
