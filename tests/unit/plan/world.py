# SPDX-License-Identifier: Apache-2.0
"""Recipes and locks from a few words of JSON, for the plan's golden cases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imagebuilder.digest import digest_of_bytes
from imagebuilder.lock.types import Lock, LockedLayer, LockedPackage, LockedPython, LockedWheel
from imagebuilder.recipe.types import (
    Base,
    Boot,
    Overlay,
    PythonEnv,
    Recipe,
    Script,
    TreeFile,
    Units,
)

EPOCH = 1_790_000_000


@dataclass(frozen=True)
class World:
    """A profile as it is at one time."""

    recipe: Recipe
    lock: Lock


def make_world(case: Mapping[str, Any]) -> World:
    """The profile that `case` describes; see the cases for its keys."""
    overlays = case.get("overlays", {})
    base = Base(
        name=case.get("base", "debian-forky"),
        distribution="debian",
        suite="forky",
        architecture="amd64",
        engine=case.get("engine", "mmdebstrap"),
        package_manager="apt",
        packages=(),
        kernel="linux-image-amd64",
        sources=(),
    )
    recipe = Recipe(
        profile="demo",
        description="",
        base=base,
        overlays=tuple(make_overlay(name, words) for name, words in overlays.items()),
        vars={},
        hardware=(),
        boot=Boot("nfs", ("tty0",), tuple(case.get("cmdline", ()))),
    )
    layers = [make_layer("", {"packages": case.get("packages", {"libc6": "2.43"})}, EPOCH)]
    layers += [
        make_layer(name, words, words.get("epoch", EPOCH)) for name, words in overlays.items()
    ]
    epoch = max(layer.epoch for layer in layers)
    return World(recipe, Lock("demo", "amd64", base.name, epoch, (), tuple(layers)))


def make_overlay(name: str, words: Mapping[str, Any]) -> Overlay:
    """One overlay; files and scripts are names with their text."""
    return Overlay(
        name=name,
        path=Path("/overlays", name),
        initrd=words.get("initrd", False),
        packages=tuple(words.get("packages", ())),
        files=tuple(
            TreeFile(target, digest_of_bytes(text.encode()), 0o644, content=text.encode())
            for target, text in words.get("files", {}).items()
        ),
        scripts=tuple(
            Script(script, digest_of_bytes(text.encode()), Path("/overlays", name, script))
            for script, text in words.get("scripts", {}).items()
        ),
        python=tuple(
            PythonEnv(path, Path("requirements.txt"), "r") for path in words.get("python", {})
        ),
        units=Units(enable=tuple(words.get("enable", ()))),
        cmdline=tuple(words.get("cmdline", ())),
        prune=tuple(words.get("prune", ())),
        listens=tuple(words.get("listens", ())),
    )


def make_layer(name: str, words: Mapping[str, Any], epoch: int) -> LockedLayer:
    """The locked part of one overlay, or of the base."""
    return LockedLayer(
        overlay=name,
        requested=tuple(words.get("packages", ())),
        packages=tuple(
            LockedPackage(
                package,
                version,
                "amd64",
                digest_of_bytes(f"{package} {version}".encode()),
                1,
                f"pool/{package}.deb",
                "debian",
            )
            for package, version in words.get("packages", {}).items()
        ),
        python=tuple(
            LockedPython(
                path, "r", "3.14", tuple(make_wheel(*wheel.split("==")) for wheel in wheels)
            )
            for path, wheels in words.get("python", {}).items()
        ),
        epoch=epoch,
    )


def make_wheel(name: str, version: str) -> LockedWheel:
    """A wheel of that version."""
    filename = f"{name}-{version}-py3-none-any.whl"
    return LockedWheel(name, version, filename, digest_of_bytes(filename.encode()), 1)
