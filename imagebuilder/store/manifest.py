# SPDX-License-Identifier: Apache-2.0
"""Reading the manifest of an image or a release: the types of its parts are checked once, here.

A part that is missing raises InputError when somebody asks for it: older images have fewer.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from imagebuilder.decode import decode_box, parse_object, read_or_say
from imagebuilder.digest import Json

HINT = "publish or build the image again; imagebuilder releases --verify shows what else is damaged"

Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Word = Annotated[str, StringConstraints(max_length=65536)]


class Shape(BaseModel):
    """A part of a manifest; keys that are not listed are left alone."""

    model_config = ConfigDict(extra="ignore", strict=True)


class Boot(Shape):
    root: Word = ""
    cmdline: list[Word] = []


class RootTree(Shape):
    commit: Word = ""
    layer: Word = ""
    size: Count = 0


class BootFile(Shape):
    sha256: Word = ""
    size: Count = 0


class Kernel(Shape):
    release: Word = ""
    vmlinuz: BootFile = BootFile()
    initrd: BootFile = BootFile()


class Inputs(Shape):
    # As a step that configures an overlay lists a user: uid, home, shell, groups, ...
    users: dict[str, Annotated[list[Any], Field(min_length=4)]] = {}
    groups: dict[str, Any] = {}
    units: dict[str, list[Word]] = {}


class Layer(Shape):
    title: Word = ""
    digest: Word = ""
    size: Count = 0
    files: Count = 0
    inputs: Inputs = Inputs()


class Entry(Shape):
    name: Word = ""
    version: Word = ""
    architecture: Word = ""
    sha256: Word = ""
    source: Word = ""
    layer: Word = ""
    path: Word = ""


class Package(Entry):
    installed: Count = Field(0, alias="installed-size")


class Built(Shape):
    name: Word = ""
    packages: list[Entry] = []
    sources: list[Entry] = []
    wheels: list[Entry] = []


class Source(Shape):
    id: Word = ""
    suite: Word = ""
    instead: Word = ""


class Device(Shape):
    pci: Word = ""
    name: Word = ""
    target: Word = ""


class Finding(Shape):
    level: Word = ""
    what: Word = ""
    hint: Word = ""
    evidence: list[dict[str, Any]] = []


class Answer(Shape):
    question: Word = ""
    findings: list[Finding] = []


class Proof(Shape):
    answers: list[Answer] = []


class Manifest(Shape):
    profile: Word = ""
    version: Word = ""
    epoch: Annotated[int, Field(ge=0, lt=1 << 33)] = 0
    base: Word = ""
    distribution: Word = ""
    suite: Word = ""
    architecture: Word = ""
    overlays: list[Word] = []
    hardware: list[Device] = []
    listens: list[Word] | None = None
    expectations: dict[str, Any] = {}
    boot: Boot = Boot()
    root: RootTree = RootTree()
    kernel: Kernel = Kernel()
    sources: list[Source] = []
    layers: list[Layer] = []
    slimmed: dict[str, int] = {}
    packages: list[Package] = []
    builds: list[Built] = []
    wheels: list[Entry] = []
    proof: Proof = Proof()


def parse_manifest(content: bytes | str, where: str) -> dict[str, Json]:
    """The manifest in `content`.  Raises InputError; also when a key is asked that it lacks."""
    value = parse_object(content, where, hint=HINT, whole=True)
    decode_box(Manifest, value, where, hint=HINT)
    return value


def load_manifest(folder: Path) -> dict[str, Json]:
    """The manifest in the folder of a release.  Raises InputError."""
    path = folder / "manifest.json"
    return parse_manifest(read_or_say(path, HINT), os.fspath(path))
