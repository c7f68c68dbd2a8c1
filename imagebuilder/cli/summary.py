# SPDX-License-Identifier: Apache-2.0
"""Texts about a finished build, and about an image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagebuilder.image.types import Image, read_image
from imagebuilder.proof.terminal import find_summary, headline
from imagebuilder.settings import Settings
from imagebuilder.store.repository import Store
from imagebuilder.ui import format_size, table

if TYPE_CHECKING:
    from imagebuilder.pipeline import Built

LARGEST = 10


def render_summary(done: Built, settings: Settings) -> str:
    assert done.image is not None
    store = Store(settings.state / "store")
    if done.new:
        return render_image(read_image(store, done.image))
    text = f"{done.image.name} is already in the store: nothing changed"
    if (newest := store.image(done.image.profile)) == done.image:
        return text
    # After a change was undone: `publish PROFILE` would publish what was undone.
    return f"{text}\n  {newest.name} was built after it, so add the version to publish this one"


def render_image(image: Image) -> str:
    """An image as text: its facts, its size by layer, its largest packages."""
    kernel, root = image.kernel, image.root
    head = [
        ("image", image.name),
        ("base", f"{image.base} ({image.suite}, {image.architecture})"),
        ("overlays", ", ".join(image.overlays)),
        ("kernel", kernel.release),
        *((name, format_size(file.size)) for name, file in kernel.files.items()),
        ("root", f"{format_size(root.size)}, commit {root.commit[:16]}"),
        ("cmdline", image.cmdline),
        *([("proof", headline(proof))] if (proof := image.proof) else []),
        *([("files", files)] if proof and (files := find_summary(proof)) else []),
        *(("secret", f"{one.path}: {one.because}") for one in image.allow_secret or ()),
        *(
            ("note", f"source {source} is not the vendor's: {why}")
            for source, why in image.replaced.items()
        ),
        *(("note", f"assumed, not proved: {device}") for device in image.assumed),
    ]
    by_layer = [
        (layer.title, format_size(layer.size), str(layer.files), layer.digest[:12])
        for layer in image.layers
    ]
    largest = sorted(image.packages, key=lambda p: (-p.installed, p.name))[:LARGEST]
    by_package = [(p.name, p.version, format_size(p.installed), p.layer) for p in largest]
    return "\n\n".join(
        (
            table(head),
            table(by_layer, ("layer", "size", "files", "digest")),
            table(by_package, ("largest packages", "version", "size", "from")),
        )
    )
