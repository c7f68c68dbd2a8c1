# SPDX-License-Identifier: Apache-2.0
"""What dpkg's database says that packages ship: small databases, and what was made of each."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from imagebuilder.errors import InputError
from imagebuilder.families.apt.family import APT
from imagebuilder.families.registry import family_of_distribution
from imagebuilder.families.shipped import Checksum, ChecksumKind, ShippedFile, checksums_of
from imagebuilder.root import Root

DPKG = "var/lib/dpkg"
ONE, TWO = (hashlib.md5(text).hexdigest() for text in (b"one", b"two"))


def shipped(tmp_path: Path, files: Mapping[str, str]) -> Mapping[str, ShippedFile]:
    """What packages ship in a root with a merged /usr and these records of dpkg's."""
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "lib").symlink_to("usr/lib")
    for name, text in files.items():
        path = tmp_path / DPKG / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return APT.shipped_files(Root(tmp_path))


def md5(value: str) -> Checksum:
    return Checksum(ChecksumKind.MD5, value)


def test_files_have_their_package_and_its_checksum(tmp_path: Path) -> None:
    found = shipped(tmp_path, {
        "info/libx1:amd64.list": "/.\n/lib\n/lib/libx.so.1\n/usr\n/usr/share\n/usr/share/x y\n",
        "info/libx1:amd64.md5sums": f"{ONE}  lib/libx.so.1\n{TWO}  usr/share/x y\n",
        "info/format": "1\n",
    })  # fmt: skip
    assert found["/usr/lib/libx.so.1"] == ShippedFile("libx1", md5(ONE))
    assert found["/usr/share/x y"] == ShippedFile("libx1", md5(TWO))
    assert found["/usr/share"] == ShippedFile("libx1")
    assert found[f"/{DPKG}/info/libx1:amd64.md5sums"] == ShippedFile("libx1")
    assert not {"/lib/libx.so.1", "/."} & found.keys()


def test_a_configuration_file_has_the_checksum_it_was_shipped_with(tmp_path: Path) -> None:
    found = shipped(tmp_path, {
        "info/x.list": "/.\n/etc\n/etc/x.conf\n",
        "info/y.list": "/.\n/etc/moved\n",
        "status": (
            "Package: x\nStatus: install ok installed\nConffiles:\n"
            f" /etc/x.conf {ONE}\n /etc/old {TWO} obsolete\n /etc/moved {TWO} obsolete\n"
            " /etc/new newconffile\nVersion: 1\n\nPackage: y\nVersion: 2\n"
        ),
    })  # fmt: skip
    assert found["/etc/x.conf"] == ShippedFile("x", md5(ONE), config=True)
    assert found["/etc/old"] == ShippedFile("x", md5(TWO), config=True)
    assert found["/etc/moved"] == ShippedFile("y")
    assert "/etc/new" not in found


def test_a_diverted_file_is_where_dpkg_put_it(tmp_path: Path) -> None:
    found = shipped(tmp_path, {
        "info/dash.list": "/.\n/usr/bin/sh\n",
        "info/shells.list": "/.\n/usr/bin/sh\n",
        "info/shells.md5sums": f"{ONE}  usr/bin/sh\n",
        "diversions": "/usr/bin/sh\n/usr/bin/sh.distrib\ndash\n",
    })  # fmt: skip
    assert found["/usr/bin/sh"] == ShippedFile("dash")
    assert found["/usr/bin/sh.distrib"] == ShippedFile("shells", md5(ONE))


def test_a_root_without_a_database_has_nothing(tmp_path: Path) -> None:
    assert APT.shipped_files(Root(tmp_path)) == {}


def test_a_checksum_is_of_its_content_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one")
    sha256 = Checksum(ChecksumKind.SHA256, hashlib.sha256(b"one").hexdigest())
    assert md5(ONE).is_of(path)
    assert sha256.is_of(path)
    path.write_bytes(b"two")
    assert not md5(ONE).is_of(path)
    assert not sha256.is_of(path)


def test_the_packages_of_a_kernel_are_those_built_with_it() -> None:
    release = "6.1.0-9-amd64"
    its = [
        f"linux-image-{release}", f"linux-image-unsigned-{release}",
        f"linux-modules-extra-{release}",
    ]  # fmt: skip
    others = [
        f"linux-modules-nvidia-570-{release}", f"linux-headers-{release}", "linux-image-amd64",
        "linux-image-6.1.0-8-amd64",
    ]  # fmt: skip
    files = {f"/{name}": ShippedFile(name, md5(ONE)) for name in (*its, *others)}
    found = checksums_of(files, lambda name: APT.is_kernel_package(name, release))
    assert found == {f"/{name}": md5(ONE) for name in its}


def test_an_image_of_an_unknown_distribution_names_it() -> None:
    assert family_of_distribution("ubuntu") is APT
    with pytest.raises(InputError, match="supports the distribution 'plan9'"):
        family_of_distribution("plan9")


@pytest.mark.parametrize(
    ("path", "package"),
    [
        ("/usr/lib/firmware/amdgpu/gc_11_0_2_pfp.bin", "firmware-amd-graphics"),
        ("/usr/lib/firmware/other/x.bin", ""),
        ("libOpenCL.so.1", "the OpenCL loader (ocl-icd-libopencl1)"),
        ("libother.so.1", ""),
    ],
)
def test_who_brings_what_a_root_lacks(path: str, package: str) -> None:
    assert APT.package_with(path) == package
