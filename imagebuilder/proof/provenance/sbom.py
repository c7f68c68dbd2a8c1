# SPDX-License-Identifier: Apache-2.0
"""An SBOM with every file of the image, its checksums and its origin.

A file that a package ships is related to it (EXPANDED_FROM_ARCHIVE), even if it was changed; for
others the comment names the overlay or the step.  https://spdx.github.io/spdx-spec/v2.3/file-information/
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.decode import parse_object
from imagebuilder.digest import Json
from imagebuilder.image.sbom import IMAGE, UNKNOWN, relationship, renamed, spdx_id
from imagebuilder.image.types import read_image
from imagebuilder.proof.provenance.read import read_records, trace_all
from imagebuilder.proof.reading.provenance import Trace, walk_root
from imagebuilder.rights import check_root
from imagebuilder.root import Root
from imagebuilder.settings import Settings
from imagebuilder.store.state import checked_out, open_store

BLOCK = 1 << 20


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
        traces = trace_all(read_records(store, image, root), entries, root).traces
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
