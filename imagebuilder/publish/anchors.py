# SPDX-License-Identifier: Apache-2.0
"""What binds SHA256SUMS of a release: the folder, manifest.json, the journal, the root's ref.

SHA256SUMS alone proves little: a line that is missing takes its file out of every check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from imagebuilder.decode import find_object
from imagebuilder.digest import Json, digest_of_file
from imagebuilder.files import read_text
from imagebuilder.publish.journal import PUBLISH, read_tail
from imagebuilder.tree import Tree

SUMS = "SHA256SUMS"
ROOTS = "root"  # refs of the tree's repository below which the roots' commits are
# Where manifest.json has the sha256 of a file.
RECORDED = {
    "vmlinuz": ("kernel", "vmlinuz", "sha256"),
    "initrd.img": ("kernel", "initrd", "sha256"),
}


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
    manifest = find_object(folder / "manifest.json")
    for name, keys in RECORDED.items():
        if sums.get(name) != (recorded := look_up(manifest, *keys)):
            yield folder / SUMS, f"has {sums.get(name)} for {name}, manifest.json has {recorded}"
    written = {
        event.sums
        for event in read_tail(tree.journal)
        if event.event == PUBLISH and (event.profile, event.version) == (profile, version)
    } - {""}
    if written and digest_of_file(folder / SUMS) not in written:
        yield folder / SUMS, "is not what imagebuilder publish wrote"
    commit = read_commit_of(tree, profile, version)
    if commit != (recorded := look_up(manifest, "root", "commit")):
        what = f"has commit {commit or 'nothing'}, manifest.json has {recorded}"
        yield ref_of(tree, profile, version), what


def look_up(value: Json, *keys: str) -> Json:
    """What objects inside each other have; None where one lacks its key."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def ref_of(tree: Tree, profile: str, version: str) -> Path:
    """The file that names the commit of a root."""
    return tree.repo / "refs/heads" / ROOTS / profile / version


def read_commit_of(tree: Tree, profile: str, version: str) -> str:
    """The commit of a release's root; empty when it cannot be read."""
    try:
        return read_text(ref_of(tree, profile, version)).strip()
    except OSError:
        return ""
