# SPDX-License-Identifier: Apache-2.0
"""Files of an image that are to stop, fill or mislead who reads them: too large, pipes, bombs."""

from __future__ import annotations

import gzip
import lzma
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from time import process_time

import pytest
import zstandard

from imagebuilder import limited
from imagebuilder import root as root_module
from imagebuilder.elf import read_elf, read_needs
from imagebuilder.errors import WorkError
from imagebuilder.families.apt.database import read_shipped
from imagebuilder.limited import MOST_READ, UnpackError, map_file, unpack_gz, unpack_xz, unpack_zst
from imagebuilder.proof.clusters.slurm import SETTING
from imagebuilder.proof.code.prove import INTEL, read_content
from imagebuilder.proof.privileges.sudo import find_rules
from imagebuilder.proof.reading.modules import read_module
from imagebuilder.proof.reading.udev import read_rules
from imagebuilder.proof.services.devices import ASSIGNMENT, session_environment
from imagebuilder.proof.system.files.unread import LIBRARY
from imagebuilder.proof.system.network.firewall import DROPS
from imagebuilder.proof.system.units.start import listened_port
from imagebuilder.root import Root
from tests.fixtures import elf as fixtures
from tests.unit.proof.trees import Content, Link, make_tree, subject

ZEROS = 10 << 30


def sparse(root: Root, name: str, size: int = ZEROS) -> None:
    path = root.path / name.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        stream.truncate(size)


def test_a_file_larger_than_the_memory_is_refused_by_its_name(tmp_path: Path) -> None:
    root = Root(tmp_path)
    sparse(root, "/etc/passwd")
    with pytest.raises(
        WorkError, match=r"/etc/passwd: is too large: it has \d+ bytes.*\n  hint: .*why"
    ):
        root.text("/etc/passwd")
    sparse(root, "/etc/passwd", MOST_READ)
    assert len(root.read("/etc/passwd") or b"") == MOST_READ


def test_a_list_of_a_package_may_not_fill_the_memory(tmp_path: Path) -> None:
    root = Root(tmp_path)
    sparse(root, "/var/lib/dpkg/info/x.list")
    with pytest.raises(WorkError, match=r"x\.list: is too large"):
        read_shipped(root)


def test_no_code_for_gpus_is_looked_for_in_all_the_memory(tmp_path: Path) -> None:
    root = Root(tmp_path)
    sparse(root, "/usr/lib/kernels.bin")
    with pytest.raises(WorkError, match=r"kernels\.bin: is too large"):
        read_content(root, "/usr/lib/kernels.bin", target="bmg", maker=INTEL)


def test_a_large_model_is_searched_where_it_is(tmp_path: Path) -> None:
    root = Root(tmp_path)
    sparse(root, "/srv/model.gguf", 1 << 40)
    with pytest.raises(WorkError):
        root.map("/srv/model.gguf")
    sparse(root, "/srv/model.gguf")
    assert len(root.map("/srv/model.gguf") or b"") == ZEROS
    assert root.map("/srv/none") is None


@pytest.mark.parametrize("record", ["status", "diversions", "info/x.list", "info/x.md5sums"])
def test_nobody_waits_for_a_pipe_in_the_place_of_a_record(tmp_path: Path, record: str) -> None:
    make_tree(tmp_path, {"/var/lib/dpkg/info/x.list": "/etc/x\n", "/var/lib/dpkg/status": ""})
    path = tmp_path / "var/lib/dpkg" / record
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    assert read_shipped(Root(tmp_path)) is not None


def test_nobody_waits_for_a_pipe_in_the_place_of_a_library(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "libx.so")
    assert map_file(tmp_path / "libx.so") == b""
    assert read_needs(tmp_path / "libx.so") is None


@pytest.mark.parametrize("name", ["/usr/lib/a\0b", "/usr/lib/\ud800"])
def test_a_name_that_no_file_can_have_is_that_of_none(tmp_path: Path, name: str) -> None:
    root = make_tree(tmp_path, {"/usr/lib/a": "x"})
    assert root.resolve(name) is None
    assert root.read(name) is None
    assert not root.lies(name)
    assert root.glob(name) == []


def test_a_name_of_a_section_is_not_longer_than_names_are() -> None:
    content = fixtures.make_elf({".text": b"x", "n" * 100_000: b"y"})
    with pytest.raises(ValueError, match="damaged"):
        read_elf(content)


PACKERS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    ".xz": (lzma.compress, unpack_xz),
    ".gz": (gzip.compress, unpack_gz),
    ".zst": (zstandard.ZstdCompressor().compress, unpack_zst),
}


@pytest.mark.parametrize("ending", PACKERS)
def test_a_bomb_is_left_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    pack, unpack = PACKERS[ending]
    plain = bytes(range(256)) * 1000
    assert unpack(pack(plain)) == plain
    monkeypatch.setattr(limited, "MOST_UNPACKED", 1 << 20)
    bomb = pack(bytes(8 << 20))
    with pytest.raises(UnpackError, match="more than 1 MiB"):
        unpack(bomb)
    with pytest.raises(UnpackError, match="truncated"):
        unpack(pack(plain)[:-9])
    root = make_tree(tmp_path, {f"/x.ko{ending}": bomb})
    assert "unpacks to more than" in read_module(root, f"/x.ko{ending}").problem


@pytest.mark.parametrize("ending", PACKERS)
def test_every_stream_of_a_file_is_unpacked(monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    pack, unpack = PACKERS[ending]
    assert unpack(pack(b"one") + pack(b"two")) == b"onetwo"
    assert unpack(pack(b"one") + bytes(5000) + pack(b"two") + bytes(8)) == b"onetwo"
    with pytest.raises(UnpackError, match="truncated"):
        unpack(pack(b"one") + pack(bytes(range(256)))[:-9])
    with pytest.raises((lzma.LZMAError, zlib.error, zstandard.ZstdError)):
        unpack(pack(b"one") + b"something else")
    monkeypatch.setattr(limited, "MOST_UNPACKED", 5)
    with pytest.raises(UnpackError, match="unpacks to more"):
        unpack(pack(b"one") + pack(b"two"))
    monkeypatch.undo()
    monkeypatch.setattr(limited, "MOST_STREAMS", 3)
    assert unpack(pack(b"one") * 3) == b"one" * 3
    with pytest.raises(UnpackError, match="more than 3 streams"):
        unpack(pack(b"one") * 4)


def test_what_pzstd_writes_is_unpacked() -> None:
    skipped = (0x184D2A50).to_bytes(4, "little") + (4).to_bytes(4, "little") + b"size"
    pack, unpack = PACKERS[".zst"]
    assert unpack(skipped + pack(b"one") + skipped + pack(b"two")) == b"onetwo"


@pytest.mark.parametrize("links", [{"/d/a": Link("."), "/d/b": Link(".")}, {"/d/a/": ""}])
def test_a_pattern_of_the_image_finds_no_end_of_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: dict[str, Content]
) -> None:
    monkeypatch.setattr(root_module, "MOST_MATCHES", 1000)
    root = make_tree(tmp_path, {**links, "/d/c/": "", "/d/e/": ""})
    assert len(root.glob("/d/*")) == len(links) + 2
    with pytest.raises(WorkError, match="matches more than"):
        root.glob("/d" + "/*/.." * 40 + "/*" * 40 if "/d/a/" in links else "/d" + "/*" * 40)


LONG = {
    "/etc/sudoers": f"a{' ' * 200_000}b\n",
    "/etc/pam.d/x": f"auth [{'success=1' * 20_000}\n",
    "/etc/udev/rules.d/1.rules": f"{'a' * 60_000}\n{'a{' * 60_000}\n",
}


@pytest.mark.parametrize("path", LONG)
def test_a_long_line_takes_no_minutes(tmp_path: Path, path: str) -> None:
    root = make_tree(tmp_path, {"/usr/bin/sudo": "", path: LONG[path]})
    start = process_time()
    assert not list(find_rules(root))
    assert all(not rule.parts for rule in read_rules(subject(root)))
    assert process_time() - start < 1


def test_nor_do_many_empty_lines_and_hooks(tmp_path: Path) -> None:
    root = make_tree(tmp_path, {"/etc/x": "A=1" + "\n" * 100_000 + "B=2\n", "/etc/y": "\n \n"})
    start = process_time()
    assert [found["name"] for found in ASSIGNMENT.finditer(root.text("/etc/x"))] == ["A", "B"]
    assert not DROPS.search("hook input " * 20_000)
    assert process_time() - start < 1
    assert root.text("/etc/y") == "\n \n"


@pytest.mark.parametrize(
    "text", ["A='" + "x" * 4_000_000 + "'\n", "\n" * 400_000, "A=" + "y" * 4_000_000 + "\n"]
)
def test_variables_of_logins_take_no_time(tmp_path: Path, text: str) -> None:
    root = make_tree(tmp_path, {"/etc/environment": text})
    started = process_time()
    session_environment(root)
    assert process_time() - started < 5


def test_paths_in_settings_take_no_time() -> None:
    started = process_time()
    assert not LIBRARY.search("@/" * 32_000)
    assert not LIBRARY.search("/a" * 32_000)
    assert process_time() - started < 5


def test_long_lines_take_no_time_that_grows_with_their_square() -> None:
    started = process_time()
    assert SETTING.search("a" * 400_000) is None
    assert listened_port(["/usr/bin/x", "--" * 200_000 + "-bind"]) == ""
    assert process_time() - started < 20
