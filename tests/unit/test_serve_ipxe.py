# SPDX-License-Identifier: Apache-2.0
"""iPXE's binaries: found under every distribution's names, copied whole."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from imagebuilder.errors import HostError
from imagebuilder.serve.ipxe import (
    ARCHITECTURES,
    NAMES,
    check_binaries,
    choose_boot_files,
    copy_binaries,
    find_binaries,
    missing_architectures,
)


def test_binaries_have_one_name_whatever_the_distribution(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    (theirs / "arm64-efi").mkdir(parents=True)
    ours.mkdir()
    for path in (ours / "ipxe.efi", theirs / "ipxe-x86_64.efi", theirs / "arm64-efi/snponly.efi"):
        path.touch()
    assert find_binaries([ours, theirs, tmp_path / "none"]) == {
        "ipxe.efi": ours / "ipxe.efi",
        "snponly-arm64.efi": theirs / "arm64-efi/snponly.efi",
    }


def test_a_binary_stands_in_for_its_sibling() -> None:
    files = choose_boot_files(("snponly.efi", "undionly.kpxe"))
    shown = {file.architecture.tag: (file.ipxe, file.snponly) for file in files}
    assert shown == {
        "bios": ("undionly.kpxe", "undionly.kpxe"),
        "x64": ("snponly.efi", "snponly.efi"),
        "x64http": ("snponly.efi", "snponly.efi"),
    }
    assert missing_architectures(files) == [
        "32-bit UEFI", "UEFI on arm64", "UEFI HTTP boot on arm64",
    ]  # fmt: skip


def test_every_architecture_has_its_own_numbers_and_known_binaries() -> None:
    numbers = [number for kind in ARCHITECTURES for number in kind.numbers]
    assert sorted(numbers) == [0, 6, 7, 9, 11, 16, 19]
    assert {kind.ipxe for kind in ARCHITECTURES} <= NAMES.keys()
    assert missing_architectures(choose_boot_files(tuple(NAMES))) == []


def test_no_binaries_at_all_are_told_of() -> None:
    with pytest.raises(HostError, match="no iPXE binaries"):
        check_binaries({})


def test_copies_are_whole_readable_and_no_more_than_there_are(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "tftp"
    source.mkdir(mode=0o700)
    target.mkdir()
    (source / "ipxe.efi").write_bytes(b"new")
    (source / "ipxe.efi").chmod(0o600)
    (target / "ipxe.efi").write_bytes(b"old")
    (target / "undionly.kpxe").write_bytes(b"of a package that is gone")
    (target / "pxelinux.0").write_bytes(b"not ours")
    copy_binaries(find_binaries([source]), target)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == {
        "ipxe.efi": b"new", "pxelinux.0": b"not ours",
    }  # fmt: skip
    assert stat.S_IMODE((target / "ipxe.efi").stat().st_mode) == 0o644
