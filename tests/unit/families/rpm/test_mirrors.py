# SPDX-License-Identifier: Apache-2.0
"""Where the repositories of sources are on a host."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.errors import HostError, InputError
from imagebuilder.families.rpm.mirrors import (
    DEFAULTS,
    archive_uri,
    default_notes,
    find_mirrors,
    repositories_of,
    shown,
)
from imagebuilder.recipe.types import Source

KEY = Path("/k")
ROCKY = Source("rocky", ("9",), ("BaseOS", "AppStream"), KEY, mirror="rocky")
EPEL = Source("epel", ("9",), ("Everything",), KEY, mirror="epel")
CUDA = Source("cuda", ("/",), (), KEY, uri="https://vendor.example/repos/rhel9/x86_64/")


def test_the_site_file_alone_names_mirrors() -> None:
    env = {"IMAGEBUILDER_MIRROR": "http://m.example/debian"}
    assert find_mirrors({"rocky": "http://m.example/rocky/"}, env) == {
        "rocky": "http://m.example/rocky"
    }


def test_a_repository_for_each_component_of_each_suite() -> None:
    mirrors = {"rocky": "http://m.example/rocky"}
    found = repositories_of([ROCKY, EPEL, CUDA], mirrors, "amd64")
    assert [(each.name, each.uri, each.path) for each in found] == [
        (
            "rocky-9-BaseOS",
            "http://m.example/rocky/9/BaseOS/x86_64/os",
            "9/BaseOS/x86_64/os",
        ),
        (
            "rocky-9-AppStream",
            "http://m.example/rocky/9/AppStream/x86_64/os",
            "9/AppStream/x86_64/os",
        ),
        ("epel-9-Everything", f"{DEFAULTS['epel']}/9/Everything/x86_64", "9/Everything/x86_64"),
        ("cuda", "https://vendor.example/repos/rhel9/x86_64", ""),
    ]
    arm = repositories_of([ROCKY], mirrors, "arm64")
    assert [each.path for each in arm] == ["9/BaseOS/aarch64/os", "9/AppStream/aarch64/os"]


@pytest.mark.parametrize(
    ("suite", "path"), [("/", ""), ("./", ""), ("stable/el9/", "stable/el9"), ("/a/", "a")]
)
def test_a_suite_with_a_slash_at_its_end_is_an_exact_folder(suite: str, path: str) -> None:
    source = Source("v", (suite,), ("ignored", "too"), KEY, uri="https://v.example/r")
    (found,) = repositories_of([source], {}, "amd64")
    assert (found.path, found.uri) == (path, f"https://v.example/r/{path}".rstrip("/"))


@pytest.mark.parametrize(
    "suite", ["../other/", "a/../../b/", "a//b/", "a b/", "a\nb/", "..", "?x/"]
)
def test_no_suite_leads_out_of_the_archive(suite: str) -> None:
    source = Source("v", (suite,), ("main",), KEY, uri="https://v.example/r")
    with pytest.raises(InputError, match="is not a folder below an archive"):
        repositories_of([source], {}, "amd64")


def test_a_missing_mirror_says_what_to_write() -> None:
    source = Source("local", ("9",), ("BaseOS",), KEY, mirror="local")
    with pytest.raises(HostError, match=r"source local: no mirror named local.*\n.*mirrors: \{loc"):
        archive_uri(source, {})


def test_snapshots_are_in_the_address_of_a_mirror() -> None:
    moment = "20260101T000000Z"
    source = Source("rocky", ("9",), ("BaseOS",), KEY, mirror="rocky", snapshot=moment)
    mirrors = {"rocky": "file:/srv/{snapshot}/rocky"}
    assert archive_uri(source, mirrors) == f"file:///srv/{moment}/rocky"
    with pytest.raises(HostError, match="has no snapshots"):
        archive_uri(source, {})
    with pytest.raises(InputError, match="has only snapshots"):
        archive_uri(ROCKY, mirrors)


def test_default_mirrors_are_mentioned() -> None:
    (note,) = default_notes([ROCKY, EPEL, CUDA], {"rocky": "http://m.example/rocky"})
    assert note == f"no mirror named epel in the site file: using {DEFAULTS['epel']}"


def test_a_login_is_not_shown() -> None:
    source = Source("v", ("/",), (), KEY, uri="https://u:secret@v.example:8443/r")
    (found,) = repositories_of([source], {}, "amd64")
    assert shown(found) == "https://v.example:8443/r"
