# SPDX-License-Identifier: Apache-2.0
"""Locks of builds: the toolchain on top of all layers, source packages, headers of the kernel.

A build's tree is temporary, but its result is part of the root: so everything that the tree is made
of is locked like the root itself.
"""

from __future__ import annotations

from imagebuilder.lock.request import Request
from imagebuilder.lock.types import (
    Lock,
    LockedBuild,
    LockedLayer,
    LockedPackage,
    LockedPython,
    LockedSourcePackage,
)
from imagebuilder.recipe.read import OVERLAY_FILE
from imagebuilder.recipe.types import Overlay, Recipe

SOURCE_ARCHITECTURE = "source"


def has_sources(recipe: Recipe) -> bool:
    return any(b.source_packages for overlay in recipe.overlays for b in overlay.builds)


def build_requests(recipe: Recipe) -> tuple[Request, ...]:
    """What each build asks for, in the overlays' order."""
    return tuple(
        Request(
            overlay.name,
            build.packages,
            build.name,
            file=overlay.path / OVERLAY_FILE,
            elsewhere=elsewhere(recipe),
            sources=build.source_packages,
            layers=layers_below(recipe, overlay),
        )
        for overlay in recipe.overlays
        for build in overlay.builds
    )


def layers_below(recipe: Recipe, overlay: Overlay) -> int:
    """The number of layers, including the base's, below the builds of an overlay.

    What the initrd is made from is built before the packages of later overlays are installed.
    """
    first = recipe.initrd_overlays
    return 1 + len(first if overlay in first else recipe.overlays)


def elsewhere(recipe: Recipe) -> str:
    """The suite if its packages may have other names than in Debian, else ""."""
    return "" if recipe.base.distribution == "debian" else recipe.base.suite


def every_package(lock: Lock) -> tuple[LockedPackage, ...]:
    """Every package of a lock: of the root, of the builds' trees, and files of source packages.

    The files count as packages of the architecture `source`.
    """
    aside = tuple(
        package
        for layer in lock.layers
        for build in layer.builds
        for package in (*build.packages, *source_files(build))
    )
    return (*lock.packages, *aside)


def source_files(build: LockedBuild) -> tuple[LockedPackage, ...]:
    """The files of a build's source packages, in the form that a fetch takes."""
    return tuple(file for package in build.source_packages for file in files_of(package))


def files_of(package: LockedSourcePackage) -> tuple[LockedPackage, ...]:
    return tuple(
        LockedPackage(
            name=package.name,
            version=package.version,
            architecture=SOURCE_ARCHITECTURE,
            sha256=file.sha256,
            size=file.size,
            path=file.path,
            source=package.source,
        )
        for file in package.files
    )


def environments(layer: LockedLayer) -> tuple[LockedPython, ...]:
    """Every Python environment of a layer: the root's, and those of its builds."""
    return (*layer.python, *(build.python for build in layer.builds if build.python))
