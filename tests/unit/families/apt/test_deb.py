# SPDX-License-Identifier: Apache-2.0
"""Reading packages as every archive compresses them."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from imagebuilder.errors import WorkError
from imagebuilder.families.apt.deb import MAGIC, read_control, read_names
from imagebuilder.lock.kept import Names
from tests.fixtures.aptrepo import Deb, make_deb

NO_NAMES = Names(frozenset(), frozenset(), frozenset(), whole=False)
UNIT = "[Install]\nAlias=b.service\n"


@pytest.fixture
def deb(tmp_path: Path) -> Path:
    path = tmp_path / "hello.deb"
    make_deb(Deb("hello", files={"/usr/lib/systemd/system/a.service": UNIT}), path)
    return path


@pytest.mark.parametrize(
    ("kind", "ending"), [("none", ""), ("gzip", ".gz"), ("xz", ".xz"), ("zstd", ".zst")]
)
def test_every_compression_is_read(deb: Path, kind: str, ending: str) -> None:
    tree, packed = deb.with_name("tree"), deb.with_name("packed.deb")
    subprocess.run(["dpkg-deb", "--raw-extract", deb, tree], check=True)
    subprocess.run(["dpkg-deb", f"-Z{kind}", "--build", tree, packed], check=True)
    assert {f"control.tar{ending}", f"data.tar{ending}"} <= set(members(packed).split())
    record, names = read_control(packed)
    assert record == subprocess.run(
        ["dpkg-deb", "--field", packed], check=True, capture_output=True, text=True
    ).stdout  # fmt: skip
    assert read_names(packed, names).units == {"a.service", "b.service"}


def members(deb: Path) -> str:
    """The names of its members."""
    return subprocess.run(["ar", "t", deb], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("size", [0, 4, 100, 180, 400])
def test_what_is_cut_off_is_no_package(deb: Path, size: int) -> None:
    deb.write_bytes(deb.read_bytes()[:size])
    with pytest.raises(WorkError, match="not a readable package"):
        read_names(deb, read_control(deb)[1])


def archive_of(deb: Path, *parts: tuple[str, str, bytes]) -> Path:
    """A package of these members: name, size as written, content."""
    heads = (f"{name:16}{0:<12}{0:<6}{0:<6}{100644:<8}{size:10}`\n" for name, size, _ in parts)
    packed = (head.encode() + part[2] for head, part in zip(heads, parts, strict=True))
    deb.write_bytes(MAGIC + b"".join(packed))
    return deb


def tar_of(*files: tuple[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


@pytest.mark.parametrize(
    ("kind", "pack"),
    [
        ("", bytes),
        (".gz", gzip.compress),
        (".xz", lzma.compress),
        (".bz2", bz2.compress),
        (".zst", zstandard.ZstdCompressor().compress),
    ],
)
def test_what_unpacks_to_much_more_goes_to_no_disk_and_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, pack: Callable[[bytes], bytes]
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", os.fspath(temporary))
    content = pack(gzip.decompress(tar_of(("usr/share/zeros", bytes(2 << 20)))))
    deb = archive_of(tmp_path / "x.deb", (f"data.tar{kind}", str(len(content)), content))
    before = temporary.stat().st_mtime_ns
    read_names(deb, NO_NAMES)
    monkeypatch.setattr("imagebuilder.families.compressed.MOST_UNPACKED", 1 << 20)
    with pytest.raises(WorkError, match="it unpacks to more than 1048576 bytes"):
        read_names(deb, NO_NAMES)
    assert temporary.stat().st_mtime_ns == before


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_that_fills_the_memory_is_not_read(tmp_path: Path, kind: bytes) -> None:
    head = tarfile.TarInfo("x")
    head.type, head.size = kind, 1 << 32
    content = head.tobuf(tarfile.GNU_FORMAT)
    deb = archive_of(tmp_path / "x.deb", ("data.tar", str(len(content)), content))
    with pytest.raises(WorkError, match=f"a header has {1 << 32} bytes, of at most 1048576"):
        read_names(deb, NO_NAMES)


def test_a_package_of_too_many_files_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imagebuilder.families.apt.deb.MOST_FILES", 9)
    content = tar_of(*((str(number), b"") for number in range(11)))
    deb = archive_of(tmp_path / "x.deb", ("data.tar.gz", str(len(content)), content))
    with pytest.raises(WorkError, match="it has more than 9 files"):
        read_names(deb, NO_NAMES)


@pytest.mark.parametrize("kind", [".zst", ".xz", ".gz", ".lz4"])
def test_what_is_not_compressed_as_its_name_says_is_no_package(tmp_path: Path, kind: str) -> None:
    deb = archive_of(tmp_path / "x.deb", (f"control.tar{kind}", "2000", b"x" * 2000))
    with pytest.raises(WorkError, match="not a readable package"):
        read_control(deb)


def test_a_member_of_a_negative_size_is_no_loop(tmp_path: Path) -> None:
    deb = archive_of(tmp_path / "x.deb", ("debian-binary", "-60", b""), ("control.tar", "0", b""))
    with pytest.raises(WorkError, match="debian-binary has -60 bytes"):
        read_control(deb)


def test_a_package_without_a_control_file(tmp_path: Path) -> None:
    content = tar_of(("md5sums", b""))
    deb = archive_of(tmp_path / "x.deb", ("control.tar.gz", str(len(content)), content))
    with pytest.raises(WorkError, match="it has no control file"):
        read_control(deb)


@pytest.mark.parametrize("name", ["md5sums", "postinst"])
def test_a_file_that_is_unpacked_to_much_more_is_not_read(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imagebuilder.families.compressed.MOST_READ", 1 << 16)
    content = tar_of(("control", b"Package: x\n"), (name, bytes((1 << 16) + 1)))
    deb = archive_of(tmp_path / "x.deb", ("control.tar.gz", str(len(content)), content))
    with pytest.raises(WorkError, match=f"{name} has more than 65536 bytes"):
        read_control(deb)
