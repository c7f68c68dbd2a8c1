# SPDX-License-Identifier: Apache-2.0
"""What is not compressed of an initrd becomes a file of its own, and nothing is lost."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from imagebuilder.bootfiles import MOST, check_made, read_release
from imagebuilder.cpio import Entry, render_cpio
from imagebuilder.errors import WorkError
from imagebuilder.steps.initrd import split_initrd

MICROCODE = render_cpio([Entry("kernel/x86/microcode/GenuineIntel.bin", b"m" * 1001)])
MODULES = render_cpio([Entry("usr/lib/modules/7/nic.ko.xz", b"x" * 333)])
# The magic number of zstd, then anything: here what a further archive begins with.
PACKED = b"\x28\xb5\x2f\xfd" + MODULES


def blocks(archive: bytes) -> bytes:
    """As cpio(1) writes an archive."""
    return archive + bytes(-len(archive) % 512)


def split(folder: Path, initrd: bytes) -> dict[str, bytes]:
    """The files that become of an initrd."""
    (folder / "initrd.img").write_bytes(initrd)
    split_initrd(folder)
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o644}
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    "early",
    [blocks(MICROCODE) + blocks(MODULES), MICROCODE + MODULES, blocks(MICROCODE) + bytes(4096)],
    ids=["blocks", "no padding", "much padding"],
)
def test_archives_without_compression_are_split_off(tmp_path: Path, early: bytes) -> None:
    found = split(tmp_path, early + PACKED)
    assert found == {"early.img": early, "initrd.img": PACKED + bytes(-len(PACKED) % 4)}


@pytest.mark.parametrize(
    "initrd", [PACKED, blocks(MICROCODE) + MODULES, MODULES], ids=["packed", "several", "one"]
)
def test_an_initrd_of_one_kind_stays_whole(tmp_path: Path, initrd: bytes) -> None:
    assert split(tmp_path, initrd) == {"initrd.img": initrd + bytes(-len(initrd) % 4)}


@pytest.mark.parametrize("size", range(len(MODULES) - 120, len(MODULES) - 1, 7))
def test_an_archive_without_an_end_is_an_error(tmp_path: Path, size: int) -> None:
    with pytest.raises(WorkError, match="ends after"):
        split(tmp_path, blocks(MICROCODE) + MODULES[:size])


@pytest.mark.parametrize("field", [b"zzzzzzzz", b"-0000070", b"\xff" * 8, b"        "])
def test_damaged_lengths_are_an_error(tmp_path: Path, field: bytes) -> None:
    """With a negative one, an archive would begin again and again."""
    entry = render_cpio([Entry("a", b"x")])[:112]
    with pytest.raises(WorkError, match="cannot be read"):
        split(tmp_path, entry[:54] + field + entry[62:] + MODULES[:40])


def test_a_name_takes_no_memory(tmp_path: Path) -> None:
    entry = render_cpio([Entry("a", b"x")])[:112]
    with pytest.raises(WorkError, match="corrupt: an archive has a name of 4294967280 bytes"):
        split(tmp_path, entry[:94] + b"fffffff0" + entry[102:])


@pytest.mark.parametrize("name", ["vmlinuz", "initrd.img"])
def test_a_boot_file_that_no_node_could_boot_is_an_error(tmp_path: Path, name: str) -> None:
    with (tmp_path / name).open("wb") as stream:
        stream.truncate(MOST)
        check_made(tmp_path)
        stream.truncate(MOST + 1)
    with pytest.raises(WorkError, match=f"made '{name}' of 4294967297 bytes.* at most 4 GiB"):
        check_made(tmp_path)


@pytest.mark.parametrize(
    "said", [b"", b"../../../etc", b"7.2\x1b[2J", b"\xff", b"7 8", b"7" * 65, b"7;reboot"]
)
def test_a_release_that_no_kernel_has_is_an_error(tmp_path: Path, said: bytes) -> None:
    (tmp_path / "kernel-version").write_bytes(b"7.2.12+deb14-amd64\n")
    assert read_release(tmp_path) == "7.2.12+deb14-amd64"
    (tmp_path / "kernel-version").write_bytes(said)
    with pytest.raises(WorkError, match="no release that uname"):
        read_release(tmp_path)
    (tmp_path / "kernel-version").unlink()
    (tmp_path / "kernel-version").symlink_to("/etc/hostname")
    with pytest.raises(WorkError, match="has no release: "):
        read_release(tmp_path)


@pytest.mark.parametrize("what", ["nothing", "a link", "a pipe"])
def test_what_is_no_file_is_an_error(tmp_path: Path, what: str) -> None:
    initrd, outside = tmp_path / "initrd.img", tmp_path.parent / "outside"
    outside.write_bytes(MICROCODE + PACKED)
    if what == "a link":
        initrd.symlink_to(outside)
    elif what == "a pipe":
        os.mkfifo(initrd)
    with pytest.raises(WorkError, match="cannot be read"):
        split_initrd(tmp_path)
    assert outside.read_bytes() == MICROCODE + PACKED


@pytest.mark.parametrize(
    "name",
    ["vmlinuz", "kernel-version", "cmdline", "sbom.spdx.json", "manifest.json", "build.json"],
)
@pytest.mark.parametrize("what", ["a link", "a pipe", "a folder"])
def test_nothing_but_boot_files_is_beside_an_initrd(tmp_path: Path, name: str, what: str) -> None:
    """Root of the builder reads the first two, and writes the others."""
    out = tmp_path / "out"
    out.mkdir()
    for each in ("vmlinuz", "kernel-version", "initrd.img"):
        (out / each).write_bytes(b"x")
    check_made(out)
    (out / name).unlink(missing_ok=True)
    if what == "a link":
        (out / name).symlink_to("/etc/shadow")
    elif what == "a pipe":
        os.mkfifo(out / name)
    else:
        (out / name).mkdir()
    with pytest.raises(WorkError, match=f"left '{name}' beside the initrd"):
        check_made(out)
