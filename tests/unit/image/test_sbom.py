# SPDX-License-Identifier: Apache-2.0
"""The SBOM, against the rules of SPDX 2.3 that a reader depends on."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import cast

import pytest

from imagebuilder.families.apt.family import APT
from imagebuilder.image.sbom import SbomSubject, render_sbom, spdx_id
from imagebuilder.lock.types import LockedPackage, LockedWheel

SUBJECT = SbomSubject(
    profile="rx7600xt",
    version="1763712000-0123456789ab",
    digest="e" * 64,
    created=1763712000,
    family=APT,
    distribution="debian",
    suite="forky",
)
CXX = LockedPackage(
    name="libstdc++6",
    version="1:15.2.0-4+b1~x",
    architecture="amd64",
    sha256="a" * 64,
    size=716,
    path="pool/main/g/gcc-15/libstdc++6_15.2.0-4_amd64.deb",
    source="debian",
)
TZDATA = replace(
    CXX, name="tzdata", version="2026a-1", architecture="all", sha256="b" * 64,
    path="pool/main/t/tzdata/tzdata_2026a-1_all.deb",
)  # fmt: skip
WHEEL = LockedWheel(
    name="typing_extensions",
    version="4.16.0+local",
    filename="typing_extensions-4.16.0+local-py3-none-any.whl",
    sha256="c" * 64,
    size=44,
)
Entry = dict[str, object]


def parsed(text: str) -> tuple[dict[str, object], list[Entry], list[dict[str, str]]]:
    """The document, its packages and its relationships."""
    document = cast("dict[str, object]", json.loads(text))
    packages = cast("list[Entry]", document["packages"])
    return document, packages, cast("list[dict[str, str]]", document["relationships"])


def purl_of(entry: Entry) -> str:
    """The package URL of an entry."""
    (reference,) = cast("list[dict[str, str]]", entry["externalRefs"])
    assert reference["referenceCategory"] == "PACKAGE-MANAGER"
    assert reference["referenceType"] == "purl"
    return reference["referenceLocator"]


def test_the_document_has_the_fields_spdx_requires() -> None:
    document, packages, _ = parsed(render_sbom(SUBJECT, [CXX], [WHEEL]))
    assert document["spdxVersion"] == "SPDX-2.3"
    assert document["dataLicense"] == "CC0-1.0"
    assert document["SPDXID"] == "SPDXRef-DOCUMENT"
    assert document["name"] == "rx7600xt@1763712000-0123456789ab"
    creation = cast("dict[str, object]", document["creationInfo"])
    assert creation["created"] == "2025-11-21T08:00:00Z"
    assert re.fullmatch(r"Tool: imagebuilder-[0-9.]+", cast("list[str]", creation["creators"])[0])
    for entry in packages:
        assert {"SPDXID", "name", "downloadLocation"} <= set(entry)
        assert entry["filesAnalyzed"] is False
        assert entry["licenseConcluded"] == entry["licenseDeclared"] == "NOASSERTION"


def test_every_identifier_is_unique_well_formed_and_related_to_the_image() -> None:
    _, packages, relations = parsed(render_sbom(SUBJECT, [CXX, TZDATA], [WHEEL]))
    ids = [str(entry["SPDXID"]) for entry in packages]
    assert len(set(ids)) == len(ids) == 4
    assert all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", name) for name in ids)
    assert [
        (r["spdxElementId"], r["relationshipType"], r["relatedSpdxElement"]) for r in relations
    ] == [
        ("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Image"),
        *(("SPDXRef-Image", "CONTAINS", name) for name in sorted(ids[1:])),
    ]


def test_names_that_map_to_the_same_characters_stay_apart() -> None:
    assert spdx_id("deb", "a+b", "1" * 64) != spdx_id("deb", "a-b", "2" * 64)


def test_packages_carry_their_url_checksum_and_origin() -> None:
    _, packages, _ = parsed(render_sbom(SUBJECT, [CXX, TZDATA], [WHEEL]))
    cxx, tzdata, wheel = (
        next(entry for entry in packages if entry["name"] == name)
        for name in ("libstdc++6", "tzdata", "typing_extensions")
    )
    assert purl_of(cxx) == (
        "pkg:deb/debian/libstdc%2B%2B6@1:15.2.0-4%2Bb1~x?arch=amd64&distro=forky"
    )
    assert purl_of(tzdata).endswith("@2026a-1?arch=all&distro=forky")
    assert purl_of(wheel) == "pkg:pypi/typing-extensions@4.16.0%2Blocal"
    assert cxx["checksums"] == [{"algorithm": "SHA256", "checksumValue": "a" * 64}]
    assert cxx["packageFileName"] == "libstdc++6_15.2.0-4_amd64.deb"
    assert str(cxx["sourceInfo"]).startswith("apt source debian, pool/main/g/gcc-15/")
    assert wheel["packageFileName"] == WHEEL.filename


def test_the_text_depends_on_the_content_alone() -> None:
    text = render_sbom(SUBJECT, [CXX, TZDATA], [WHEEL])
    assert render_sbom(SUBJECT, [TZDATA, CXX, CXX], [WHEEL, WHEEL]) == text
    assert text.endswith("}\n")


@pytest.mark.parametrize(
    "other",
    [
        render_sbom(replace(SUBJECT, digest="f" * 64), [CXX]),
        render_sbom(replace(SUBJECT, created=1), [CXX]),
        render_sbom(SUBJECT, [TZDATA]),
        render_sbom(SUBJECT, [CXX], [WHEEL]),
    ],
    ids=["digest", "created", "package", "wheel"],
)
def test_another_content_has_another_namespace(other: str) -> None:
    here = parsed(render_sbom(SUBJECT, [CXX]))[0]["documentNamespace"]
    there = parsed(other)[0]["documentNamespace"]
    assert here != there
    assert re.fullmatch(
        r"https://spdx\.org/spdxdocs/imagebuilder-rx7600xt-[A-Za-z0-9.-]+", str(there)
    )
