# SPDX-License-Identifier: Apache-2.0
"""Reading packages as every archive compresses them."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from imagebuilder.errors import WorkError
from imagebuilder.families.apt.deb import MAGIC, read_control, read_names
from tests.fixtures.aptrepo import Deb, make_deb

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
    monkeypatch.setattr("imagebuilder.families.apt.deb.MOST_READ", 1 << 16)
    content = tar_of(("control", b"Package: x\n"), (name, bytes((1 << 16) + 1)))
    deb = archive_of(tmp_path / "x.deb", ("control.tar.gz", str(len(content)), content))
    with pytest.raises(WorkError, match=f"{name} has more than 65536 bytes"):
        read_control(deb)
