# SPDX-License-Identifier: Apache-2.0
"""What a person reads when a build is done, and when they ask to see an image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from imagebuilder.digest import Json
from imagebuilder.proof.as_json import parse_proof
from imagebuilder.proof.terminal import headline
from imagebuilder.settings import Settings
from imagebuilder.store.repository import Store
from imagebuilder.ui import format_size, table

if TYPE_CHECKING:
    from imagebuilder.pipeline import Built

LARGEST = 10


def render_summary(done: Built, settings: Settings) -> str:
    """The result of a build."""
    assert done.image is not None
    if not done.new:
        return f"{done.image.name} is in the store: nothing changed"
    store = Store(settings.state / "store")
    return render_manifest_summary(store.manifest(done.image))


def render_manifest_summary(manifest: Mapping[str, Json]) -> str:
    """An image in words: what it is, its size by layer, its largest packages."""
    kernel, root, boot = manifest["kernel"], manifest["root"], manifest["boot"]
    layers, packages = manifest["layers"], manifest["packages"]
    assert isinstance(kernel, dict)
    assert isinstance(root, dict)
    assert isinstance(boot, dict)
    assert isinstance(layers, list)
    assert isinstance(packages, list)
    head = [
        ("image", f"{manifest['profile']}@{manifest['version']}"),
        ("base", f"{manifest['base']} ({manifest['suite']}, {manifest['architecture']})"),
        ("overlays", ", ".join(str(name) for name in as_list(manifest["overlays"]))),
        ("kernel", kernel["release"]),
        ("vmlinuz", format_size(kernel["vmlinuz"]["size"])),
        ("initrd", format_size(kernel["initrd"]["size"])),
        ("root", f"{format_size(root['size'])}, commit {root['commit'][:16]}"),
        ("cmdline", " ".join(boot["cmdline"])),
        *([("proof", headline(proof))] if (proof := parse_proof(manifest)) else []),
        *(
            ("note", f"source {source['id']} is not the vendor's: {source['instead']}")
            for source in as_list(manifest.get("sources", []))
            if isinstance(source, dict) and source.get("instead")
        ),
    ]
    by_layer = [
        (layer["title"], format_size(layer["size"]), str(layer["files"]), layer["digest"][:12])
        for layer in layers
    ]
    largest = sorted(packages, key=lambda p: (-p["installed-size"], p["name"]))[:LARGEST]
    by_package = [
        (p["name"], p["version"], format_size(p["installed-size"]), p["layer"]) for p in largest
    ]
    return "\n\n".join(
        (
            table(head),
            table(by_layer, ("layer", "size", "files", "digest")),
            table(by_package, ("largest packages", "version", "size", "from")),
        )
    )


def as_list(value: Json) -> list[Json]:
    """A JSON array as a list."""
    assert isinstance(value, list)
    return value
