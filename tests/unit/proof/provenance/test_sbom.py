# SPDX-License-Identifier: Apache-2.0
"""The SBOM with files: each has its checksums, and the package that it was unpacked from."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from imagebuilder.families.apt.family import APT
from imagebuilder.image.sbom import SbomSubject, render_sbom
from imagebuilder.lock.types import LockedPackage
from imagebuilder.proof.provenance.why import FileSums, add_files, sums_of
from imagebuilder.proof.reading.provenance import CONTENT, Trace, TraceKind

PACKAGE = LockedPackage("hello", "2.10-3", "amd64", "ab" * 32, 100, "p/hello.deb", "main")
SUBJECT = SbomSubject("demo", "1", "digest", 0, APT, "debian", "trixie")
SUMS = FileSums("1" * 40, "2" * 64)
SHIPPED = Trace("/usr/bin/hello", TraceKind.PACKAGE, ("packages",), "hello 2.10-3")
CHANGED = Trace("/etc/hello", TraceKind.CHANGED, ("packages", "configure x"), "hello 2.10-3", "",
                CONTENT)  # fmt: skip
PLACED = Trace("/etc/x", TraceKind.OVERLAY, ("configure x",), overlay="x")


def document(*traces: Trace) -> dict[str, Any]:
    plain = json.loads(render_sbom(SUBJECT, [PACKAGE]))
    return add_files(plain, [(trace, SUMS) for trace in traces])


def test_each_file_leads_to_its_package() -> None:
    found = document(SHIPPED, CHANGED, PLACED)
    comments = {each["fileName"]: each["comment"] for each in found["files"]}
    assert comments == {
        "./usr/bin/hello": "package hello 2.10-3",
        "./etc/hello": "content changed by configure x, shipped by package hello 2.10-3",
        "./etc/x": "a file of the overlay x",
    }
    names = {each["SPDXID"]: each.get("fileName") or each["name"] for each in (
        *found["files"], *found["packages"])}  # fmt: skip
    related = {
        (names[each["spdxElementId"]], names[each["relatedSpdxElement"]])
        for each in found["relationships"]
        if each["relationshipType"] == "EXPANDED_FROM_ARCHIVE"
    }
    assert related == {("./usr/bin/hello", "hello"), ("./etc/hello", "hello")}
    contained = [each for each in found["relationships"] if each["relationshipType"] == "CONTAINS"]
    assert len(contained) == 4  # the package and three files


def test_the_image_is_told_as_analysed_and_the_document_is_another() -> None:
    one, other = document(SHIPPED), document(SHIPPED, PLACED)
    assert one["documentNamespace"] != other["documentNamespace"]
    [image] = [each for each in one["packages"] if each["filesAnalyzed"]]
    code = hashlib.sha1(SUMS.sha1.encode(), usedforsecurity=False).hexdigest()
    assert image["packageVerificationCode"] == {"packageVerificationCodeValue": code}


def test_sums_are_of_the_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * (3 << 20))
    content = path.read_bytes()
    expected = hashlib.sha1(content, usedforsecurity=False).hexdigest()
    assert sums_of(path) == FileSums(expected, hashlib.sha256(content).hexdigest())
