# SPDX-License-Identifier: Apache-2.0
"""Question 2 on small trees: what the driver lists for the chip is there, or is named."""

from __future__ import annotations

import lzma
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from zstandard import ZstdCompressor

from imagebuilder.image.proof import Finding
from imagebuilder.proof.firmware import prove_firmware
from imagebuilder.recipe.cards import find_chip
from imagebuilder.recipe.expectations import Expectations
from imagebuilder.recipe.types import Hardware
from tests.unit.proof.trees import (
    KERNEL,
    Content,
    Link,
    facts,
    faults,
    kernel_files,
    make_tree,
    subject,
    warnings,
)

FOLDER = "/usr/lib/firmware"
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".xz": lambda plain: lzma.compress(plain, check=lzma.CHECK_CRC32),
    ".zst": ZstdCompressor().compress,
}
RADEON = ("1002:7480", "Radeon RX 7600 XT", "gfx1102")
HALO = ("1002:1586", "Radeon 8060S", "gfx1151")
NPU = ("1022:17f0", "XDNA 2", "")
ARC = ("8086:56a0", "Arc A770", "dg2")
L40S = ("10de:26b9", "L40S", "sm_89")
OF_RADEON = (
    "amdgpu/gc_11_0_2_mes.bin",
    "amdgpu/gc_11_0_2_mes_2.bin",
    "amdgpu/gc_11_0_2_pfp.bin",
    "amdgpu/psp_13_0_7_sos.bin",
    "amdgpu/sdma_6_0_2.bin",
    "amdgpu/vcn_4_0_4.bin",
    "amdgpu/dcn_3_2_1_dmcub.bin",
    "amdgpu/smu_13_0_7.bin",
)
OF_OTHERS = ("amdgpu/gc_11_0_3_pfp.bin", "amdgpu/navi10_pfp.bin")
OF_ARC = ("i915/dg2_guc_70.bin", "i915/dg2_huc_gsc.bin", "i915/dg2_dmc_ver2_08.bin")


def make(
    path: Path, there: Iterable[str], ending: str = "", **modules: Sequence[str] | str
) -> Path:
    """A root with these firmware files, and modules that list what `modules` has for each (a text
    is a version, with nothing listed).
    """
    infos = {
        f"kernel/{name}.ko.xz": {"version": said} if isinstance(said, str) else {"firmware": said}
        for name, said in modules.items()
    }
    content = PACKERS[ending](b"firmware")
    files: dict[str, Content] = {f"{FOLDER}/{name}{ending}": content for name in there}
    make_tree(path, {**kernel_files(infos), **files})
    return path


def prove(
    path: Path, *hardware: tuple[str, str, str], firmware: tuple[str, ...] = ()
) -> list[Finding]:
    """The findings about a root."""
    expected = Expectations(firmware=firmware)
    return list(prove_firmware(subject(path, hardware=hardware, expectations=expected)))


def test_no_device_raises_no_question(tmp_path: Path) -> None:
    assert prove(make(tmp_path, OF_RADEON, amdgpu=OF_RADEON)) == []


@pytest.mark.parametrize("ending", ["", ".xz", ".zst"])
def test_all_is_there(tmp_path: Path, ending: str) -> None:
    make(tmp_path, OF_RADEON, ending, amdgpu=(*OF_RADEON, *OF_OTHERS))
    found = prove(tmp_path, RADEON)
    assert (faults(found), warnings(found)) == ([], [])
    what = "all firmware that amdgpu may request on 1002:7480 (Radeon RX 7600 XT) is present"
    assert facts(found) == [f"{what}: 8 files"]
    assert f"{FOLDER}/amdgpu/sdma_6_0_2.bin{ending}" in [e.path for e in found[0].evidence]


@pytest.mark.parametrize(
    "lost", [name for name in OF_RADEON if not name.endswith(("mes.bin", "mes_2.bin"))]
)
def test_each_lost_file_is_named(tmp_path: Path, lost: str) -> None:
    there = [name for name in OF_RADEON if name != lost]
    make(tmp_path, there, amdgpu=(*OF_RADEON, *OF_OTHERS))
    [fault] = [finding for finding in prove(tmp_path, RADEON) if finding.hint]
    assert fault.what.startswith(f"amdgpu may request {lost} on 1002:7480")
    assert fault.evidence[0].symbol == "firmware"
    assert "firmware-amd-graphics" in fault.hint


def test_a_file_without_content_or_a_dangling_link_is_lost(tmp_path: Path) -> None:
    make(tmp_path, OF_RADEON, amdgpu=OF_RADEON)
    make_tree(tmp_path, {f"{FOLDER}/{OF_RADEON[3]}": b"", f"{FOLDER}/{OF_RADEON[4]}": Link("gone")})
    [fault] = faults(prove(tmp_path, RADEON))
    assert f"{OF_RADEON[3]}, {OF_RADEON[4]}" in fault


def test_links_are_followed(tmp_path: Path) -> None:
    make(tmp_path, OF_RADEON, amdgpu=OF_RADEON)
    make_tree(tmp_path, {f"{FOLDER}/{OF_RADEON[3]}": Link("x"), f"{FOLDER}/amdgpu/x": b"firmware"})
    assert faults(prove(tmp_path, RADEON)) == []


def test_an_update_stands_for_the_file(tmp_path: Path) -> None:
    make(tmp_path, OF_RADEON[1:], amdgpu=OF_RADEON)
    make_tree(tmp_path, {f"{FOLDER}/updates/{KERNEL}/{OF_RADEON[0]}": b"firmware"})
    assert faults(prove(tmp_path, RADEON)) == []


def test_a_folder_of_the_command_line_comes_first(tmp_path: Path) -> None:
    make(tmp_path, OF_RADEON, amdgpu=OF_RADEON)
    make_tree(tmp_path, {f"/opt/old/{OF_RADEON[0]}": b"old"})
    asked = subject(tmp_path, hardware=[RADEON], cmdline=("firmware_class.path=/opt/old",))
    [fault] = faults(prove_firmware(asked))
    assert fault.startswith(f"/opt/old/{OF_RADEON[0]} overrides the package's file")


def test_what_the_driver_does_not_list_is_not_wanted(tmp_path: Path) -> None:
    listed = (OF_RADEON[0], *OF_RADEON[3:])
    assert faults(prove(make(tmp_path, listed, amdgpu=listed), RADEON)) == []


def test_a_glob_that_the_driver_lists_nothing_for(tmp_path: Path) -> None:
    """An older driver or a slip in hardware/*.yaml: a part of the chip would not be judged."""
    make(tmp_path, OF_RADEON, amdgpu=OF_RADEON[:-1])
    [fault] = faults(prove(tmp_path, RADEON))
    assert fault.startswith("amdgpu lists no firmware that matches amdgpu/smu_13_0_7*.bin for")


def test_a_driver_that_is_older_than_the_chip(tmp_path: Path) -> None:
    make(tmp_path, OF_RADEON, amdgpu=OF_RADEON)
    [fault] = faults(prove(tmp_path, HALO))
    assert fault.startswith("amdgpu lists no firmware for 1002:1586 (Radeon 8060S)")


def test_an_older_file_stands_in_for_a_newer(tmp_path: Path) -> None:
    names = ("amdnpu/17f0_11/npu_7.sbin", "amdnpu/17f0_11/npu.sbin", "amdnpu/17f0_20/npu.sbin")
    make(tmp_path, names[1:2], amdxdna=names)
    found = prove(tmp_path, NPU)
    assert faults(found) == []
    [warning] = warnings(found)
    assert "accepts the older amdnpu/17f0_11/npu.sbin" in warning
    # The newer is enough by itself, and neither is too little.
    newer = make(tmp_path / "newer", names[:1], amdxdna=names)
    assert not [finding for finding in prove(newer, NPU) if finding.hint]
    none = make(tmp_path / "none", names[2:], amdxdna=names)
    assert len(faults(prove(none, NPU))) == 1


def test_either_driver_of_an_arc(tmp_path: Path) -> None:
    make(tmp_path, OF_ARC, i915=OF_ARC, xe=(OF_ARC[0], OF_ARC[2], "xe/bmg_guc_70.bin"))
    assert faults(prove(tmp_path, ARC)) == []
    (tmp_path / FOLDER.strip("/") / OF_ARC[1]).unlink()
    [fault] = faults(prove(tmp_path, ARC))
    assert "i915/dg2_huc_gsc.bin" in fault


@pytest.mark.parametrize("listed", [True, False])
def test_the_firmware_of_nvidias_own_version(tmp_path: Path, listed: bool) -> None:  # noqa: FBT001
    ours = "nvidia/570.172.08/gsp_ga10x.bin"
    module = (ours, "nvidia/570.172.08/gsp_tu10x.bin") if listed else "570.172.08"
    good = make(tmp_path / "good", [ours], nvidia=module)
    assert faults(prove(good, L40S)) == []
    bad = make(tmp_path / "bad", ["nvidia/550.163.01/gsp_ga10x.bin"], nvidia=module)
    [fault] = [finding for finding in prove(bad, L40S) if finding.hint]
    assert ours in fault.what
    assert "the image has that of 550.163.01" in fault.hint


def test_no_driver_at_all(tmp_path: Path) -> None:
    [fault] = faults(prove(make(tmp_path, ()), L40S))
    assert "nvidia/*/gsp_ga10x.bin" in fault


def test_a_kernel_that_cannot_unpack(tmp_path: Path) -> None:
    make(tmp_path, OF_RADEON, ".zst", amdgpu=OF_RADEON)
    config = f"/boot/config-{KERNEL}"
    make_tree(tmp_path, {config: "CONFIG_FW_LOADER_COMPRESS_ZSTD=y\n"})
    assert faults(prove(tmp_path, RADEON)) == []
    make_tree(tmp_path, {config: "# CONFIG_FW_LOADER_COMPRESS_ZSTD is not set\n"})
    assert len(faults(prove(tmp_path, RADEON))) == 1


def test_a_file_that_the_driver_does_without(tmp_path: Path) -> None:
    names = tuple(
        f"amdgpu/{name}.bin"
        for name in (
            "gc_11_0_0_me",
            "gc_11_0_0_mes",
            "gc_11_0_0_mes_2",
            "gc_11_0_0_imu_kicker",
            "gc_11_0_0_toc",
            "psp_13_0_0_sos",
            "sdma_6_0_0",
            "vcn_4_0_0",
            "dcn_3_2_0_dmcub",
            "smu_13_0_0",
        )
    )
    xtx = ("1002:744c", "Radeon RX 7900 XTX", "gfx1100")
    make(tmp_path / "debian", [names[0], names[2], *names[5:]], amdgpu=names)
    found = prove(tmp_path / "debian", xtx)
    assert faults(found) == warnings(found) == []
    assert any("fw_load_type=3" in finding.what for finding in found)
    # The board of 744b asks for its own file; and what every board asks for is not spared.
    [fault] = faults(prove(tmp_path / "debian", ("1002:744b", "Radeon PRO W7900D", "gfx1100")))
    assert "gc_11_0_0_imu_kicker.bin" in fault
    make(tmp_path / "bad", names[2:], amdgpu=names)
    [fault] = faults(prove(tmp_path / "bad", xtx))
    assert "gc_11_0_0_me.bin" in fault
    assert "toc" not in fault


def test_a_chip_that_is_not_known(tmp_path: Path) -> None:
    make(tmp_path, OF_OTHERS, amdgpu=OF_OTHERS)
    other = Hardware("1002:ffff", "Radeon of 2040", "gfx1100")
    found = list(prove_firmware(subject(tmp_path, hardware=[other])))
    assert faults(found) == ["it is not known which firmware 1002:ffff (Radeon of 2040) needs"]
    known = replace(other, assume="a sample of the vendor's")
    assumed = list(prove_firmware(subject(tmp_path, hardware=[known])))
    assert faults(assumed) == []
    [warning] = warnings(assumed)
    assert warning == "assumed, not proved: 1002:ffff (Radeon of 2040): a sample of the vendor's"
    # What the project itself says of a card goes before what ships.
    chip = find_chip("1002:747e")
    assert chip is not None
    mine = replace(chip, pci="1002:ffff", firmware=("amdgpu/gc_11_0_3_*.bin",))
    own = Hardware("1002:ffff", "mine", "gfx1101", chip=mine)
    assert faults(prove_firmware(subject(tmp_path, hardware=[own]))) == []
    (tmp_path / FOLDER.strip("/") / OF_OTHERS[0]).unlink()
    [fault] = faults(prove_firmware(subject(tmp_path, hardware=[own])))
    assert "1002:ffff" in fault


def test_what_overlays_ask_for(tmp_path: Path) -> None:
    make(tmp_path, ["amdnpu/17f0_11/npu.sbin"], ".xz", amdxdna=())
    assert faults(prove(tmp_path, firmware=("amdnpu/17f0_*/npu*.sbin",))) == []
    assert faults(prove(tmp_path, firmware=("amdnpu/1502_00/*",))) == [
        "no firmware matches amdnpu/1502_00/*"
    ]
