# SPDX-License-Identifier: Apache-2.0
"""Driver, firmware, ROCm and Vulkan are there for the card, and a card that is there is used."""

from __future__ import annotations

import re

import pytest
from testinfra.host import Host

from imagebuilder.checks.facts import Facts
from imagebuilder.recipe.hardware import chip_of

# Parts of the graphics core that every generation has firmware for; the proof asks for all of it.
MICROCODE = ("mec", "rlc")
SETTINGS = "/etc/default/amdgpu-rocm"
LIBRARIES = {
    "debian": ("libamdhip64.so.6", "librocblas.so.4", "libhipblas.so.2"),
    "amd": ("libamdhip64.so", "librocblas.so", "libhipblas.so"),
    "none": (),
}
# Mesa's driver for the cards of each overlay; those of others would stand in for a card.
VULKAN = {"amdgpu-rocm": "radeon", "intel-level-zero": "intel"}
UDEV = "/usr/lib/udev/rules.d/50-udev-default.rules"
RULES = (
    'SUBSYSTEM=="kfd", GROUP="render", MODE="0660"',
    'SUBSYSTEM=="drm", KERNEL=="renderD*", GROUP="render", MODE="0660"',
)


def setting(host: Host, name: str) -> str:
    """What this image was built for."""
    text: str = host.file(SETTINGS).content_string
    return text.partition(f"\n{name}=")[2].partition("\n")[0]


def has_card(host: Host) -> bool:
    """Whether the machine has an AMD display device (PCI class 03)."""
    devices = host.check_output("lspci -n").splitlines()
    return any(re.search(r" 03[0-9a-f]{2}: 1002:", device) for device in devices)


@pytest.mark.static
def test_every_kernel_has_the_driver(host: Host) -> None:
    kernels = host.check_output("ls /usr/lib/modules").split()
    assert kernels
    for kernel in kernels:
        assert host.run(f"/usr/sbin/modinfo -k {kernel} -n amdgpu").rc == 0


@pytest.mark.static
def test_firmware_of_the_target_is_there(host: Host, facts: Facts) -> None:
    chips = [chip for device in facts.image.hardware if (chip := chip_of(device))]
    for chip in chips:
        if "amdgpu" not in chip.modules:
            continue
        core = chip.firmware[0].removeprefix("amdgpu/").removesuffix("_*.bin")
        for part in MICROCODE:
            found = host.check_output(f"find /usr/lib/firmware/amdgpu -name '{core}_{part}.bin*'")
            assert found, f"no firmware {core}_{part}"


@pytest.mark.static
def test_rocblas_has_kernels_for_the_target_or_rocm_is_left_out(host: Host) -> None:
    found = host.check_output("find /usr/lib /opt -path '*/rocblas/*' -name '*.co'").splitlines()
    if setting(host, "COMPUTE") == "vulkan":
        assert found == []
        return
    for target in setting(host, "GFX_TARGET").split():
        assert len([path for path in found if target in path]) > 10, target


@pytest.mark.static
def test_libraries_are_complete(host: Host) -> None:
    for library in LIBRARIES[setting(host, "ROCM_SOURCE")]:
        path = host.check_output(f"find /usr/lib /opt -name {library}").split()
        assert path, f"no {library}"
        assert "not found" not in host.check_output(f"ldd {path[0]}")


@pytest.mark.static
@pytest.mark.parametrize("rule", RULES)
def test_device_nodes_are_of_render(host: Host, rule: str) -> None:
    assert rule in host.file(UDEV).content_string
    assert host.group("render").exists


@pytest.mark.static
def test_only_the_vulkan_of_the_cards_is_there(host: Host, facts: Facts) -> None:
    names = sorted(VULKAN[overlay] for overlay in facts.image.overlays if overlay in VULKAN)
    icds = host.check_output("ls /usr/share/vulkan/icd.d").split()
    assert icds == [f"{name}_icd.json" for name in names]
    drivers = host.check_output("ls /usr/lib/*-linux-gnu | grep ^libvulkan_").split()
    assert drivers == [f"libvulkan_{name}.so" for name in names]


@pytest.mark.static
def test_nothing_upgrades_the_driver_by_itself(host: Host) -> None:
    assert not host.package("unattended-upgrades").is_installed


@pytest.mark.static
def test_no_override_hides_a_wrong_target(host: Host) -> None:
    # An assignment that a shell or systemd reads, not a sentence about it.
    begin = r"^[[:space:]]*(export[[:space:]]+|(Default)?Environment=.*)?[\"']?"
    found = host.run("grep -rsE %s /etc", f"{begin}HSA_OVERRIDE_GFX_VERSION=")
    assert found.stdout == ""


@pytest.mark.boot
def test_rocm_says_what_is_there(host: Host) -> None:
    if setting(host, "COMPUTE") == "vulkan":
        assert not host.exists("rocminfo")
        return
    said = host.run("rocminfo")
    if has_card(host):
        assert said.rc == 0
        assert any(target in said.stdout for target in setting(host, "GFX_TARGET").split())
    else:
        assert "gfx" not in said.stdout


@pytest.mark.boot
def test_memory_for_graphics_is_as_asked(host: Host) -> None:
    asked = re.findall(r"ttm\.pages_limit=(\d+)", host.file("/proc/cmdline").content_string)
    limit = host.file("/sys/module/ttm/parameters/pages_limit")
    if asked and limit.exists:
        assert limit.content_string.strip() == asked[-1]


@pytest.mark.boot
def test_vulkan_says_what_is_there(host: Host) -> None:
    said = host.run("vulkaninfo --summary").stdout
    assert "llvmpipe" not in said
    assert ("RADV" in said) == has_card(host)


@pytest.mark.boot
def test_user_may_use_the_card(host: Host) -> None:
    names = (
        "/dev/dri/renderD*"
        if setting(host, "COMPUTE") == "vulkan"
        else "/dev/kfd /dev/dri/renderD*"
    )
    nodes = host.run(f"ls {names}").stdout.split() if has_card(host) else []
    assert bool(nodes) == has_card(host)
    for node in nodes:
        device = host.file(node)
        assert (device.group, device.mode & 0o660) == ("render", 0o660)
