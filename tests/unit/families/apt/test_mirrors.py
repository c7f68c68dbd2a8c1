# SPDX-License-Identifier: Apache-2.0
"""Mirrors of a host, from files as people have them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from imagebuilder.errors import HostError, InputError
from imagebuilder.families.apt.apt import split_login
from imagebuilder.families.apt.mirrors import archive_uri, default_notes, find_mirrors
from imagebuilder.recipe.types import Source

DEB822 = """\
# comment
Types: deb deb-src
URIs: http://m.example/debian/
Suites: trixie
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://s.example/debian-security
Suites: trixie-security
Components: main

Enabled: no
Types: deb
URIs: http://off.example/ubuntu
Suites: noble
"""
UBUNTU = """\
Types: deb
URIs: http://de.archive.example/ubuntu/
Suites: noble noble-updates
Components: main universe
Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg

Types: deb
URIs: http://security.example/ubuntu/
Suites: noble-security
Components: main universe
Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg
"""
VENDOR = "deb [arch=amd64 signed-by=/k.gpg] https://vendor.example/linux/debian trixie stable\n"


@pytest.fixture
def apt_root(tmp_path: Path) -> Path:
    (tmp_path / "sources.list.d").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("files", "site", "env", "expected"),
    [
        ({}, {}, {}, {}),
        (
            {"sources.list.d/debian.sources": DEB822},
            {},
            {},
            {
                "debian": "http://m.example/debian",
                "debian-security": "http://s.example/debian-security",
            },
        ),
        (
            {"sources.list": "deb http://a.example/debian sid main # main\ndeb-src x\n"},
            {},
            {},
            {
                "debian": "http://a.example/debian",
                "debian-security": "http://a.example/debian-security",
            },
        ),
        (
            {"sources.list.d/a.list": VENDOR, "sources.list.d/debian.sources": DEB822},
            {},
            {},
            {
                "debian": "http://m.example/debian",
                "debian-security": "http://s.example/debian-security",
            },
        ),
        (
            {"sources.list": "deb http://u.example/ubuntu noble main\ndeb cdrom:[x]/ noble main\n"},
            {},
            {},
            {"ubuntu": "http://u.example/ubuntu", "ubuntu-security": "http://u.example/ubuntu"},
        ),
        # Ubuntu as it installs itself: the security pocket has a host of its own.
        (
            {"sources.list.d/ubuntu.sources": UBUNTU},
            {},
            {},
            {
                "ubuntu": "http://de.archive.example/ubuntu",
                "ubuntu-security": "http://security.example/ubuntu",
            },
        ),
        # Whoever names a mirror means it for the security pocket too, or says so.
        (
            {"sources.list.d/ubuntu.sources": UBUNTU},
            {"ubuntu": "http://site.example/mirror/"},
            {},
            {
                "ubuntu": "http://site.example/mirror",
                "ubuntu-security": "http://site.example/mirror",
            },
        ),
        (
            {"sources.list.d/ubuntu.sources": UBUNTU},
            {"ubuntu-security": "http://site.example/sec"},
            {},
            {
                "ubuntu": "http://de.archive.example/ubuntu",
                "ubuntu-security": "http://site.example/sec",
            },
        ),
        # The variable is for one distribution; its address tells for which.
        (
            {"sources.list.d/debian.sources": DEB822},
            {"ubuntu": "http://site.example/ubuntu"},
            {"IMAGEBUILDER_MIRROR": "http://env.example/ubuntu/"},
            {
                "debian": "http://m.example/debian",
                "debian-security": "http://s.example/debian-security",
                "ubuntu": "http://env.example/ubuntu",
                "ubuntu-security": "http://env.example/ubuntu",
            },
        ),
        (
            {"sources.list": "deb http://ports.example/ubuntu-ports noble main\n"},
            {},
            {},
            {"ubuntu-ports": "http://ports.example/ubuntu-ports"},
        ),
        (
            {"sources.list.d/debian.sources": DEB822},
            {"debian": "http://site.example/debian/", "rocm": "http://r.example/x"},
            {},
            {
                "debian": "http://site.example/debian",
                "debian-security": "http://site.example/debian-security",
                "rocm": "http://r.example/x",
            },
        ),
        (
            {"sources.list.d/debian.sources": DEB822},
            {"debian": "http://site.example/debian"},
            {"IMAGEBUILDER_MIRROR": "http://env.example/debian/"},
            {
                "debian": "http://env.example/debian",
                "debian-security": "http://env.example/debian-security",
            },
        ),
        (
            {"sources.list.d/debian.sources": DEB822},
            {},
            {"IMAGEBUILDER_MIRROR": "http://env.example/other"},
            {
                "debian": "http://env.example/other",
                "debian-security": "http://s.example/debian-security",
            },
        ),
    ],
)
def test_mirrors_of_a_host(
    apt_root: Path,
    files: Mapping[str, str],
    site: Mapping[str, str],
    env: Mapping[str, str],
    expected: Mapping[str, str],
) -> None:
    for name, text in files.items():
        (apt_root / name).write_text(text)
    assert find_mirrors(site, env, apt_root) == expected


@pytest.mark.parametrize(
    "address",
    [
        "http://m.example/debian\nTrusted: yes",
        "http://m.example/debian main",
        "http://me:s3cret@[::1/debian",
        "http://[m.example]/debian",
        "http://m\u2100.example/debian",
        "http://",
        "file://[/srv/mirror",
        "ftp://m.example/debian",
        "-oDir::Etc=/x",
        "mirror.example/debian",
    ],
)
def test_a_variable_that_is_no_address_never_reaches_apt(apt_root: Path, address: str) -> None:
    """Another line of a stanza could let apt trust an archive that nobody signed."""
    with pytest.raises(InputError, match="IMAGEBUILDER_MIRROR: is not an address") as caught:
        find_mirrors({}, {"IMAGEBUILDER_MIRROR": address}, apt_root)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "http://m.example/debian",
        "https://me:s3cret@m.example:8443/a/[b]/debian",
        "http://[2001:db8::1]:3142/debian",
        "http://m.example/{snapshot}/",
        "file:/srv/mirror",
        "file:///srv/mirror[1]",
        "copy:/srv/mirror",
        "tor+http://m.example/debian",
    ],
)
def test_an_address_of_any_kind_that_apt_takes_passes(apt_root: Path, address: str) -> None:
    assert find_mirrors({}, {"IMAGEBUILDER_MIRROR": address}, apt_root) == find_mirrors(
        {"debian": address}, {}, apt_root
    )


@pytest.mark.parametrize("address", ["http://[::1/debian", "http://m\u2100.example/debian"])
def test_an_address_that_nothing_can_split_has_no_login(address: str) -> None:
    assert split_login(address) == (address, "")


def source(snapshot: str = "") -> Source:
    return Source("a", ("s",), ("main",), Path("/k"), mirror="debian", snapshot=snapshot)


def test_a_missing_mirror_says_where_to_give_one() -> None:
    with pytest.raises(HostError, match="no mirror named debian") as caught:
        archive_uri(source(), {})
    assert "IMAGEBUILDER_MIRROR" in str(caught.value)
    assert "mirrors: {debian: ADDRESS}" in str(caught.value)


def test_a_snapshot_goes_into_the_address() -> None:
    mirrors = {"debian": "http://s.example/archive/debian/{snapshot}"}
    stamp = "20260101T000000Z"
    assert archive_uri(source(stamp), mirrors) == f"http://s.example/archive/debian/{stamp}"
    with pytest.raises(InputError, match="has only snapshots, and a does not choose one"):
        archive_uri(source(), mirrors)
    with pytest.raises(HostError, match="has no snapshots"):
        archive_uri(source(stamp), {"debian": "http://m.example/debian"})


def test_a_vendor_is_reached_directly() -> None:
    vendor = Source("v", ("s",), ("main",), Path("/k"), uri="https://vendor.example/apt/")
    assert archive_uri(vendor, {}) == "https://vendor.example/apt"


def test_ubuntus_own_archive_is_there_for_all() -> None:
    sources = tuple(
        Source(name, ("noble",), ("main",), Path("/k"), mirror=name)
        for name in ("debian", "ubuntu", "ubuntu-security")
    )
    mirrors = {"debian": "http://m.example/debian", "ubuntu-security": "http://m.example/s"}
    assert archive_uri(sources[1], mirrors) == "http://archive.ubuntu.com/ubuntu"
    assert archive_uri(sources[2], mirrors) == "http://m.example/s"
    [note] = default_notes(sources, mirrors)
    assert note == (
        "no mirror named ubuntu in the site file or in the host's apt sources: "
        "using http://archive.ubuntu.com/ubuntu"
    )
    assert list(default_notes(sources, {**mirrors, "ubuntu": "http://m.example/ubuntu"})) == []
