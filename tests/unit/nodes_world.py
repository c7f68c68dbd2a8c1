# SPDX-License-Identifier: Apache-2.0
"""A netboot tree with releases that are nothing but names, for tests about nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from imagebuilder.image.types import encode_image
from imagebuilder.tree import ReleaseName, Tree, make_tree
from tests.images import IMAGE

MAC1, MAC2 = "52:54:00:77:00:01", "52:54:00:77:00:02"


def node_tree(top: Path) -> Tree:
    """A tree with generic (v1 stable, v2 candidate), rx (v1, no channel) and a live system."""
    tree = make_tree(top / "tree")
    for profile, version in (("generic", "v1"), ("generic", "v2"), ("rx", "v1")):
        tree.release(ReleaseName(profile, version)).mkdir(parents=True)
        manifest = encode_image(replace(IMAGE, profile=profile, version=version))
        (tree.release(ReleaseName(profile, version)) / "manifest.json").write_text(manifest)
    move_channel(tree, "generic", "stable", "v1")
    move_channel(tree, "generic", "candidate", "v2")
    (tree.http / "live/ubuntu").mkdir()
    (tree.http / "live/ubuntu/boot.ipxe").touch()
    return tree


def move_channel(tree: Tree, profile: str, channel: str, version: str) -> None:
    """Point a channel to a version."""
    link = tree.channel(profile, channel)
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(f"../../http/releases/{profile}/{version}")


@dataclass(frozen=True)
class Packed:
    """What a cpio archive has under a name."""

    mode: int
    owner: int
    group: int
    content: bytes


def unpack(archive: bytes) -> Iterator[tuple[str, Packed]]:
    """The records of a newc archive, read as the kernel does."""
    place = 0
    while True:
        header = archive[place : place + 110]
        assert header[:6] == b"070701"
        fields = [int(header[at : at + 8], 16) for at in range(6, 110, 8)]
        size, name_size = fields[6], fields[11]
        name = archive[place + 110 : place + 109 + name_size].decode()
        if name == "TRAILER!!!":
            return
        start = (place + 110 + name_size + 3) & ~3
        yield name, Packed(fields[1], fields[2], fields[3], archive[start : start + size])
        place = (start + size + 3) & ~3
