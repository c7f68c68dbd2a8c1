# SPDX-License-Identifier: Apache-2.0
"""A whole image that tests change part by part, and its manifest as a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from imagebuilder.bootfiles import EARLY, INITRD, KERNEL
from imagebuilder.image.assemble import boot_file
from imagebuilder.image.types import (
    BootFile,
    Image,
    ImageBoot,
    ImageKernel,
    ImagePackage,
    ImageRoot,
    encode_image,
)

IMAGE = Image(
    profile="demo",
    version="1",
    epoch=1,
    description="A small image",
    base="debian-trixie",
    distribution="debian",
    suite="trixie",
    architecture="amd64",
    overlays=(),
    hardware=(),
    boot=ImageBoot("nfs", ("ip=dhcp", "quiet")),
    root=ImageRoot("c1" * 32, "l1", 1000),
    kernel=ImageKernel("6.12.1", BootFile("k1", 1), BootFile("i1", 1)),
    sources=(),
    layers=(),
    packages=(),
    wheels=(),
)


def packages_of(versions: Mapping[str, str]) -> tuple[ImagePackage, ...]:
    """Packages with these versions by `name` or `name:architecture`."""
    found = ((*key.partition(":"), version) for key, version in versions.items())
    return tuple(
        ImagePackage(name, version, architecture or "amd64", "", "debian", "base", 1000)
        for name, _, architecture, version in found
    )


def put_manifest(folder: Path, image: Image) -> None:
    """Write the manifest of an image beside what iPXE fetches, whose sums it gets."""
    files = {
        part: boot_file(folder / name)
        for part, name in (("vmlinuz", KERNEL), ("early", EARLY), ("initrd", INITRD))
        if (folder / name).exists()
    }
    kernel = ImageKernel(image.kernel.release, **files)
    (folder / "manifest.json").write_text(encode_image(replace(image, kernel=kernel)))
