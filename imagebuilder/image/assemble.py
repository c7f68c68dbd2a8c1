# SPDX-License-Identifier: Apache-2.0
"""Layers -> Image: the boot pair, the command line, manifest and SBOM under one name.

A manifest is a function of the plan and the lock alone, so equal images have equal manifests; what
is true of one build only (host, times, tools) is in `build.json` beside it.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from imagebuilder import __version__
from imagebuilder.bootfiles import EARLY, INITRD, KERNEL, check_made, read_release
from imagebuilder.digest import digest_of_file
from imagebuilder.errors import WorkError
from imagebuilder.families.protocol import Family
from imagebuilder.families.registry import family_of
from imagebuilder.image.proof import Proof
from imagebuilder.image.sbom import SbomSubject, render_sbom
from imagebuilder.image.types import (
    BootFile,
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
    encode_image,
)
from imagebuilder.lock.types import Lock, LockedBuild
from imagebuilder.plan import Plan, PlannedStep
from imagebuilder.process import run
from imagebuilder.recipe.types import Recipe
from imagebuilder.slim.types import REPLACED
from imagebuilder.store.records import Record, find_record
from imagebuilder.store.repository import ImageRef, Store

NOTHING = Record("", size=0, files=0, seconds=0.0)


@dataclass(frozen=True)
class Draft:
    """An image that is nearly one: its files are in `tree`, it lacks the proof."""

    tree: Path
    image: Image
    seconds: Mapping[str, float]


def draft_image(
    recipe: Recipe, lock: Lock, plan: Plan, state: Path, store: Store, work: Path
) -> Draft:
    """The files of the image of a plan whose layers are all in the store, below `work`.

    They are BOOT_FILES, kernel-version, cmdline and sbom.spdx.json.
    """
    tree = work / "image"
    store.checkout(commit_of(store, plan.leaf), tree)
    check_made(tree)  # also of a layer that an earlier version made
    kernel = ImageKernel(
        read_release(tree),
        vmlinuz=boot_file(tree / KERNEL),
        initrd=boot_file(tree / INITRD),
        early=boot_file(tree / EARLY) if (tree / EARLY).exists() else None,
    )
    found = ((s.digest, find_record(state, s.digest)) for s in plan.steps)
    records = {digest: record for digest, record in found if record is not None}
    facts = reported(plan, records)
    image = make_image(
        recipe,
        lock,
        plan,
        root=commit_of(store, plan.root),
        kernel=kernel,
        records=records,
        installed=facts.get("installed", {}),
        slimmed=facts.get("slimmed", {}),
    )
    wheels = tuple(w for layer in lock.layers for python in layer.python for w in python.wheels)
    builds = tuple(build for layer in lock.layers for build in layer.builds)
    subject = SbomSubject(
        profile=plan.profile,
        version=plan.version,
        digest=plan.root.digest,
        created=plan.epoch,
        family=family_of(recipe.base),
        distribution=recipe.base.distribution,
        suite=recipe.base.suite,
    )
    (tree / "cmdline").write_text(" ".join(plan.cmdline) + "\n")
    (tree / "sbom.spdx.json").write_text(render_sbom(subject, lock.packages, wheels, builds))
    return Draft(tree, image, {r.title: r.seconds for r in records.values()})


def boot_file(path: Path) -> BootFile:
    """The size and the sha256 of a file that iPXE fetches."""
    return BootFile(digest_of_file(path), path.stat().st_size)


def reported(plan: Plan, records: Mapping[str, Record]) -> Mapping[str, Mapping[str, int]]:
    """What steps of the plan report to the manifest, by its key there."""
    return {
        planned.step.reports: records[planned.digest].facts
        for planned in plan.steps
        if planned.step.reports and planned.digest in records
    }


def assemble_image(draft: Draft, plan: Plan, store: Store, *, proof: Proof) -> ImageRef:
    """Record the image: the draft with manifest.json, which has its proof, and build.json with
    what is true of this build only.
    """
    image = replace(draft.image, proof=proof)
    (draft.tree / "manifest.json").write_text(encode_image(image))
    facts = {
        "built": int(time.time()),
        "imagebuilder": __version__,
        "builder": platform.node(),
        "kernel": platform.release(),
        "ostree": run(["ostree", "--version"]).stdout.split("'")[1],
        "seconds": dict(draft.seconds),
    }
    (draft.tree / "build.json").write_text(json.dumps(facts, indent=1) + "\n")
    leaf = commit_of(store, plan.leaf)
    return store.commit_image(plan.profile, plan.version, draft.tree, epoch=plan.epoch, base=leaf)


def commit_of(store: Store, planned: PlannedStep) -> str:
    """The commit of a layer that must be there.  Raises WorkError."""
    commit = store.find_layer(planned.digest)
    if commit is None:
        raise WorkError(f"layer {planned.step.title} ({planned.digest[:12]}) is not in the store")
    return commit


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
    the family's identity of a package, `slimmed` what imagebuilder.slim says it took out.
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
        packages=list_packages(family_of(base), lock, installed),
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


def list_packages(
    family: Family, lock: Lock, installed: Mapping[str, int]
) -> tuple[ImagePackage, ...]:
    return tuple(
        ImagePackage(
            name=package.name,
            version=package.version,
            architecture=package.architecture,
            sha256=package.sha256,
            source=package.source,
            layer=layer.overlay or "base",
            installed=installed.get(family.identity(package), 0),
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
