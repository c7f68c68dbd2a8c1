# SPDX-License-Identifier: Apache-2.0
"""Why a path is in an image: its origin, what changed it, and the project's files behind that."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

from imagebuilder.digest import Json
from imagebuilder.errors import InputError, one_line
from imagebuilder.image.files import original
from imagebuilder.image.types import Image, read_image
from imagebuilder.proof.provenance.read import CONFIGURE, Records, read_records, trace_path
from imagebuilder.proof.reading.provenance import Trace, TraceKind
from imagebuilder.recipe.generated import key_of
from imagebuilder.recipe.positions import load_document
from imagebuilder.recipe.read import OVERLAY_FILE
from imagebuilder.recipe.tree import TEMPLATE_SUFFIX
from imagebuilder.rights import check_root
from imagebuilder.root import Root
from imagebuilder.settings import Settings
from imagebuilder.store.state import checked_out, open_store
from imagebuilder.ui import table


@dataclass(frozen=True)
class Explained:
    """A path of an image with its trace.

    `layers` are titles and digests of the layers that made and changed it, `sources` the files of
    the project that may have done so, as `FILE` or `FILE:LINE:COLUMN`.  `compiled` is the source of
    Python bytecode.
    """

    image: str
    trace: Trace
    layers: tuple[tuple[str, str], ...]
    sources: tuple[str, ...] = ()
    compiled: str = ""

    def as_json(self) -> dict[str, Json]:
        trace = self.trace
        return {
            "image": self.image,
            "path": trace.path,
            "kind": str(trace.kind),
            "package": trace.package or None,
            "overlay": trace.overlay or None,
            "changed": trace.change or None,
            "layers": [{"title": title, "digest": digest} for title, digest in self.layers],
            "sources": list(self.sources),
            "compiled-from": self.compiled or None,
        }

    def render(self) -> str:
        trace = self.trace
        rows = [("path", trace.path), ("image", self.image)]
        if trace.package:
            rows.append(("package", trace.package))
        if trace.overlay:
            rows.append(("overlay", trace.overlay))
        if self.compiled:
            rows.append(("compiled from", self.compiled))
        made, *more = [f"{title}  {digest[:12]}" for title, digest in self.layers]
        rows.append(("made by", made))
        rows += [("changed by", each) for each in more]
        if trace.change:
            rows.append(("not as shipped", trace.change))
        rows += [("source", source) for source in self.sources]
        return table(rows)


def explain(settings: Settings, name: str, path: str) -> Explained:
    """Why the image `name` has a path.  Raises InputError, HostError, WorkError."""
    check_root("reading a root filesystem")
    store = open_store(settings)
    image = read_image(store, store.image(name))
    purpose = f"why-{image.profile}"
    with checked_out(settings, store, image.root.commit, purpose) as work:
        root = Root(work / "root")
        records = read_records(store, image, root)
        place = place_of(path, root)
        trace = trace_path(place, records, root)
        if trace is None:
            raise InputError(
                f"{image.name} has no {one_line(path)}", hint=why_missing(place, records)
            )
        digests = {layer.title: layer.digest for layer in image.layers}
        source = original(place)
        return Explained(
            image.name,
            trace,
            layers=tuple((step, digests.get(step, "")) for step in trace.steps),
            sources=tuple(find_sources(trace, image, settings)),
            compiled=source if source != place and source in records.shipped else "",
        )


def why_missing(path: str, records: Records) -> str:
    shipped, remover = records.shipped.get(path), records.history.remover(path)
    if remover:
        return f"{remover} removed it"
    if shipped:
        return f"the package {shipped.package} ships it, but it was not installed"
    return "run `imagebuilder shell PROFILE` to look at its files"


def place_of(path: str, root: Root) -> str:
    """An absolute path with the symlinks above it followed: /lib/x is /usr/lib/x."""
    if not path.startswith("/"):
        named = one_line(path)
        raise InputError(f"{named} is not an absolute path", hint=f"use /{named}")
    plain = posixpath.normpath(f"/{path.lstrip('/')}")
    folder, name = posixpath.split(plain)
    found = root.resolve(folder)
    return plain if found is None else posixpath.join(found, name)


def find_sources(trace: Trace, image: Image, settings: Settings) -> Iterator[str]:
    """The files of the project that placed a path, or may have made or changed it."""
    overlay = trace.step.removeprefix(CONFIGURE)
    folder = settings.find_overlays().get(overlay)
    if folder is None or overlay == trace.step:
        return
    shown = f"overlays/{overlay}"
    document = load_document(folder / OVERLAY_FILE, f"{shown}/{OVERLAY_FILE}")
    if trace.kind is TraceKind.OVERLAY:
        key = key_of(trace.path)
        written = [f"{trace.path}{suffix}" for suffix in ("", TEMPLATE_SUFFIX)]
        found = [f"{shown}/files{name}" for name in written if (folder / f"files{name}").exists()]
        yield from found or [document.fault((key,), "", of_key=True).where]
        return
    layer = next(layer for layer in image.layers if layer.title == trace.step)
    names = layer.inputs.get("script-order")
    yield from (f"{shown}/{name}" for name in (names if isinstance(names, list) else ()))
    yield from (
        document.fault((key,), "", of_key=True).where
        for key in ("users", "groups", "units")
        if layer.inputs.get(key) and key in (document.value or {})
    )
