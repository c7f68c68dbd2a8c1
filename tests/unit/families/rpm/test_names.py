# SPDX-License-Identifier: Apache-2.0
"""Units and accounts that packages may add, in headers and in payloads of every kind."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from imagebuilder.cpio import HEADER, Entry, render_cpio
from imagebuilder.errors import WorkError
from imagebuilder.families.rpm.header import RpmTag
from imagebuilder.families.rpm.names import names_of, read_names
from imagebuilder.lock.kept import NAMES, Names
from imagebuilder.lock.types import LockedPackage
from tests.fixtures.rpm_repository import Rpm
from tests.unit.families.rpm.packages import (
    Values,
    files_of,
    make_rpms,
    render_package,
)

FILE, LINK = 0o100644, 0o120777
UNIT = "/usr/lib/systemd/system/a.service"
SYSUSERS = "/usr/lib/sysusers.d/a.conf"
ALIAS = "[Install]\nAlias=b.service c.service\n"
DAEMON = Rpm(
    "daemon",
    files={
        UNIT: ALIAS,
        SYSUSERS: 'u alpha - "Alpha"\ng beta -\nm alpha gamma\n',
        "/etc/passwd": "root:x:0:0::/root:/bin/bash\nbin:x:1:1::/:/sbin/nologin\n",
        "/etc/rc.d/init.d/old": "#!/bin/sh\n",
        "/usr/lib/systemd/system-generators/x.service": "",
        "/usr/share/doc/x.service": "",
        "/usr/lib/systemd/user/u@.socket": "",
    },
    links={"/usr/lib/systemd/system/link.timer": "a.timer"},
    provides=("user(delta)", "group(epsilon) = 5", "groupmember(delta/wheel)"),
    scripts={
        "pre": "getent group zeta || groupadd -r zeta",
        "posttrans": "systemctl preset eta.service",
        "preun": "systemctl stop theta.service",
    },
)
HEADER_UNITS = {"a.service", "link.timer", "old.service", "u@.socket"}
ACCOUNTS = {"alpha", "beta", "root", "bin", "delta", "epsilon"}
PACKERS: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "lzma": lambda content: lzma.compress(content, lzma.FORMAT_ALONE),
    "bzip2": bz2.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize(
    "kind", ["w1.gzdio", "w1.xzdio", "w1.lzdio", "w1.bzdio", "w1.zstdio", "w.ufdio"]
)
def test_a_real_package_of_every_compression_is_read(tmp_path: Path, kind: str) -> None:
    rpm = replace(DAEMON, lines=(f"%global _binary_payload {kind}",))
    (path,) = make_rpms(tmp_path, rpm)
    first = read_names(path, whole=False)
    assert first.units == HEADER_UNITS
    assert not first.whole
    assert first.accounts == {"delta", "epsilon"}
    assert {"zeta", "eta.service", "groupadd"} <= first.words
    assert "theta.service" not in first.words
    whole = read_names(path, whole=True)
    assert whole.units == {*HEADER_UNITS, "b.service", "c.service"}
    assert whole.accounts >= ACCOUNTS
    assert (whole.words, whole.whole) == (first.words, True)


def test_a_package_without_such_files_needs_no_payload(tmp_path: Path) -> None:
    (path,) = make_rpms(tmp_path, Rpm("plain", files={"/usr/bin/plain": "x"}))
    assert read_names(path, whole=False).whole
    path.write_bytes(path.read_bytes()[:-100])
    assert read_names(path, whole=True) == Names(frozenset(), frozenset(), frozenset(), whole=True)


def locked(path: Path, pool: Path) -> LockedPackage:
    """A package of the pool, where it is put."""
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    (pool / f"{digest}.rpm").write_bytes(content)
    return LockedPackage("x", "1", "noarch", digest, len(content), "Packages/x.rpm", "s")


def test_what_was_read_is_kept_beside_the_package(tmp_path: Path) -> None:
    pool = tmp_path / "pool"
    pool.mkdir()
    packages = [locked(path, pool) for path in make_rpms(tmp_path, DAEMON, Rpm("plain"))]
    first = names_of(pool, packages, whole=False)
    assert [names.whole for names in first] == [False, True]
    whole = names_of(pool, packages, whole=True)
    for package in packages:
        (pool / f"{package.sha256}.rpm").unlink()
    assert names_of(pool, packages, whole=True) == whole
    (pool / f"{packages[0].sha256}{NAMES}").write_text("damaged")
    with pytest.raises(WorkError, match="not a readable package"):
        names_of(pool, packages, whole=True)


def package_of(
    path: Path,
    payload: bytes,
    files: Mapping[str, int] | None = None,
    compressor: str = "gzip",
    **more: Sequence[int],
) -> Path:
    """A package file of this payload."""
    values: Values = {
        RpmTag.NAME: "x",
        RpmTag.PAYLOADCOMPRESSOR: compressor,
        **files_of(files or {UNIT: FILE}, **more),
    }
    path.write_bytes(render_package(values, payload))
    return path


def units_of(path: Path) -> frozenset[str]:
    return read_names(path, whole=True).units


def stripped(*contents: tuple[int, bytes]) -> bytes:
    """The entries of files by their numbers in the header."""
    entries = b""
    for number, content in contents:
        head = b"07070X%08x" % number
        entries += head + bytes(-len(head) % 4) + content + bytes(-len(content) % 4)
    return entries


def archive(content: str = ALIAS, name: str = f".{UNIT}") -> bytes:
    return render_cpio([Entry(name, content.encode())])


def test_a_payload_with_large_files_has_their_numbers(tmp_path: Path) -> None:
    modes = {"/a": LINK, "/usr/lib/systemd/system/b.timer": FILE, UNIT: FILE, SYSUSERS: FILE}
    sizes = [3, 5, len(ALIAS), 7]
    payload = stripped((3, b"u beta -"[:7]), (0, b"a/b"), (2, ALIAS.encode()), (1, b"alpha"))
    path = package_of(
        tmp_path / "x.rpm",
        gzip.compress(payload + render_cpio([])),
        modes,
        longfilesizes=sizes,
    )
    names = read_names(path, whole=True)
    assert names.units == {"a.service", "b.timer", "b.service", "c.service"}
    assert names.accounts == {"beta"}


def test_the_last_of_hard_links_has_the_content(tmp_path: Path) -> None:
    twin = UNIT.replace("a.service", "twin.service")
    payload = stripped((0, b""), (1, ALIAS.encode())) + render_cpio([])
    size = len(ALIAS)
    path = package_of(
        tmp_path / "x.rpm", gzip.compress(payload), {twin: FILE, UNIT: FILE},
        filesizes=[size, size], filedevices=[1, 1], fileinodes=[7, 7],
    )  # fmt: skip
    assert units_of(path) == {"a.service", "twin.service", "b.service", "c.service"}


@pytest.mark.parametrize("name", [f".{UNIT}", UNIT, UNIT[1:]])
def test_a_name_is_below_the_root_however_it_is_spelt(tmp_path: Path, name: str) -> None:
    path = package_of(tmp_path / "x.rpm", gzip.compress(archive(name=name)))
    assert units_of(path) == {"a.service", "b.service", "c.service"}


@pytest.mark.parametrize("kind", list(PACKERS))
def test_what_unpacks_to_much_more_goes_to_no_disk_and_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", os.fspath(temporary))
    payload = render_cpio([Entry("./zeros", bytes(2 << 20)), Entry(f".{UNIT}", ALIAS.encode())])
    path = package_of(tmp_path / "x.rpm", PACKERS[kind](payload), compressor=kind)
    assert "b.service" in units_of(path)
    monkeypatch.setattr("imagebuilder.families.compressed.MOST_UNPACKED", 1 << 20)
    with pytest.raises(WorkError, match="it unpacks to more than 1048576 bytes"):
        units_of(path)
    assert not list(temporary.iterdir())


def test_a_dictionary_that_fills_the_memory_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imagebuilder.families.compressed.MOST_DICTIONARY", 1 << 20)
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 64 << 20}]
    packed = lzma.compress(archive(), filters=filters)
    with pytest.raises(WorkError, match="Memory usage limit"):
        units_of(package_of(tmp_path / "x.rpm", packed, compressor="xz"))


def test_several_streams_of_xz_are_read(tmp_path: Path) -> None:
    content = archive()
    packed = lzma.compress(content[:50]) + bytes(8) + lzma.compress(content[50:]) + bytes(4)
    path = package_of(tmp_path / "x.rpm", packed, compressor="xz")
    assert units_of(path) == {"a.service", "b.service", "c.service"}


def test_a_unit_that_unpacks_to_much_more_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imagebuilder.families.compressed.MOST_READ", 10)
    path = package_of(tmp_path / "x.rpm", gzip.compress(archive()))
    with pytest.raises(WorkError, match=r"a\.service has more than 10 bytes"):
        units_of(path)


def test_a_payload_of_too_many_files_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imagebuilder.families.rpm.names.MOST_FILES", 3)
    for count, is_read in ((3, True), (4, False)):
        payload = stripped(*[(0, b"")] * count) + render_cpio([])
        path = package_of(tmp_path / "x.rpm", gzip.compress(payload))
        if is_read:
            assert units_of(path) == {"a.service"}
            continue
        with pytest.raises(WorkError, match="it has more than 3 files"):
            units_of(path)


@pytest.mark.parametrize(
    ("payload", "what"),
    [
        (b"", "its payload is truncated"),
        (archive()[:HEADER], "its payload is truncated"),
        (archive()[:-130], "its payload is truncated"),
        (b"070702" + archive()[6:], "no file where the file 0 should begin"),
        (stripped((1, b"")), "its payload has a file 1 of 1"),
        (stripped((0xFFFFFFFF, b"")), "its payload has a file 4294967295 of 1"),
        (b"07070X-0000001", "non-hexadecimal"),
        (archive().replace(b"%08x" % (len(UNIT) + 2), b"ffffffff", 1), "a name of 4294967295 byt"),
        (archive().replace(b"%08x" % len(ALIAS), b"fffffff0", 1), "has more than 67108864 bytes"),
    ],
)
def test_a_payload_that_lies_is_an_error(tmp_path: Path, payload: bytes, what: str) -> None:
    path = package_of(tmp_path / "x.rpm", gzip.compress(payload))
    with pytest.raises(WorkError, match=what):
        units_of(path)


@pytest.mark.parametrize("kind", [*PACKERS, "lz4"])
def test_what_is_not_compressed_as_it_says_is_no_package(tmp_path: Path, kind: str) -> None:
    path = package_of(tmp_path / "x.rpm", b"x" * 2000, compressor=kind)
    with pytest.raises(WorkError, match="not a readable package"):
        units_of(path)


@pytest.mark.parametrize("kind", list(PACKERS))
def test_what_is_cut_off_is_no_package(tmp_path: Path, kind: str) -> None:
    path = package_of(tmp_path / "x.rpm", PACKERS[kind](archive())[:-40], compressor=kind)
    what = "package: it is truncated" if kind == "xz" else "not a readable package"
    with pytest.raises(WorkError, match=what):
        units_of(path)


def test_a_payload_that_is_no_cpio_archive_is_an_error(tmp_path: Path) -> None:
    values: Values = {RpmTag.PAYLOADFORMAT: "drpm", **files_of({UNIT: FILE})}
    (tmp_path / "x.rpm").write_bytes(render_package(values, gzip.compress(archive())))
    with pytest.raises(WorkError, match="its payload has the unknown format drpm"):
        units_of(tmp_path / "x.rpm")
