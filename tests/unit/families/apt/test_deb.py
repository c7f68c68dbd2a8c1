# SPDX-License-Identifier: Apache-2.0
"""Reading packages as every archive compresses them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from imagebuilder.errors import WorkError
from imagebuilder.families.apt.deb import read_control, read_names
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
