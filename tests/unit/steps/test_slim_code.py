# SPDX-License-Identifier: Apache-2.0
"""Device code for other targets goes, and what stays is what it was: asked of ld.so as well."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from imagebuilder.elf import Elf, read_elf
from imagebuilder.process import run
from imagebuilder.slim.code import slim_code
from imagebuilder.slim.compact import plan_layout, write_compact
from imagebuilder.slim.compare import differences
from imagebuilder.slim.fatbin import Fatbin, read_fatbin
from imagebuilder.slim.types import Kept, SlimChange, SlimError, SlimOrder
from tests.fixtures.elf import compress_bundle
from tests.unit.proof.trees import Link, make_tree
from tests.unit.steps.hip_library import BEHIND, RODATA, Faults, bundle_of, make_hip_library

LIBRARY = "/usr/lib/libmath.so.1"
KERNELS = "/usr/lib/rocblas/library"

# Loads the library and follows its pointers as the HIP runtime does.
LOOK = """
import ctypes, hashlib, json, struct, sys
library = ctypes.CDLL(sys.argv[1])
place = ctypes.addressof(ctypes.c_char.in_dll(library, "wrappers"))
found = []
for number in range(int(sys.argv[2])):
    row = ctypes.string_at(place + 24 * number, 24)
    magic, version, start, unused = struct.unpack("<IIQQ", row)
    assert (magic, version, unused) == (0x48495046, 1, 0)
    assert ctypes.string_at(start, 24) == b"__CLANG_OFFLOAD_BUNDLE__" and start % 4096 == 0
    count, place_of_row, bundle = struct.unpack("<Q", ctypes.string_at(start + 24, 8))[0], 32, []
    for _ in range(count):
        row = struct.unpack("<QQQ", ctypes.string_at(start + place_of_row, 24))
        name = ctypes.string_at(start + place_of_row + 24, row[2]).decode()
        assert row[0] % 4096 == 0
        bundle.append([name, hashlib.sha256(ctypes.string_at(start + row[0], row[1])).hexdigest()])
        place_of_row += 24 + row[2]
    found.append(bundle)
behind = ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, "behind")), 5000)
print(json.dumps({"bundles": found, "behind": behind.hex()}))
"""


def slim(path: Path, content: bytes, targets: Sequence[str] = ("gfx1102",)) -> list[str]:
    """Slim a root with this library; what is told."""
    root = make_tree(path, {LIBRARY: content, "/usr/lib/libmath.so": Link("libmath.so.1")})
    order = SlimOrder(code=tuple(targets), code_in=("/usr/lib/libmath.so*",))
    return [str(told) for told in slim_code(root, order)]


def look(path: Path, bundles: int = 3) -> tuple[list[dict[str, str]], bytes]:
    """What a program that loads the library finds: by wrapper ids and digests, and `behind`."""
    said = json.loads(run([sys.executable, "-I", "-c", LOOK, path, str(bundles)]).stdout)
    return [dict(bundle) for bundle in said["bundles"]], bytes.fromhex(said["behind"])


def read(content: bytes) -> tuple[Elf, Fatbin]:
    """A library with its fat binary."""
    elf = read_elf(content)
    assert elf is not None
    fatbin = read_fatbin(elf)
    assert fatbin is not None
    return elf, fatbin


@pytest.mark.parametrize("faults", [Faults(), Faults(in_place=True)])
def test_only_the_target_is_left_and_it_loads(tmp_path: Path, faults: Faults) -> None:
    content = make_hip_library(faults=faults)
    place = tmp_path / LIBRARY[1:]
    slim(tmp_path / "untouched", content, ["gfx1030", "gfx1100", "gfx1102"])
    before, _ = look(tmp_path / "untouched" / LIBRARY[1:])
    told = slim(tmp_path, content)
    after, behind = look(place)
    assert told == [f"kept only gfx1102 in {LIBRARY}: 168 kB -> 74 kB"]
    assert [sorted(bundle) for bundle in after] == [
        ["hipv4-amdgcn-amd-amdhsa--gfx1102", "host-x86_64-unknown-linux-gnu-"]
    ] * 3
    assert all(bundle[name] == old[name] for bundle, old in zip(after, before, strict=True)
               for name in bundle)  # fmt: skip
    assert len({bundle["hipv4-amdgcn-amd-amdhsa--gfx1102"] for bundle in after}) == 3
    assert behind == BEHIND
    assert place.stat().st_blocks * 512 >= place.stat().st_size - 4096  # no holes
    assert [entry.name for entry in place.parent.iterdir() if entry.name.startswith(".")] == []


def test_all_else_is_as_it_was(tmp_path: Path) -> None:
    content = make_hip_library()
    slim(tmp_path, content)
    old, _ = read(content)
    new, _ = read((tmp_path / LIBRARY[1:]).read_bytes())
    rows = {section.name: section for section in new.sections}
    for section in old.sections:
        row = rows[section.name]
        assert (row.addr, row.type, row.flags) == (section.addr, section.type, section.flags)
        if section.name not in (".hip_fatbin", ".hipFatBinSegment", ".rela.dyn"):
            assert new.content(row) == old.content(section)
    assert new.content(rows[".rodata"]) == RODATA
    assert len(new.segments) == len(old.segments) + 1
    said = run(["readelf", "-lSW", tmp_path / LIBRARY[1:]], check=False)
    assert "arning" not in said.stdout + said.stderr


def test_equal_libraries_stay_equal_and_slimming_twice_changes_nothing(tmp_path: Path) -> None:
    for name in "ab":
        slim(tmp_path / name, make_hip_library())
    first, second = ((tmp_path / name / LIBRARY[1:]).read_bytes() for name in "ab")
    assert first == second
    assert slim(tmp_path / "a", first) == []
    assert (tmp_path / "a" / LIBRARY[1:]).read_bytes() == first


def test_code_for_a_family_of_the_target_stays(tmp_path: Path) -> None:
    bundles = [bundle_of(n, ["gfx900", "gfx1030", "gfx11-generic"]) for n in range(2)]
    told = slim(tmp_path, make_hip_library(bundles))
    assert [line.partition(" in ")[0] for line in told] == ["kept only gfx11-generic"]
    assert all(len(bundle) == 2 for bundle in look(tmp_path / LIBRARY[1:], 2)[0])


def test_features_do_not_make_another_target(tmp_path: Path) -> None:
    bundles = [bundle_of(n, ["gfx90a:xnack+", "gfx90a:xnack-", "gfx1102"]) for n in range(2)]
    slim(tmp_path, make_hip_library(bundles), ["gfx90a"])
    assert all(len(bundle) == 3 for bundle in look(tmp_path / LIBRARY[1:], 2)[0])


def test_a_bundle_without_the_target_keeps_its_place(tmp_path: Path) -> None:
    bundles = [bundle_of(0), bundle_of(1, ["gfx900", "gfx1030"]), bundle_of(2)]
    slim(tmp_path, make_hip_library(bundles))
    assert [len(bundle) for bundle in look(tmp_path / LIBRARY[1:])[0]] == [2, 1, 2]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (make_hip_library([compress_bundle(bundle_of(n)) for n in range(2)]), "compressed (CCOB)"),
        (make_hip_library(faults=Faults(stray=True)), "other than a wrapper points to its code"),
        (make_hip_library(faults=Faults(exported=True)), "exports symbols in its code"),
        (make_hip_library(faults=Faults(magic=0x4B414D48)), "wrapper 0 in .hipFatBinSegment"),
        (make_hip_library([bundle_of(0), b"x" * 9000]), "not a bundle of code objects at"),
    ],
)
def test_what_is_not_understood_is_left_whole(tmp_path: Path, content: bytes, why: str) -> None:
    root = make_tree(tmp_path, {LIBRARY: content, "/usr/lib/libok.so": make_hip_library()})
    order = SlimOrder(code=("gfx1102",), code_in=("/usr/lib/lib*",))
    told = list(slim_code(root, order))
    assert [type(one) for one in told] == [Kept, SlimChange]
    assert why in str(told[0])
    assert (tmp_path / LIBRARY[1:]).read_bytes() == content


def test_a_damaged_file_is_left_whole(tmp_path: Path) -> None:
    content = make_hip_library()[:-64]
    files = {LIBRARY: content, f"{KERNELS}/a_gfx1102.co": b"k"}
    order = SlimOrder(code=("gfx1102",), code_in=("/usr/lib/lib*", f"{KERNELS}/*"))
    told = list(slim_code(make_tree(tmp_path, files), order))
    assert [str(one) for one in told] == [f"kept {LIBRARY}: a damaged ELF file"]


@pytest.mark.parametrize(
    ("section", "offset", "what"),
    [
        ("", 0, ""),
        (".hip_fatbin", 4096 + 4096 + 100, "the remaining code objects changed"),
        (".rodata", 7, "the content of section .rodata changed"),
        (".eh_frame_hdr", 4999, "the content of section .eh_frame_hdr changed"),
        (".comment", 1, "the content of section .comment changed"),
        (".hipFatBinSegment", 17, "the content of section .hipFatBinSegment changed"),
    ],
)
def test_damage_is_seen_before_the_old_file_goes(
    tmp_path: Path, section: str, offset: int, what: str
) -> None:
    old, was = read(make_hip_library())
    layout = plan_layout(old, was, ["gfx1102"])
    assert layout is not None
    with (tmp_path / "new").open("wb") as out:
        write_compact(old, was, layout, out)
    content = bytearray((tmp_path / "new").read_bytes())
    if section:
        found = read(bytes(content))[0].find(section)
        assert found is not None
        content[found.offset + offset] ^= 1
    new, now = read(bytes(content))
    assert list(differences(old, new, (was, now), ["gfx1102"])) == ([what] if what else [])


def test_segments_in_the_wrong_place_are_seen(tmp_path: Path) -> None:
    old, was = read(make_hip_library())
    layout = plan_layout(old, was, ["gfx1102"])
    assert layout is not None
    with (tmp_path / "new").open("wb") as out:
        write_compact(old, was, layout, out)
    content = bytearray((tmp_path / "new").read_bytes())
    row = struct.unpack_from("<Q", content, 32)[0] + 56  # the second PT_LOAD
    struct.pack_into("<Q", content, row + 8, struct.unpack_from("<Q", content, row + 8)[0] + 8)
    new, now = read(bytes(content))
    assert list(differences(old, new, (was, now), ["gfx1102"])) == [
        "a segment is not at its place in a page",
        "section .eh_frame_hdr is not loaded to its address",
    ]


def named_files() -> dict[str, bytes | str | Link]:
    """A folder of kernels as rocBLAS has it, and one with a folder a target."""
    names = ("Kernels.so-000-gfx1102.hsaco", "Kernels.so-000-gfx90a-xnack+.hsaco",
             "T_gfx1100.co", "T_fallback_gfx1102.hsaco", "T_fallback.dat", "TensileManifest.txt",
             "gfx1102/T.co", "gfx942/T.co", "gfx942/T_gfx1102.co",
             "T_gfx11-generic.co")  # fmt: skip
    return {f"{KERNELS}/{name}": name for name in names}


def test_files_named_by_other_targets_go(tmp_path: Path) -> None:
    root = make_tree(tmp_path, named_files())
    order = SlimOrder(code=("gfx1102",), code_in=(f"{KERNELS}/*", f"{KERNELS}/*/*"))
    gone = [told.path for told in slim_code(root, order) if isinstance(told, SlimChange)]
    assert sorted(gone) == [
        f"{KERNELS}/Kernels.so-000-gfx90a-xnack+.hsaco", f"{KERNELS}/T_gfx1100.co",
        f"{KERNELS}/gfx942/T.co",
    ]  # fmt: skip
    assert all(not root.is_file(name) for name in gone)
    assert root.is_file(f"{KERNELS}/gfx942/T_gfx1102.co")


def test_code_in_is_a_fault_where_it_matches_nothing(tmp_path: Path) -> None:
    root = make_tree(tmp_path, named_files())
    order = SlimOrder(code=("gfx1102",), code_in=(f"{KERNELS}/*", "/usr/lib/libgone.so*"))
    with pytest.raises(SlimError, match=r"nothing matches /usr/lib/libgone.so\*"):
        list(slim_code(root, order))
    assert len(root.names(KERNELS)) == 9


def test_a_target_without_code_is_a_fault_and_nothing_goes(tmp_path: Path) -> None:
    root = make_tree(tmp_path, {**named_files(), LIBRARY: make_hip_library()})
    order = SlimOrder(code=("gfx1201",), code_in=(f"{KERNELS}/*", LIBRARY))
    with pytest.raises(
        SlimError, match="have no code for gfx1201, only for gfx1030, gfx11-generic"
    ):
        list(slim_code(root, order))
    assert len(root.names(KERNELS)) == 9


def test_nothing_goes_while_the_code_may_be_in_what_is_not_understood(tmp_path: Path) -> None:
    packed = make_hip_library([compress_bundle(bundle_of(0))])
    root = make_tree(tmp_path, {LIBRARY: packed, f"{KERNELS}/T_gfx900.co": b"k"})
    order = SlimOrder(code=("gfx1102",), code_in=(LIBRARY, f"{KERNELS}/*"))
    told = [str(one) for one in slim_code(root, order)]
    assert told == [
        f"kept {LIBRARY}: its code is compressed (CCOB)",
        f"kept {KERNELS}/T_gfx900.co: no code for gfx1102 was found in these files",
    ]
    assert root.is_file(f"{KERNELS}/T_gfx900.co")


def test_a_library_for_others_alone_is_left_whole(tmp_path: Path) -> None:
    content = make_hip_library([bundle_of(0, ["gfx900", "gfx942"])])
    root = make_tree(tmp_path, {LIBRARY: content, f"{KERNELS}/T_gfx1102.co": b"k"})
    order = SlimOrder(code=("gfx1102",), code_in=(LIBRARY, f"{KERNELS}/*"))
    told = [str(one) for one in slim_code(root, order)]
    assert told == [f"kept {LIBRARY}: all of its code is for gfx900, gfx942"]


def test_a_symlink_out_of_the_root_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside.so"
    outside.write_bytes(make_hip_library())
    root = make_tree(tmp_path / "root", {LIBRARY: Link(str(outside))})
    with pytest.raises(SlimError, match="nothing matches"):
        list(slim_code(root, SlimOrder(code=("gfx1102",), code_in=(LIBRARY,))))
    assert outside.read_bytes() == make_hip_library()


def test_mode_and_owner_stay(tmp_path: Path) -> None:
    root = make_tree(tmp_path, {LIBRARY: make_hip_library()})
    place = tmp_path / LIBRARY[1:]
    place.chmod(0o640)
    list(slim_code(root, SlimOrder(code=("gfx1102",), code_in=(LIBRARY,))))
    assert place.stat().st_mode & 0o7777 == 0o640
