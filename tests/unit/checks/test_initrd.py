# SPDX-License-Identifier: Apache-2.0
"""What is compressed in an initrd has an end, and a size, wherever it is."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import zstandard

from imagebuilder.checks import initrd
from imagebuilder.checks.initrd import check_whole
from imagebuilder.cpio import Entry, render_cpio

SMALL = render_cpio([Entry("etc/a", b"a" * 5000)])
MOST = 8 << 20
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "zstd": zstandard.ZstdCompressor().compress,
    "gzip": gzip.compress,
    "xz": lzma.compress,
}


@cache
def packed_twice_the_most(pack: Callable[[bytes], bytes]) -> bytes:
    """An archive of one file that is larger than an initrd may be."""
    return pack(render_cpio([Entry("etc/b", bytes(2 * MOST))]))


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
@pytest.mark.parametrize(
    "before",
    [b"", SMALL, SMALL + zstandard.compress(SMALL), gzip.compress(SMALL) + bytes(8) + SMALL],
    ids=["alone", "archive", "frame", "all"],
)
def test_an_initrd_is_read_to_its_end(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pack: Callable[[bytes], bytes],
    before: bytes,
) -> None:
    monkeypatch.setattr(initrd, "MOST_UNPACKED", MOST)
    path = tmp_path / "initrd.img"
    path.write_bytes(before + pack(SMALL) + bytes(512))
    check_whole(path)
    path.write_bytes(before + packed_twice_the_most(pack))
    with pytest.raises(ValueError, match=f"unpacks to more than {MOST} bytes"):
        check_whole(path)
    path.write_bytes(before + pack(SMALL)[:-9])
    with pytest.raises(ValueError, match=r"truncated|corrupt"):
        check_whole(path)


def test_what_follows_of_another_kind_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "initrd.img"
    path.write_bytes(SMALL + gzip.compress(SMALL) + b"something else")
    check_whole(path)
