# SPDX-License-Identifier: Apache-2.0
"""`hardware detect`: what a machine has, and a recipe for it that loads, or the true reason."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from imagebuilder.detect import (
    PciDevice,
    ask_devices,
    detect,
    propose,
    read_devices,
    write_recipe,
)
from imagebuilder.errors import HostError, InputError
from imagebuilder.recipe.cards import shipped_cards
from imagebuilder.recipe.load import load_recipe
from imagebuilder.settings import Settings
from imagebuilder.share import SHARE
from tests.faults.roots.shipped import SSH_KEY

RX_9070 = PciDevice("0000:03:00.0", "1002:7550", "0x030000")
NPU = PciDevice("0000:c5:00.1", "1022:17f0", "0x118000")
HALO = PciDevice("0000:c4:00.0", "1002:1586", "0x030000")
ASPEED = PciDevice("0000:02:00.0", "1a03:2000", "0x030000")
NIC = PciDevice("0000:04:00.0", "8086:125c", "0x020000")
MI300X = PciDevice("0000:05:00.0", "1002:74a1", "0x120000")
# What no base of ours has code for without the key of AMD's repository; what NVIDIA's open modules
# do not drive; what is in machines with another processor only.
REFUSED = {
    *("mi300", "mi325", "mi350"),
    *("pascal", "pascal-gp100", "volta", "volta-418"),
    *("grace-hopper", "grace-hopper-570", "grace-blackwell", "grace-gb110", "gb10"),
}
RAPHAEL = PciDevice("0000:0b:00.0", "1002:164e", "0x030000")
RTX_4090 = PciDevice("0000:01:00.0", "10de:2684", "0x030000")
FAMILIES = sorted({chip.family for chip in shipped_cards().chips.values()})


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A project of one's own, empty but for its folder of recipes."""
    project = tmp_path / "project"
    (project / "recipes").mkdir(parents=True)
    return Settings(project, tmp_path, tmp_path, tmp_path / "site.yaml", shipped=SHARE)


def put_devices(folder: Path, devices: Sequence[PciDevice]) -> Path:
    """A folder as /sys/bus/pci/devices."""
    for device in devices:
        vendor, _, number = device.pci.partition(":")
        place = folder / device.slot
        place.mkdir(parents=True)
        for name, text in (("vendor", f"0x{vendor}"), ("device", f"0x{number}")):
            (place / name).write_text(f"{text}\n")
        (place / "class").write_text(f"{device.kind}\n")
    return folder


def test_devices_are_read(tmp_path: Path) -> None:
    devices = (ASPEED, RX_9070, NIC)
    assert read_devices(put_devices(tmp_path / "pci", devices)) == devices


def test_devices_of_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = put_devices(tmp_path / "pci", (RX_9070, NIC))
    ssh = tmp_path / "bin/ssh"
    ssh.parent.mkdir()
    ssh.write_text(
        '#!/bin/sh\nfor last; do :; done\necho "welcome to this machine"\n'
        f'echo "$last" | sed "s|/sys/bus/pci/devices|{folder}|" | sh\n'
    )
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:/usr/bin:/bin")
    assert ask_devices("node3") == (RX_9070, NIC)
    ssh.write_text('#!/bin/sh\necho "Permission denied (publickey)." >&2\nexit 255\n')
    with pytest.raises(HostError, match="Permission denied"):
        ask_devices("node3")
    ssh.write_text("#!/bin/sh\nprintf 'a\\033[2Jb\\n' >&2; exit 255\n")
    with pytest.raises(HostError, match="node3: ab\n"):
        ask_devices("node3")
    ssh.write_text("#!/bin/sh\nprintf 'denied\n  hint: run evil\n' >&2; exit 255\n")
    with pytest.raises(HostError, match="node3: denied / hint: run evil\n  hint: check"):
        ask_devices("node3")
    ssh.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr("imagebuilder.detect.ANSWER_S", 0.2)
    with pytest.raises(HostError, match=r"node3: did not answer within 0\.2 s"):
        ask_devices("node3")
    with pytest.raises(InputError, match="not the name of a machine"):
        ask_devices("-oProxyCommand=id")


def test_a_machine_says_nothing_but_its_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("vendor:0x1002", "device:0x7550", "class:0x030000")
    good = "".join(f"0000:03:00.0/{name}\n" for name in names)
    evil = "".join(f"\x1b]0;owned\x07/{name}\x1b[2J\n" for name in names)
    many = "".join(f"0000:{n:02x}:00.0/{name}\n" for n in range(256) for name in names) * 100
    (tmp_path / "said").write_text(f"Welcome\n{evil}{good}{many}")
    (tmp_path / "ssh").write_text(f"#!/bin/sh\nexec cat {tmp_path}/said\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = ask_devices("node3")
    assert len(found) == 256
    assert all(device.slot.isprintable() and device.pci == "1002:7550" for device in found)
    (tmp_path / "said").write_text(evil)
    with pytest.raises(HostError):
        ask_devices("node3")


def test_a_newcomer_with_an_rx_9070(settings: Settings, tmp_path: Path) -> None:
    found = detect("here", (ASPEED, RX_9070, NIC), settings)
    assert [device.pci for device, _ in found.found] == ["1a03:2000", "1002:7550"]
    path = write_recipe("rx9070", found.recipe, settings)
    assert len(path.read_text().splitlines()) <= 10
    settings.site.write_text(f"ssh-keys: ['{SSH_KEY}']\n")
    recipe = load_recipe("rx9070", settings, env={"HOME": str(tmp_path)})
    assert [device.target for device in recipe.hardware] == ["gfx1201"]
    assert recipe.vars["llama_backends"] == ["vulkan", "rpc"]
    with pytest.raises(InputError, match="already exists"):
        write_recipe("rx9070", found.recipe, settings)


def test_graphics_and_npu_of_one_processor(settings: Settings) -> None:
    text = detect("here", (HALO, NPU), settings).recipe
    assert "overlays: [netboot, ssh, compute-node, amdgpu-rocm, llama-cpp, amd-xdna]" in text
    assert '- pci: "1022:17f0"' in text


def test_graphics_of_a_processor_beside_a_card(settings: Settings) -> None:
    """They would cost the card its base or its way to compute."""
    found = detect("here", (RTX_4090, RAPHAEL, NPU), settings)
    assert found.refused == ()
    assert [device.pci for device, _ in found.found] == ["10de:2684", "1002:164e", "1022:17f0"]
    assert [device.pci for device in found.left_out] == ["1002:164e", "1022:17f0"]
    assert "1002:164e" not in found.recipe
    assert "debian-trixie" in found.recipe
    alone = detect("here", (RAPHAEL,), settings)
    assert alone.left_out == ()
    assert '- pci: "1002:164e"' in alone.recipe


@pytest.mark.parametrize(
    ("pci", "reason"),
    [
        ("10de:1b38", "cards before Turing need NVIDIA's closed modules"),
        ("10de:2342", "found only in machines with arm64 processors; the base is for amd64"),
    ],
)
def test_a_card_that_no_base_serves(pci: str, reason: str, settings: Settings) -> None:
    found = detect("here", (PciDevice("0000:01:00.0", pci, "0x030200"),), settings)
    assert found.recipe == ""
    assert reason in "\n".join(map(str, found.refused))


@pytest.mark.parametrize(
    ("pcis", "words"),
    [
        (("1002:7480", "8086:56a0"), ["amdgpu-rocm, intel-level-zero, llama-cpp", "debian-forky"]),
        (("1002:7550", "10de:2f04"), ["amdgpu-rocm, nvidia-cuda-12.8", "debian-trixie"]),
        (("1002:7480", "1002:744c"), ['gfx_target: ["gfx1102", "gfx1100"]']),
        (("10de:2b85", "10de:2684"), ['cuda_target: ["sm_120", "sm_89"]']),
    ],
)
def test_several_cards_in_one_image(
    pcis: tuple[str, ...], words: list[str], settings: Settings
) -> None:
    devices = [PciDevice(f"0000:0{n}:00.0", pci, "0x030000") for n, pci in enumerate(pcis)]
    found = detect("here", devices, settings)
    assert found.refused == ()
    for word in words:
        assert word in found.recipe


def test_cards_that_no_base_serves_together(settings: Settings) -> None:
    pcis = ("8086:56a0", "10de:26b9")
    devices = [PciDevice(f"0000:0{n}:00.0", pci, "0x030000") for n, pci in enumerate(pcis)]
    found = detect("here", devices, settings)
    assert found.recipe == ""
    assert [fault.what for fault in found.refused] == ["no base supports all of these cards"]


def test_what_cannot_be_built_says_why(settings: Settings) -> None:
    found = detect("here", (MI300X,), settings)
    assert found.recipe == ""
    said = "\n".join(map(str, found.refused))
    assert "has no code for gfx942" in said
    assert "the vendor's key is missing" in said
    assert detect("here", (ASPEED,), settings).recipe == ""


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_a_recipe_or_a_reason(family: str, settings: Settings) -> None:
    cards = shipped_cards()
    chip = next(each for each in cards.chips.values() if each.family == family)
    text, refused = propose([chip], cards, settings)
    assert bool(text) != bool(refused)
    assert (family in REFUSED) == bool(refused)
    assert list(settings.recipes.iterdir()) == []
