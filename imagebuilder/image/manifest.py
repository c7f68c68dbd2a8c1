# SPDX-License-Identifier: Apache-2.0
"""The manifest: what an image is made of, as JSON with a versioned schema.

It is a function of the plan and the lock alone, so equal images have equal manifests; what is true
of one build only (host, times, tools) is in `build.json` beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from imagebuilder.digest import Json
from imagebuilder.lock.types import Lock
from imagebuilder.plan import LayerRecord, Plan
from imagebuilder.recipe.expectations import plain
from imagebuilder.recipe.types import Recipe
from imagebuilder.slim.types import REPLACED

SCHEMA = 1


@dataclass(frozen=True)
class BootPair:
    """What the initrd step left: sizes in bytes, sha256, and the kernel's release."""

    kernel: str
    vmlinuz_sha256: str
    vmlinuz_size: int
    initrd_sha256: str
    initrd_size: int


@dataclass(frozen=True)
class LayerSize:
    """How much a layer added: bytes and files of its upper."""

    size: int
    files: int


NOTHING = LayerSize(0, 0)


def make_manifest(
    recipe: Recipe,
    lock: Lock,
    plan: Plan,
    *,
    root: str,
    pair: BootPair,
    sizes: Mapping[str, LayerSize],
    installed: Mapping[str, int],
    slimmed: Mapping[str, int],
) -> dict[str, Json]:
    """The manifest of the image `plan` leads to.

    `root` is the commit of the root, `sizes` goes by layer digest, `installed` is bytes by
    `package:architecture`, `slimmed` what imagebuilder.slim says it took out.
    """
    return {
        "schema": SCHEMA,
        "profile": plan.profile,
        "version": plan.version,
        "epoch": plan.epoch,
        "description": recipe.description,
        "base": recipe.base.name,
        "distribution": recipe.base.distribution,
        "suite": recipe.base.suite,
        "architecture": recipe.base.architecture,
        "overlays": [overlay.name for overlay in recipe.overlays],
        "hardware": [{"pci": h.pci, "name": h.name, "target": h.target} for h in recipe.hardware],
        "listens": list(recipe.listens),
        "expectations": plain(recipe.expectations),
        "boot": {"root": recipe.boot.root, "cmdline": list(plan.cmdline)},
        "root": {"commit": root, "layer": plan.root.digest, "size": total(plan, sizes, slimmed)},
        "kernel": {
            "release": pair.kernel,
            "vmlinuz": {"sha256": pair.vmlinuz_sha256, "size": pair.vmlinuz_size},
            "initrd": {"sha256": pair.initrd_sha256, "size": pair.initrd_size},
        },
        "sources": sources_json(lock),
        "layers": layers_json(plan, sizes),
        "slimmed": dict(slimmed),
        "packages": packages_json(lock, installed),
        "builds": builds_json(lock),
        "wheels": [
            {"name": w.name, "version": w.version, "sha256": w.sha256, "path": python.path}
            for layer in lock.layers
            for python in layer.python
            for w in python.wheels
        ],
    }


def sources_json(lock: Lock) -> list[Json]:
    """Where packages came from, and what those suites said of themselves."""
    return [
        {
            "id": source.id,
            "suite": source.suite,
            "components": list(source.components),
            "date": source.date,
            "release-sha256": source.release_sha256,
            "snapshot": source.snapshot,
            "expired-because": source.expired_because,
            "instead": source.instead,
        }
        for source in lock.sources
    ]


def layers_json(plan: Plan, sizes: Mapping[str, LayerSize]) -> list[Json]:
    """Every layer with all that names it."""
    return [
        {
            "title": planned.step.title,
            "digest": planned.digest,
            "size": sizes.get(planned.digest, NOTHING).size,
            "files": sizes.get(planned.digest, NOTHING).files,
            "inputs": planned.step.inputs(),
        }
        for planned in plan.steps
    ]


def packages_json(lock: Lock, installed: Mapping[str, int]) -> list[Json]:
    """Every package, in layer order."""
    return [
        {
            "name": package.name,
            "version": package.version,
            "architecture": package.architecture,
            "sha256": package.sha256,
            "source": package.source,
            "layer": layer.overlay or "base",
            "installed-size": installed.get(f"{package.name}:{package.architecture}", 0),
        }
        for layer in lock.layers
        for package in layer.packages
    ]


def builds_json(lock: Lock) -> list[Json]:
    """What each layer that was built aside is made of; none of it is in the root."""
    return [
        {
            "name": build.name,
            "layer": layer.overlay,
            "packages": [
                {"name": p.name, "version": p.version, "sha256": p.sha256, "source": p.source}
                for p in build.packages
            ],
            "sources": [
                {"name": p.name, "version": p.version, "file": f.name, "sha256": f.sha256}
                for p in build.source_packages
                for f in p.files
            ],
            "wheels": [
                {"name": w.name, "version": w.version, "sha256": w.sha256}
                for w in (build.python.wheels if build.python else ())
            ],
        }
        for layer in lock.layers
        for build in layer.builds
    ]


def total(plan: Plan, sizes: Mapping[str, LayerSize], slimmed: Mapping[str, int]) -> int:
    """Bytes of all layers of the root, less what was slimmed; other files that a layer replaces
    or removes count still, so it is an upper bound.
    """
    made = sum(sizes.get(p.digest, NOTHING).size for p in plan.steps if not p.step.leaf)
    return made - slimmed.get(REPLACED, 0)


def render_manifest(manifest: Mapping[str, Json]) -> str:
    """The manifest as text: stable, readable, one line a value."""
    return json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def layer_records(manifest: Mapping[str, Json]) -> tuple[LayerRecord, ...]:
    """The layers of a manifest, for a plan to compare with."""
    layers = cast("list[dict[str, Any]]", manifest["layers"])
    return tuple(LayerRecord(x["title"], x["digest"], x["inputs"]) for x in layers)
