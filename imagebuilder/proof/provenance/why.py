# SPDX-License-Identifier: Apache-2.0
"""Why a path is in an image: its origin, what changed it, and the project's files behind that; and
an SBOM with every file of the image, its checksums and its origin.

A file that a package ships is related to it (EXPANDED_FROM_ARCHIVE), even if it was changed; for
others the comment names the overlay or the step.  https://spdx.github.io/spdx-spec/v2.3/file-information/
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import stat
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.decode import parse_object
from imagebuilder.digest import Json
from imagebuilder.errors import InputError, one_line
from imagebuilder.image.files import original
from imagebuilder.image.sbom import IMAGE, UNKNOWN, relationship, renamed, spdx_id
from imagebuilder.image.types import Image, read_image
from imagebuilder.proof.provenance import read
from imagebuilder.proof.reading.provenance import Trace, TraceKind, walk_root
from imagebuilder.recipe.generated import key_of
from imagebuilder.recipe.positions import load_document
from imagebuilder.recipe.read import OVERLAY_FILE
from imagebuilder.recipe.tree import TEMPLATE_SUFFIX
from imagebuilder.rights import check_root
from imagebuilder.root import Root
from imagebuilder.settings import Settings
from imagebuilder.store.state import checked_out, open_store
from imagebuilder.ui import table

BLOCK = 1 << 20


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
        records = read.read_records(store, image, root)
        place = place_of(path, root)
        trace = read.trace_path(place, records, root)
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


def why_missing(path: str, records: read.Records) -> str:
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
    overlay = trace.step.removeprefix(read.CONFIGURE)
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


@dataclass(frozen=True)
class FileSums:
    """Both digests of a file: SPDX requires SHA-1, readers want SHA-256."""

    sha1: str
    sha256: str


def render_with_files(settings: Settings, name: str) -> str:
    """The SBOM of an image with its files.  Raises InputError, HostError, WorkError."""
    check_root("reading a root filesystem")
    store = open_store(settings)
    ref = store.image(name)
    image = read_image(store, ref)
    document = parse_object(store.read(ref.commit, "/sbom.spdx.json"), "sbom.spdx.json")
    purpose = f"sbom-{image.profile}"
    with checked_out(settings, store, image.root.commit, purpose) as work:
        root = Root(work / "root")
        entries = dict(walk_root(root))
        traces = read.trace_all(read.read_records(store, image, root), entries, root).traces
        paths = sorted(path for path, info in entries.items() if stat.S_ISREG(info.st_mode))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            sums = pool.map(lambda path: sums_of(Path(f"{root.path}{path}")), paths)
            files = [(traces[path], each) for path, each in zip(paths, sums, strict=True)]
    return json.dumps(add_files(document, files), indent=1, sort_keys=True) + "\n"


def sums_of(path: Path) -> FileSums:
    sha1, sha256 = hashlib.sha1(usedforsecurity=False), hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(BLOCK):
            sha1.update(block)
            sha256.update(block)
    return FileSums(sha1.hexdigest(), sha256.hexdigest())


def add_files(
    document: Mapping[str, Json], files: Iterable[tuple[Trace, FileSums]]
) -> dict[str, Json]:
    listed = list(files)
    packages = [dict(each) for each in objects(document["packages"])]
    ids = {f"{each['name']} {each['versionInfo']}": str(each["SPDXID"]) for each in packages}
    for package in packages:
        if package["SPDXID"] == IMAGE:
            package["filesAnalyzed"] = True
            code = "".join(sorted(sums.sha1 for _, sums in listed)).encode()
            value = hashlib.sha1(code, usedforsecurity=False).hexdigest()
            package["packageVerificationCode"] = {"packageVerificationCodeValue": value}
    return renamed(
        {
            **document,
            "packages": packages,
            "files": [file_entry(trace, sums) for trace, sums in listed],
            "relationships": [
                *objects(document["relationships"]),
                *(each for trace, _ in listed for each in relationships_of(trace, ids)),
            ],
        }
    )


def objects(value: Json) -> Iterator[Mapping[str, Json]]:
    if isinstance(value, list):
        yield from (each for each in value if isinstance(each, Mapping))


def file_entry(trace: Trace, sums: FileSums) -> dict[str, Json]:
    return {
        "SPDXID": file_id(trace),
        "fileName": f".{trace.path}",
        "checksums": [
            {"algorithm": "SHA1", "checksumValue": sums.sha1},
            {"algorithm": "SHA256", "checksumValue": sums.sha256},
        ],
        "comment": str(trace),
        "copyrightText": UNKNOWN,
        "licenseConcluded": UNKNOWN,
    }


def relationships_of(trace: Trace, ids: Mapping[str, str]) -> Iterator[Json]:
    yield relationship(IMAGE, "CONTAINS", file_id(trace))
    if trace.package in ids:
        yield relationship(file_id(trace), "EXPANDED_FROM_ARCHIVE", ids[trace.package])


def file_id(trace: Trace) -> str:
    """From the path, because several files may have the same content."""
    name = trace.path.rpartition("/")[2]
    return spdx_id("file", name, hashlib.sha256(trace.path.encode()).hexdigest())
