# SPDX-License-Identifier: Apache-2.0
"""ELF files: needs read fast agree with pyelftools; bytes are found through program headers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile

from imagebuilder.elf import find_elf, read_needs
from tests.fixtures.elf import AARCH64, LOADER, PAGE, make_elf, make_module

HOST = sorted(Path("/usr/lib/x86_64-linux-gnu").glob("lib[a-d]*.so.*"))[:40]


def needs_by_pyelftools(path: Path) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """NEEDED, SONAME and RUNPATH as a library made for it reads them."""
    with path.open("rb") as file:
        segment = next(ELFFile(file).iter_segments("PT_DYNAMIC"))
        assert isinstance(segment, DynamicSegment)
        found: dict[str, list[str]] = {}
        for tag in segment.iter_tags():
            name = str(tag.entry.d_tag)
            # pyelftools names the text of an entry by its tag: tag.needed, tag.soname.
            found.setdefault(name, []).append(getattr(tag, name[3:].lower(), ""))
        runpath = found.get("DT_RUNPATH", [""])[0].split(":")
        soname = found.get("DT_SONAME", [""])[0]
        return tuple(found.get("DT_NEEDED", ())), soname, tuple(f for f in runpath if f)


def test_the_hosts_files_are_read_as_pyelftools_reads_them() -> None:
    paths = [Path(sys.executable).resolve(), Path("/usr/bin/env").resolve(), *HOST]
    compared = 0
    for path in paths:
        needs = read_needs(path)
        if needs is not None:
            assert (needs.needed, needs.soname, needs.runpath) == needs_by_pyelftools(path), path
            compared += 1
    assert compared > 2


def test_sections_are_those_that_pyelftools_finds() -> None:
    for path in HOST:
        elf = find_elf(path)
        assert elf is not None
        with path.open("rb") as file:
            sections = [
                (one.name, one["sh_addr"], one["sh_offset"], one["sh_size"])
                for one in ELFFile(file).iter_sections()
            ]
        assert [(s.name, s.addr, s.offset, s.size) for s in elf.sections] == sections, path


def test_needs_of_a_library(tmp_path: Path) -> None:
    path = tmp_path / "a.so"
    path.write_bytes(
        make_elf(soname="liba.so.1", needed=["libc.so.6", "libb.so"], runpath="$ORIGIN:/opt/x")
    )
    needs = read_needs(path)
    assert needs is not None
    assert needs.soname == "liba.so.1"
    assert needs.needed == ("libc.so.6", "libb.so")
    assert needs.runpath == ("$ORIGIN", "/opt/x")
    assert (needs.rpath, needs.interpreter, needs.bits, needs.machine) == ((), "", 64, 62)


def test_needs_of_a_program_and_of_another_machine(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(make_elf(interpreter=LOADER, rpath="/opt/lib", needed=["x"], machine=AARCH64))
    needs = read_needs(path)
    assert needs is not None
    assert (needs.interpreter, needs.rpath, needs.machine) == (LOADER, ("/opt/lib",), AARCH64)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"#!/bin/sh\n",
        b"\x7fELF" + bytes(8),
        make_module({"license": "GPL"}),
        make_elf(needed=["libc.so.6"])[:2000],
        make_elf(needed=["libc.so.6"])[: 3 * PAGE],
    ],
    ids=["empty", "script", "magic only", "no dynamic section", "cut short", "cut in the middle"],
)
def test_what_has_no_needs(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    assert read_needs(path) is None


def test_addresses_lead_through_program_headers(tmp_path: Path) -> None:
    content = b"A" * PAGE + b"B" * PAGE + b"C" * 100
    path = tmp_path / "a.so"
    path.write_bytes(make_elf({".data": content}, holes={".data": [(PAGE, 2 * PAGE)]}))
    file = find_elf(path)
    assert file is not None
    (section,) = file.named(".data")
    assert not file.holds(section)
    assert file.at(section.addr, 4) == b"AAAA"
    assert file.at(section.addr + PAGE, 4) == b""
    assert file.at(section.addr + 2 * PAGE, 100) == b"C" * 100
    assert file.at(section.addr + PAGE - 2, 4) == b"", "half of it is in no segment"
    assert [size for _, _, size in file.pieces(section)] == [PAGE, 100]


def test_nonsense_is_no_elf_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    whole = make_elf({".data": b"x"})
    for content in (b"", b"text" * 40, whole[:70], whole[:40] + b"\xff" * 24 + whole[64:]):
        path.write_bytes(content)
        file = find_elf(path)
        assert file is None or not file.named(".data")
