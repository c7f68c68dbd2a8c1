# SPDX-License-Identifier: Apache-2.0
"""Layers -> Image: the boot pair, the command line, manifest and SBOM under one name."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from imagebuilder import __version__
from imagebuilder.bootfiles import EARLY, INITRD, KERNEL, check_made, read_release
from imagebuilder.digest import digest_of_file
from imagebuilder.errors import WorkError
from imagebuilder.families.registry import family_of
from imagebuilder.image.make import make_image
from imagebuilder.image.proof import Proof
from imagebuilder.image.sbom import SbomSubject, render_sbom
from imagebuilder.image.types import BootFile, Image, ImageKernel, encode_image
from imagebuilder.lock.types import Lock
from imagebuilder.plan import Plan, PlannedStep
from imagebuilder.process import run
from imagebuilder.recipe.types import Recipe
from imagebuilder.store.records import Record, find_record
from imagebuilder.store.repository import ImageRef, Store


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
