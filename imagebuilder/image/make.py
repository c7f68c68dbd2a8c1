# SPDX-License-Identifier: Apache-2.0
"""Plan + Lock -> Image: what the manifest of an image says.

It is a function of the plan and the lock alone, so equal images have equal manifests; what is true
of one build only (host, times, tools) is in `build.json` beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from imagebuilder.image.types import (
    BuildPackage,
    BuildSource,
    BuildWheel,
    Image,
    ImageBoot,
    ImageBuild,
    ImageKernel,
    ImageLayer,
    ImagePackage,
    ImageRoot,
    ImageSource,
    ImageWheel,
)
from imagebuilder.lock.types import Lock, LockedBuild
from imagebuilder.plan import Plan
from imagebuilder.recipe.types import Recipe
from imagebuilder.slim.types import REPLACED
from imagebuilder.store.records import Record

NOTHING = Record("", size=0, files=0, seconds=0.0)


def make_image(
    recipe: Recipe,
    lock: Lock,
    plan: Plan,
    *,
    root: str,
    kernel: ImageKernel,
    records: Mapping[str, Record],
    installed: Mapping[str, int],
    slimmed: Mapping[str, int],
) -> Image:
    """The image `plan` leads to, without its proof.

    `root` is the commit of the root, `records` go by layer digest, `installed` is bytes by
    `package:architecture`, `slimmed` what imagebuilder.slim says it took out.
    """
    base = recipe.base
    return Image(
        profile=plan.profile,
        version=plan.version,
        epoch=plan.epoch,
        description=recipe.description,
        base=base.name,
        distribution=base.distribution,
        suite=base.suite,
        architecture=base.architecture,
        overlays=tuple(overlay.name for overlay in recipe.overlays),
        hardware=recipe.hardware,
        listens=recipe.listens,
        grants=recipe.grants,
        allow_secret=recipe.allow_secret,
        expectations=recipe.expectations,
        boot=ImageBoot(recipe.boot.root, plan.cmdline),
        root=ImageRoot(root, plan.root.digest, total(plan, records, slimmed)),
        kernel=kernel,
        sources=list_sources(lock),
        layers=list_layers(plan, records),
        slimmed=slimmed,
        packages=list_packages(lock, installed),
        builds=tuple(
            make_build(build, layer.overlay) for layer in lock.layers for build in layer.builds
        ),
        wheels=tuple(
            ImageWheel(w.name, w.version, w.sha256, python.path)
            for layer in lock.layers
            for python in layer.python
            for w in python.wheels
        ),
    )


def list_sources(lock: Lock) -> tuple[ImageSource, ...]:
    """Where packages came from, and what those suites said of themselves."""
    names = [field.name for field in fields(ImageSource)]
    return tuple(ImageSource(*(getattr(each, n) for n in names)) for each in lock.sources)


def list_layers(plan: Plan, records: Mapping[str, Record]) -> tuple[ImageLayer, ...]:
    measured = ((planned, records.get(planned.digest, NOTHING)) for planned in plan.steps)
    return tuple(
        ImageLayer(
            planned.step.title, planned.digest, planned.step.inputs(), found.size, found.files
        )
        for planned, found in measured
    )


def list_packages(lock: Lock, installed: Mapping[str, int]) -> tuple[ImagePackage, ...]:
    return tuple(
        ImagePackage(
            name=package.name,
            version=package.version,
            architecture=package.architecture,
            sha256=package.sha256,
            source=package.source,
            layer=layer.overlay or "base",
            installed=installed.get(f"{package.name}:{package.architecture}", 0),
        )
        for layer in lock.layers
        for package in layer.packages
    )


def make_build(build: LockedBuild, layer: str) -> ImageBuild:
    return ImageBuild(
        name=build.name,
        layer=layer,
        packages=tuple(BuildPackage(p.name, p.version, p.sha256, p.source) for p in build.packages),
        sources=tuple(
            BuildSource(p.name, p.version, f.sha256, f.name)
            for p in build.source_packages
            for f in p.files
        ),
        wheels=tuple(
            BuildWheel(w.name, w.version, w.sha256)
            for w in (build.python.wheels if build.python else ())
        ),
    )


def total(plan: Plan, records: Mapping[str, Record], slimmed: Mapping[str, int]) -> int:
    """Bytes of all layers of the root, less what was slimmed; other files that a layer replaces
    or removes count still, so it is an upper bound.
    """
    made = sum(records.get(p.digest, NOTHING).size for p in plan.steps if not p.step.leaf)
    return made - slimmed.get(REPLACED, 0)
