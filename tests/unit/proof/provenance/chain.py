# SPDX-License-Identifier: Apache-2.0
"""A small root with packages, an overlay's files and layers, and what is recorded of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from imagebuilder.families.shipped import Checksum, ChecksumKind, ShippedFile
from imagebuilder.image.types import Image, ImageLayer
from imagebuilder.proof.provenance.read import LayerHistory, Placed, Records
from tests.images import IMAGE, packages_of

BASE, PACKAGES, SITE = "base debian-trixie", "packages tool", "configure site"
Change = Callable[[Path], object]


def layer(title: str, step: str, **inputs: object) -> ImageLayer:
    """A layer as a manifest has it."""
    digest = hashlib.sha256(title.encode()).hexdigest()
    return ImageLayer(title, digest, {"step": step, **inputs}, 0, 0)  # type: ignore[dict-item]


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


IMAGE_OF_LAYERS: Image = replace(
    IMAGE,
    packages=packages_of({"tool": "2.0"}),
    layers=(
        layer(BASE, "bootstrap 2.2"),
        layer(PACKAGES, "packages 1.2"),
        layer("initrd", "initrd 2", files={"/etc/placed": "0644 root:root 0"}),
        layer(
            SITE,
            "config 1.2",
            files={
                "/etc/placed": f"0644 root:root {digest_of('placed')}",
                "/etc/link": "0777 root:root -> placed",
            },
        ),
    ),
)


def shipped(content: str, package: str = "tool") -> ShippedFile:
    """A file of a package that recorded its checksum."""
    value = hashlib.md5(content.encode(), usedforsecurity=False).hexdigest()
    return ShippedFile(package, Checksum(ChecksumKind.MD5, value))


def records_of(
    ships: dict[str, ShippedFile],
    placed: dict[str, Placed] | None = None,
    history: LayerHistory | None = None,
) -> Records:
    return Records(
        history=history or LayerHistory(BASE),
        shipped=ships,
        placed=placed or {},
        packages={"tool": "tool 2.0"},
        installing=frozenset((BASE, PACKAGES)),
    )
