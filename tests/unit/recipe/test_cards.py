# SPDX-License-Identifier: Apache-2.0
"""hardware/*.yaml: what ships agrees with pci.ids and the drivers; what a person adds is read."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

from imagebuilder.errors import InputError
from imagebuilder.recipe.cards import Cards, find_chip, load_cards, shipped_cards
from imagebuilder.recipe.chip import Chip
from imagebuilder.settings import Settings
from imagebuilder.share import SHARE
from tests.unit.each import for_each

FIXTURES = Path(__file__).parents[2] / "fixtures/hardware"
CHIPS = tuple(shipped_cards().chips.values())
BY_PCI = {chip.pci: chip for chip in CHIPS}
# Words of names that pci.ids does without.
SPELLING = re.compile(r"\([^)]*\)|[^a-z0-9]+")


@cache
def lines_of_pci_ids() -> Mapping[str, str]:
    """What pci.ids calls each card, by PCI id."""
    found: dict[str, str] = {}
    vendor = ""
    for line in (FIXTURES / "pci.ids").read_text().splitlines():
        if line.startswith("\t"):
            device, _, name = line.strip().partition("  ")
            found[f"{vendor}:{device}"] = name
        elif not line.startswith("#"):
            vendor = line.split()[0]
    return found


@cache
def lines_of_drivers(kind: str) -> tuple[tuple[str, str], ...]:
    """Module and value of the lines of one kind: firmware, absent, alias."""
    lines = (FIXTURES / "drivers.txt").read_text().splitlines()
    words = (line.split() for line in lines if not line.startswith("#"))
    return tuple((module, value) for module, which, value in words if which == kind)


def squeezed(text: str) -> str:
    return SPELLING.sub("", text.lower())


def load(folder: Path, files: Mapping[str, str]) -> Cards:
    """The cards of a project with these files in hardware/, and of what ships."""
    (folder / "hardware").mkdir()
    for name, text in files.items():
        (folder / "hardware" / name).write_text(text)
    return load_cards(Settings(folder, folder, folder, folder / "site.yaml", shipped=SHARE))


@pytest.mark.parametrize(
    ("pci", "target", "module"),
    [
        ("1002:7480", "gfx1102", "amdgpu"),
        ("1002:1586", "gfx1151", "amdgpu"),
        ("1022:17f0", "", "amdxdna"),
        ("8086:56a0", "dg2", "i915"),
        ("10de:2f04", "sm_120", "nvidia"),
        ("10de:2b85", "sm_120", "nvidia"),
        ("10de:2bb1", "sm_120", "nvidia"),
        ("10de:2bb5", "sm_120", "nvidia"),
        ("10DE:26B9", "sm_89", "nvidia"),
        ("1002:7550", "gfx1201", "amdgpu"),
        ("1002:744c", "gfx1100", "amdgpu"),
        ("1002:74a1", "gfx942", "amdgpu"),
        ("8086:e20b", "bmg", "xe"),
    ],
)
def test_every_device_of_the_clusters_is_known(pci: str, target: str, module: str) -> None:
    chip = find_chip(pci)
    assert chip is not None
    assert chip.target == target
    assert module in chip.modules


def test_an_unknown_device_is_none() -> None:
    assert find_chip("1234:5678") is None
    assert find_chip("1002:ffff") is None


def test_sixty_cards_and_more() -> None:
    assert len(CHIPS) >= 150


@for_each(BY_PCI)
def test_a_card_is_whole(chip: Chip) -> None:
    assert chip.firmware or chip.architecture in ("Pascal", "Volta")
    assert chip.computes
    assert chip.architecture
    assert chip.target or chip.computes == ("xdna",)
    assert {"modules", "firmware", "computes", "cards"} <= chip.sources.keys()
    assert "driver" in chip.minimum if chip.vendor == "NVIDIA" else chip.kernel
    for glob in chip.optional:
        assert not glob.endswith((".xz", ".zst"))
    for newer, older in chip.stand_ins.items():
        assert not newer.endswith(older)
        assert not older.endswith(newer)


@for_each(BY_PCI)
def test_pci_ids_calls_it_so(chip: Chip) -> None:
    """Each word of a name is in the line of pci.ids, which puts several names into one."""
    line = squeezed(lines_of_pci_ids()[chip.pci])
    for name in chip.names:
        for word in re.sub(r"\([^)]*\)", "", name).split():
            known = squeezed(word) in line or word in ("Radeon", "Graphics", "XDNA", "NPU", "2")
            assert known, (name, word, line)


# How pci.ids begins the lines of chips of each target.
CODES = {
    "gfx803": "Ellesmere", "gfx900": "Vega 10", "gfx906": "Vega 20", "gfx908": "Arcturus",
    "gfx90a": "Aldebaran", "gfx90c": "Renoir|Cezanne", "gfx942": "Aqua", "gfx950": "Aqua",
    "gfx1010": "Navi 10", "gfx1012": "Navi 14", "gfx1030": "Navi 21", "gfx1031": "Navi 22",
    "gfx1032": "Navi 23", "gfx1034": "Navi 24", "gfx1035": "Rembrandt",
    "gfx1036": "Raphael|Granite Ridge", "gfx1100": "Navi 31", "gfx1101": "Navi 32",
    "gfx1102": "Navi 33", "gfx1103": "Phoenix[12]|HawkPoint[12]", "gfx1150": "Strix \\[",
    "gfx1151": "Strix Halo", "gfx1152": "Krackan \\[", "gfx1153": "Krackan2",
    "gfx1200": "Navi 44", "gfx1201": "Navi 48", "dg2": "DG2|ATS-M", "bmg": "Battlemage",
    "tgllp": "Tiger ?Lake", "adl-s": "(Alder|Raptor) Lake-S", "adl-p": "(Alder|Raptor) Lake-U?P",
    "mtl": "Meteor Lake", "arl": "Arrow Lake", "lnl": "Lunar Lake|Core Ultra 200V",
    "ptl": "Panther Lake", "sm_60": "GP100", "sm_61": "GP10[2-8]", "sm_70": "GV100",
    "sm_75": "TU1", "sm_80": "GA100", "sm_86": "GA10[2-7]", "sm_89": "AD10", "sm_90": "GH100",
    "sm_100": "GB100", "sm_103": "GB110", "sm_120": "GB20[2-7]", "sm_121": "GB20B",
}  # fmt: skip


@for_each(BY_PCI)
def test_pci_ids_has_a_chip_of_the_target_there(chip: Chip) -> None:
    line = lines_of_pci_ids()[chip.pci]
    assert chip.computes == ("xdna",) or re.match(CODES[chip.target], line), line


@for_each(BY_PCI)
def test_a_driver_of_debian_claims_it(chip: Chip) -> None:
    aliases = [(m, value) for m, value in lines_of_drivers("alias") if m in chip.modules]
    ours = any(fnmatchcase(chip.pci, value) for _, value in aliases)
    assert ours or chip.modules == ("nvidia",)


@for_each(BY_PCI)
def test_debian_packages_all_that_its_driver_cannot_do_without(chip: Chip) -> None:
    if chip.modules == ("nvidia",):
        return
    there = [value for m, value in lines_of_drivers("firmware") if m in chip.modules]
    absent = [value for m, value in lines_of_drivers("absent") if m in chip.modules]
    for glob in chip.firmware:
        assert any(fnmatchcase(file, glob) for file in there), glob
    for file in absent:
        if any(fnmatchcase(file, glob) for glob in chip.firmware):
            optional = any(fnmatchcase(file, glob) for glob in chip.optional)
            assert optional or stand_in_there(file, chip, there), file


def stand_in_there(file: str, chip: Chip, there: list[str]) -> bool:
    pairs = [*chip.stand_ins.items(), *((b, a) for a, b in chip.stand_ins.items())]
    return any(file.endswith(a) and f"{file.removesuffix(a)}{b}" in there for a, b in pairs)


def test_names_find_a_card() -> None:
    cards = shipped_cards()
    chip = cards.named("radeon rx 9070 xt")
    assert chip is not None
    assert chip.pci == "1002:7550"
    assert cards.named("Radeon RX 9999") is None


OWN = """\
source: lspci -nn on a machine
families:
  mine:
    extends: navi33
    cards:
      "1002:74ff": Radeon RX 7650
"""


def test_six_lines_add_a_card(tmp_path: Path) -> None:
    chip = load(tmp_path, {"mine.yaml": OWN}).find("1002:74FF")
    assert chip is not None
    assert (chip.target, chip.name, chip.family) == ("gfx1102", "Radeon RX 7650", "mine")
    shipped = find_chip("1002:7480")
    assert shipped is not None
    assert chip.firmware == shipped.firmware
    assert chip.sources["cards"] == "lspci -nn on a machine"


def test_a_project_replaces_a_card_that_ships(tmp_path: Path) -> None:
    text = OWN.replace("1002:74ff", "1002:7480").replace("navi33", "navi31")
    chip = load(tmp_path, {"mine.yaml": text}).find("1002:7480")
    assert chip is not None
    assert (chip.target, chip.name) == ("gfx1100", "Radeon RX 7650")


BOMB = "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 20)}]\n" for a, b in itertools.pairwise("abcdef")
)


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        (OWN.replace("navi33", "navi34"), 'no family named "navi34"', 'did you mean "navi'),
        (OWN.replace("extends: navi33", "vendor: AMD"), "does not set modules, firmware", ""),
        (OWN.replace("1002:74ff", "1002:ffffff"), "PCI id", ""),
        (
            OWN.replace("extends: navi33", "vendor: X\n    modules: [x]\n    firmware: []"),
            "families.mine.modules: has no source",
            "sources: {modules: ...}",
        ),
        (OWN.replace("7650", "7600"), "1002:7480 is also named", "tells them apart"),
        (OWN + "    sources: {modul: drivers/x.c}\n", '"modul" is not a fact', '"modules"'),
        (OWN.replace("navi33", "mine"), "families extend each other: mine -> mine", "remove one"),
        (OWN + '      "1002:74ff": Radeon RX 7660\n', "the key is already on line 6", ""),
        (OWN.replace("1002:74ff", "1002:74FF"), "is not a PCI id", ""),
        (OWN + "    modules: []\n    sources: {modules: none}\n", "does not set modules", ""),
        (OWN + "    minimum: {kernel: 6.10}\n", "expected text, found the number 6.1", '"6.10"'),
        (OWN + "    minimum: {kernel: newest}\n", '"newest" is not a version', ""),
        (OWN + "    minimum: {kernel: '99999.1'}\n", '"99999.1" is not a version', ""),
        (OWN + "    minimum: {windows: '11'}\n", '"windows" is not one of', ""),
        (
            OWN + "    maximum: {driver: '580'}\n",
            "families.mine.maximum.driver: has no source",
            "sources: {maximum.driver: ...}",
        ),
        (OWN + "    sources: {modules.x: none}\n", '"modules.x" is not a fact', ""),
        (OWN + "    computes: [hip]\n    refuses: {hip: no good}\n", "also under `computes`", ""),
        (OWN + "    stand-ins: {a_sos.bin: _sos.bin}\n", "cannot stand in for itself", ""),
        (OWN + "    stand-ins: {'': x}\n", "is not the end of the name of a file", ""),
        (OWN + "    firmware: [../../etc/shadow]\n", "is not a glob below /usr/lib/firmware", ""),
        (OWN + "    target: gfx110\n    optional: {'*': nothing}\n", "is not a glob below", ""),
        (OWN + "    target: gfx1102; id\n", "is not an accelerator target", ""),
        (OWN + "    processor: mips\n", "processor", ""),
        ("source: none\nfamilies: [a]\n", "expected a mapping, found a list", ""),
        ("a: &a [x, x]\n" + BOMB, "more than 20000 values, aliases expanded", ""),
        ("source: !!python/object/apply:os.system [id]\n", "is not allowed", "plain values"),
    ],
)
def test_faults_say_where_and_what(text: str, what: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path, {"mine.yaml": text})
    assert any(what in fault.what and hint in fault.hint for fault in caught.value.faults)
    assert all(fault.where.startswith("hardware/mine.yaml:") for fault in caught.value.faults)


def test_one_id_belongs_to_one_card(tmp_path: Path) -> None:
    other = OWN.replace("mine", "yours").replace("7650", "7660")
    with pytest.raises(InputError, match="Radeon RX 7650 has the same PCI id"):
        load(tmp_path, {"mine.yaml": OWN, "yours.yaml": other})


def test_families_that_extend_each_other(tmp_path: Path) -> None:
    text = "source: none\nfamilies:\n  a: {extends: b}\n  b: {extends: a}\n"
    with pytest.raises(InputError, match="families extend each other: a -> b -> a"):
        load(tmp_path, {"mine.yaml": text})


@pytest.mark.parametrize("last", ["vendor: X", "extends: f0"])
def test_a_long_chain_of_families_is_a_fault(tmp_path: Path, last: str) -> None:
    chain = "".join(f"  f{n}: {{extends: f{n + 1}}}\n" for n in range(3000))
    with pytest.raises(InputError, match="more than 32 families extend each other"):
        load(tmp_path, {"mine.yaml": f"source: none\nfamilies:\n{chain}  f3000: {{{last}}}\n"})


def test_a_project_that_breaks_families_that_ship(tmp_path: Path) -> None:
    """The fault is in the project's file, not in each of those that build on what it replaced."""
    text = "source: none\nfamilies:\n  amdgpu: {vendor: AMD}\n"
    with pytest.raises(InputError) as caught:
        load(tmp_path, {"mine.yaml": text})
    [fault] = caught.value.faults
    assert fault.where.startswith("hardware/mine.yaml:3:3")
    assert 'replaces a shipped family that "cdna"' in fault.what


def test_a_card_is_shown_with_its_sources() -> None:
    chip = find_chip("1002:744c")
    assert chip is not None
    text = chip.render()
    assert text.startswith("1002:744c  Radeon RX 7900 XTX")
    assert "target: gfx1100\n  from LLVM's AMDGPUUsage" in text
    assert "optional:\n  amdgpu/gc_11_0_0_toc.bin: asked for" in text
    assert "refuses" not in text
    assert "minimum:\n  kernel: 6.1\n    from modinfo of amdgpu" in text
    assert chip.as_json()["minimum"] == {"kernel": "6.1", "mesa": "22.3"}
