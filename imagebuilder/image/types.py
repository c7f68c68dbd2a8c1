# SPDX-License-Identifier: Apache-2.0
"""The Image box: what an image is made of, and its manifest, the JSON that it is read from.

A manifest is decoded once and never changed: releases are summed with it, so encoding what was
decoded gives the same bytes.  A part that manifests have had since a later version is None where a
manifest lacks it, and is then not written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import Field, JsonValue, StringConstraints

from imagebuilder.bootfiles import BOOT_FILES, KERNEL
from imagebuilder.decode import (
    FEW_VALUES,
    Amount,
    Epoch,
    JsonFile,
    Moment,
    Text,
    decode_box,
    parse_json,
    read_or_say,
)
from imagebuilder.errors import InputError
from imagebuilder.image.proof import ManifestProof
from imagebuilder.reasons import LayerRecord
from imagebuilder.recipe.expectations import Expectations
from imagebuilder.recipe.types import AllowedSecret, Grants, Hardware
from imagebuilder.rootkind import RootKind
from imagebuilder.store.repository import ImageRef, Store
from imagebuilder.tree import Name, Released

SLACK = 256 << 20  # bytes
HINT = "publish or build the image again; imagebuilder releases --verify shows what else is damaged"
# A part of a line for the kernel, or of a path.
Line = Annotated[str, StringConstraints(max_length=65536, pattern=r"^\P{Cc}*$")]
COMMIT = "[0-9a-f]{64}"
Commit = Annotated[str, StringConstraints(pattern=f"^{COMMIT}$")]


@dataclass(frozen=True)
class Account:
    name: str
    uid: int | None
    groups: tuple[str, ...]


@dataclass(frozen=True)
class Declared:
    """What an overlay declares, as the inputs of the step that configures it have it.

    A user is [uid, home, shell, groups, ...]; `units` go by what happens to them, such as `enable`.
    """

    groups: Mapping[str, JsonValue] = field(default_factory=dict)
    users: Mapping[str, Annotated[list[JsonValue], Field(min_length=4)]] = field(
        default_factory=dict
    )
    units: Mapping[str, tuple[Text, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class BootFile:
    """A file that iPXE fetches; `size` in bytes."""

    sha256: Text
    size: Amount


@dataclass(frozen=True)
class ImageKernel:
    """The kernel that nodes boot, and what it unpacks; `release` as uname(1) says it.

    `early` is what comes before the initrd (bootfiles.py), None if there is no such file.
    """

    release: Line
    vmlinuz: BootFile
    initrd: BootFile
    early: BootFile | None = None

    @property
    def files(self) -> dict[str, BootFile]:
        files = zip(BOOT_FILES, (self.vmlinuz, self.early, self.initrd), strict=True)
        return {name: file for name, file in files if file is not None}

    @property
    def initrds(self) -> dict[str, BootFile]:
        """The archives that the kernel unpacks, in that order."""
        return {name: file for name, file in self.files.items() if name != KERNEL}


@dataclass(frozen=True)
class ImageBoot:
    """The kind of root that nodes get unless they say otherwise, and their command line."""

    root: RootKind
    cmdline: tuple[Line, ...]


@dataclass(frozen=True)
class ImageRoot:
    """The commit of the root and its layer's digest; `size` in bytes is an upper bound."""

    commit: Commit
    layer: Text
    size: Amount

    @property
    def most_bytes(self) -> int:
        """More than the files of the root can have together, also packed; larger is damaged."""
        return 2 * self.size + SLACK


@dataclass(frozen=True)
class ImageSource:
    """Where packages came from.  `instead` is why it is not the vendor's place, "" where it is."""

    id: Text
    suite: Text
    components: tuple[Text, ...]
    date: Moment
    release_sha256: Annotated[Text, Field(alias="release-sha256")]
    snapshot: Text
    expired_because: Annotated[Text, Field(alias="expired-because")]
    instead: Text | None = None


@dataclass(frozen=True)
class ImageLayer(LayerRecord):
    """A layer with what it added: bytes and files."""

    size: Amount
    files: Amount


@dataclass(frozen=True)
class ImagePackage:
    """A package of the root; `layer` is the overlay that brought it, or `base`."""

    name: Text
    version: Text
    architecture: Text
    sha256: Text
    source: Text
    layer: Text
    installed: Annotated[Amount, Field(alias="installed-size")]

    @property
    def key(self) -> str:
        """`name:architecture`."""
        return f"{self.name}:{self.architecture}"


@dataclass(frozen=True)
class BuildWheel:
    name: Text
    version: Text
    sha256: Text


@dataclass(frozen=True)
class ImageWheel(BuildWheel):
    path: Text


@dataclass(frozen=True)
class BuildPackage(BuildWheel):
    source: Text


@dataclass(frozen=True)
class BuildSource(BuildWheel):
    file: Text


@dataclass(frozen=True)
class ImageBuild:
    """What was built aside for a layer, and from what; none of that is in the root."""

    name: Text
    layer: Text
    packages: tuple[BuildPackage, ...]
    sources: tuple[BuildSource, ...]
    wheels: tuple[BuildWheel, ...]


@dataclass(frozen=True, kw_only=True)
class Image(Released):
    """An image, as its manifest describes it.

    `epoch` is in seconds since 1970; `slimmed` is what the step `slim` took out, in numbers;
    `listens` are the ports its overlays declare, `grants` what they open, by overlay.
    """

    profile: Name
    version: Name
    epoch: Epoch
    description: Text
    base: Text
    distribution: Text
    suite: Text
    architecture: Text
    overlays: tuple[Text, ...]
    hardware: tuple[Hardware, ...]
    boot: ImageBoot
    root: ImageRoot
    kernel: ImageKernel
    sources: tuple[ImageSource, ...]
    layers: tuple[ImageLayer, ...]
    packages: tuple[ImagePackage, ...]
    wheels: tuple[ImageWheel, ...]
    listens: tuple[Text, ...] | None = None
    grants: Mapping[str, Grants] | None = None
    allow_secret: Annotated[tuple[AllowedSecret, ...] | None, Field(alias="allow-secret")] = None
    expectations: Expectations | None = None
    slimmed: Mapping[str, int] | None = None
    builds: tuple[ImageBuild, ...] | None = None
    proof: ManifestProof | None = None

    @property
    def cmdline(self) -> str:
        """The kernel's command line."""
        return " ".join(self.boot.cmdline)

    @property
    def sums(self) -> dict[str, str]:
        """The sha256 of what iPXE fetches, by file name."""
        return {name: file.sha256 for name, file in self.kernel.files.items()}

    @property
    def inputs(self) -> set[str]:
        """The sha256 of every package, source and wheel that it was made from."""
        parts: list[ImagePackage | BuildWheel] = [*self.packages, *self.wheels]
        for build in self.builds or ():
            parts += [*build.packages, *build.sources, *build.wheels]
        return {part.sha256 for part in parts}

    @property
    def assumed(self) -> tuple[str, ...]:
        """The devices that nothing is known of, with the reason that its recipe gives."""
        return tuple(device.assumption for device in self.hardware if device.assume)

    @property
    def replaced(self) -> dict[str, str]:
        """Why a source is not the vendor's, for each that is not."""
        return {source.id: source.instead for source in self.sources if source.instead}

    @cached_property
    def declared(self) -> tuple[Declared, ...]:
        """What each layer declares.  Raises InputError."""
        return tuple(
            decode_box(Declared, layer.inputs, f"{self.name}: {layer.title}", hint=HINT)
            for layer in self.layers
        )

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(sorted({name for one in self.declared for name in one.groups}))

    @property
    def users(self) -> tuple[Account, ...]:
        """Every user that an overlay declares; the last overlay that names one decides."""
        found = {name: user for one in self.declared for name, user in one.users.items()}
        boxes = ({"name": n, "uid": u[0], "groups": u[3]} for n, u in sorted(found.items()))
        return tuple(decode_box(Account, box, self.name, hint=HINT) for box in boxes)

    @property
    def units(self) -> dict[str, str]:
        """What overlays enable, disable and mask, each with that verb; the last one decides."""
        return {
            unit: verb
            for one in self.declared
            for verb, units in one.units.items()
            for unit in units
        }


MANIFEST = JsonFile(Image, 1, HINT)


def encode_image(image: Image) -> str:
    """The manifest of an image: stable, readable, one line a value."""
    box = MANIFEST.encode(image, nulls=False)
    return json.dumps(box, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def decode_image(content: bytes | str, where: str) -> Image:
    """The image with this manifest.  Raises InputError."""
    return MANIFEST.decode(parse_json(content, where, hint=HINT, most=FEW_VALUES), where)


def load_image(folder: Path) -> Image:
    """The image whose manifest is in the folder of a release.  Raises InputError."""
    path = folder / "manifest.json"
    return decode_image(read_or_say(path, HINT), os.fspath(path))


def find_image(folder: Path) -> Image | None:
    """The same, None where it is not there or damaged; check_release() tells what is."""
    try:
        return load_image(folder)
    except InputError:
        return None


def read_image(store: Store, image: ImageRef) -> Image:
    """An image of a store.

    Raises InputError when it is damaged or is another image, WorkError when it lacks files.
    """
    found = decode_image(store.read(image.commit, "/manifest.json"), image.name)
    if found.release != image.release:
        raise InputError(f"is {found.name} according to its manifest", where=image.name, hint=HINT)
    return found
