# SPDX-License-Identifier: Apache-2.0
"""Headers of packages: what rpm says of them, and what is made to be read wrongly."""

from __future__ import annotations

import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import pytest

from imagebuilder.errors import WorkError
from imagebuilder.families.rpm.header import (
    LEAD,
    RpmTag,
    checksum_of,
    parse_header,
    read_headers,
    read_package_header,
)
from imagebuilder.families.shipped import Checksum, ChecksumKind
from tests.fixtures.rpm_repository import Rpm
from tests.unit.families.rpm.packages import (
    Marked,
    Values,
    add_to_database,
    ask_rpm,
    files_of,
    make_rpms,
    render_blob,
    render_package,
)

FORM = (
    "%{NAME}|%{EPOCHNUM}:%{VERSION}-%{RELEASE}|%{ARCH}|%{LONGSIZE}|%{PAYLOADCOMPRESSOR}\\n"
    "[%{PROVIDENAME}|]\\n%{POSTIN}\\n%{PRETRANS}\\n"
    "[%{FILENAMES}|%{FILEMODES}|%{FILESIZES}|%{FILEFLAGS}|%{FILEDIGESTS}\\n]"
)
HELLO = Marked(
    "hello",
    "1.0~rc1",
    "3.el9_8.0.1",
    epoch=2,
    provides=("user(alpha)", "libhello.so.1()(64bit)"),
    files={
        "/etc/hello.conf": "a=1\n",
        "/usr/bin/hello": "#!/bin/sh\n",
        "/usr/share/hello/": "",
        "/usr/share/hello/ü": "é",
        "/var/log/hello.log": "",
    },
    links={"/usr/bin/hi": "hello"},
    marks={"/etc/hello.conf": "%config(noreplace)", "/var/log/hello.log": "%ghost"},
    scripts={"post": "useradd --system alpha", "pretrans": "true"},
)


@pytest.fixture(scope="module")
def hello(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (path,) = make_rpms(tmp_path_factory.mktemp("hello"), HELLO)
    return path


def described(path: Path) -> str:
    """What FORM asks for, as read here."""
    header = read_package_header(path)
    version = header.evr if ":" in header.evr else f"0:{header.evr}"
    files = "".join(
        f"{each.path}|{each.mode}|{each.size}|{each.flags}|{each.digest}\n"
        for each in header.entries()
    )
    return (
        f"{header.name}|{version}|{header.architecture}|{header.size}|{header.compressor}\n"
        f"{''.join(f'{each}|' for each in header.provides)}\n"
        f"{header.text(RpmTag.POSTIN) or '(none)'}\n{header.text(RpmTag.PRETRANS) or '(none)'}\n"
        f"{files}"
    )


def test_a_header_is_what_rpm_reads(hello: Path) -> None:
    assert described(hello) == ask_rpm("-qp", "--queryformat", FORM, hello)


@pytest.mark.parametrize("kind", ["xzdio", "zstdio", "bzdio", "lzdio"])
def test_so_is_one_with_another_payload_and_other_digests(tmp_path: Path, kind: str) -> None:
    lines = (f"%global _binary_payload w1.{kind}", "%global _binary_filedigest_algorithm 1")
    rpm = Rpm("other", files={"/usr/share/other": "other"}, lines=lines)
    (path,) = make_rpms(tmp_path, rpm)
    assert described(path) == ask_rpm("-qp", "--queryformat", FORM, path)
    header = read_package_header(path)
    (entry,) = header.entries()
    assert header.digest_kind is ChecksumKind.MD5
    md5 = "795f3202b17cb6bc3d4b771d8c6c9eaf"
    assert checksum_of(entry, header.digest_kind) == Checksum(ChecksumKind.MD5, md5)


def test_a_version_is_spelt_as_in_a_lock(hello: Path, tmp_path: Path) -> None:
    (plain,) = make_rpms(tmp_path, Rpm("plain", tags=(("Epoch", "0"),)))
    assert read_package_header(hello).evr == "2:1.0~rc1-3.el9_8.0.1"
    assert read_package_header(plain).evr == "1.0-1.el9"


def test_what_became_of_a_file_is_in_the_database(hello: Path, tmp_path: Path) -> None:
    database = add_to_database(tmp_path, hello)
    with closing(sqlite3.connect(f"file:{database}?immutable=1", uri=True)) as connection:
        ((blob,),) = connection.execute("SELECT blob FROM Packages")
    header = parse_header(blob)
    assert header.evr == read_package_header(hello).evr
    assert header.number(RpmTag.INSTALLTIME) == 1_700_000_000
    states = ask_rpm(
        "--dbpath", database.parent, "-q", "--queryformat", "[%{FILESTATES} ]", "hello"
    )
    assert [entry.state for entry in header.entries()] == [int(each) for each in states.split()]
    assert len(states.split()) == 6


def test_what_a_package_says_of_its_own_size(hello: Path) -> None:
    with hello.open("rb") as stream:
        headers = read_headers(stream)
        after = stream.tell()
    size = hello.stat().st_size
    assert LEAD < size - headers.signed_size < after


@pytest.mark.parametrize("size", [0, 3, 95, 96, 111, 112, 500, 1500, 3000])
def test_what_is_cut_off_is_no_package(hello: Path, tmp_path: Path, size: int) -> None:
    path = tmp_path / "x.rpm"
    path.write_bytes(hello.read_bytes()[:size])
    with pytest.raises(WorkError, match="not a readable package") as caught:
        read_package_header(path)
    assert caught.value.faults[0].where == str(path)


def test_what_does_not_begin_like_a_package_is_none(hello: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.rpm"
    path.write_bytes(b"x" + hello.read_bytes()[1:])
    with pytest.raises(WorkError, match="it does not start like one"):
        read_package_header(path)


def test_a_missing_file_is_no_package(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match="not a readable package"):
        read_package_header(tmp_path / "x.rpm")


@pytest.mark.parametrize("at", [104, -1])
def test_a_header_that_says_it_fills_the_memory_is_not_read(tmp_path: Path, at: int) -> None:
    content = bytearray(render_package({RpmTag.NAME: "x"}))
    place = at if at > 0 else content.rindex(b"\x8e\xad\xe8\x01") + 8
    for lie, what in (
        ((1 << 16, 8), "65536 entries, of at most 65535"),
        ((1, 0xFFFFFFFF), "4294967295 bytes, of at most 67108864"),
        ((0xFFFF, 64 << 20), "ends within its header"),
    ):
        content[place : place + 8] = struct.pack(">II", *lie)
        (tmp_path / "x.rpm").write_bytes(content)
        with pytest.raises(WorkError, match=what):
            read_package_header(tmp_path / "x.rpm")


def entry_of(tag: int, kind: int, offset: int, count: int, store: bytes = b"abc\0def") -> bytes:
    """A header with one entry."""
    return struct.pack(">IIIIII", 1, len(store), tag, kind, offset, count) + store


@pytest.mark.parametrize(
    ("kind", "offset", "count", "what"),
    [
        (10, 0, 1, "tag 1000 is of the unknown type 10"),
        (6, 8, 1, "tag 1000 is outside of the header"),
        (6, 0xFFFFFFFF, 1, "tag 1000 is outside of the header"),
        (8, 0, 8, "tag 1000 is outside of the header"),
        (4, 4, 1, "tag 1000 is outside of the header"),
        (5, 0, 0xFFFFFFFF, "tag 1000 has 4294967295 values"),
        (0, 0, 0xFFFFFFFF, "tag 1000 has 4294967295 values"),
        (7, 1, 7, "tag 1000 is outside of the header"),
    ],
)
def test_an_entry_that_leads_elsewhere_is_refused(
    kind: int, offset: int, count: int, what: str
) -> None:
    with pytest.raises(ValueError, match=what):
        parse_header(entry_of(1000, kind, offset, count))


@pytest.mark.parametrize("blob", [b"", b"\0" * 7, entry_of(1000, 6, 0, 1) + b"x", b"\xff" * 64])
def test_a_blob_of_another_size_is_refused(blob: bytes) -> None:
    with pytest.raises(ValueError, match=r"it has|its header has"):
        parse_header(blob)


def test_texts_without_an_end_are_refused() -> None:
    assert parse_header(entry_of(1000, 8, 0, 1)).texts(1000) == ["abc"]
    for offset, count in ((0, 2), (4, 1)):
        header = parse_header(entry_of(1000, 8, offset, count))
        with pytest.raises(ValueError, match="the texts of tag 1000 have no end"):
            header.texts(1000)


def test_values_of_another_type_are_none() -> None:
    header = parse_header(entry_of(1000, 4, 0, 1))
    assert (header.texts(1000), header.name) == ([], "")
    assert parse_header(entry_of(RpmTag.EPOCH, 6, 0, 1)).number(RpmTag.EPOCH) == 0
    assert parse_header(entry_of(1, 4, 0, 1)).evr == "-"


def test_what_rpm_adds_replaces_what_the_package_said() -> None:
    index = struct.pack(">IIIIIIII", 1000, 6, 0, 1, 1000, 6, 4, 1)
    assert parse_header(struct.pack(">II", 2, 8) + index + b"old\0new\0").name == "new"


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({RpmTag.DIRINDEXES: [1]}, "a is in the folder 1 of 1"),
        ({RpmTag.DIRINDEXES: [0xFFFFFFFF]}, "a is in the folder 4294967295 of 1"),
        ({RpmTag.DIRINDEXES: [0, 0]}, "argument 2 is shorter"),
        ({RpmTag.FILEMODES: [1, 2]}, "argument 2 is longer"),
        ({RpmTag.FILEDIGESTS: ["", ""]}, "is longer"),
    ],
)
def test_values_of_files_that_do_not_match_are_refused(
    values: dict[int, list[int]], what: str
) -> None:
    header = parse_header(render_blob({**files_of({"/a": 0o100644}), **values}))
    with pytest.raises(ValueError, match=what):
        list(header.entries())


def test_paths_that_fill_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("imagebuilder.families.rpm.header.MOST_PATHS", 1 << 20)
    blob = render_blob({
        RpmTag.DIRNAMES: ["/" + "x" * 4096],
        RpmTag.DIRINDEXES: [0] * 1000,
        RpmTag.BASENAMES: ["y"] * 1000,
    })  # fmt: skip
    with pytest.raises(ValueError, match="its paths have more than 1048576 characters"):
        list(parse_header(blob).paths())


@pytest.mark.parametrize(
    ("digest", "mode", "algorithm", "known"),
    [
        ("A" * 64, 0o100644, 8, True),
        ("a" * 32, 0o100644, 1, True),
        ("a" * 32, 0o100644, 8, False),
        ("a" * 64, 0o120777, 8, False),
        ("g" * 64, 0o100644, 8, False),
        ("a" * 128, 0o100644, 10, False),
        ("", 0o100644, 8, False),
    ],
)
def test_only_what_is_a_digest_is_a_checksum(
    digest: str,
    mode: int,
    algorithm: int,
    known: bool,  # noqa: FBT001 - a column
) -> None:
    values: Values = {RpmTag.FILEDIGESTS: [digest], RpmTag.FILEDIGESTALGO: algorithm}
    header = parse_header(render_blob({**files_of({"/a": mode}), **values}))
    (entry,) = header.entries()
    checksum = checksum_of(entry, header.digest_kind)
    assert (checksum is not None) is known
    assert checksum is None or checksum.value == digest.lower()
