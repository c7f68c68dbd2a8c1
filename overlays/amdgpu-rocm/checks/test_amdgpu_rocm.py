# SPDX-License-Identifier: Apache-2.0
"""Driver, firmware and ROCm are there for the target, and a card that is there is used."""

from __future__ import annotations

import re

import pytest
from testinfra.host import Host

# How firmware of each target's graphics core is called in /usr/lib/firmware/amdgpu: by the name of
# the chip, or since RDNA 3 by IP version, of which gfx1101 has the third (gfx_v11_0.c in Linux).
FIRMWARE = {
    "gfx1030": "sienna_cichlid",
    "gfx1100": "gc_11_0_0",
    "gfx1101": "gc_11_0_3",
    "gfx1102": "gc_11_0_2",
    "gfx1151": "gc_11_5_1",
}
MICROCODE = ("me", "mec", "pfp", "rlc")
UDEV = "/usr/lib/udev/rules.d/50-udev-default.rules"
RULES = (
    'SUBSYSTEM=="kfd", GROUP="render", MODE="0660"',
    'SUBSYSTEM=="drm", KERNEL=="renderD*", GROUP="render", MODE="0660"',
)


def gfx_target(host: Host) -> str:
    """The target that this image was built for."""
    text: str = host.file("/etc/default/amdgpu-rocm").content_string
    return text.rpartition("GFX_TARGET=")[2].strip()


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
def test_firmware_of_the_target_is_there(host: Host) -> None:
    core = FIRMWARE[gfx_target(host)]
    for part in MICROCODE:
        found = host.check_output(f"find /usr/lib/firmware/amdgpu -name '{core}_{part}.bin*'")
        assert found, f"no firmware {core}_{part}"


@pytest.mark.static
def test_rocblas_has_kernels_for_the_target(host: Host) -> None:
    name = f"*{gfx_target(host)}*"
    found = host.check_output(f"find /usr/lib -path '*/rocblas/*/library/{name}' -name '*.co'")
    assert len(found.splitlines()) > 10


@pytest.mark.static
@pytest.mark.parametrize("library", ["libamdhip64.so.6", "librocblas.so.4", "libhipblas.so.2"])
def test_libraries_are_complete(host: Host, library: str) -> None:
    path = host.check_output(f"find /usr/lib -name {library}")
    assert path
    assert "not found" not in host.check_output(f"ldd {path}")


@pytest.mark.static
@pytest.mark.parametrize("rule", RULES)
def test_device_nodes_are_of_render(host: Host, rule: str) -> None:
    assert rule in host.file(UDEV).content_string
    assert host.group("render").exists


@pytest.mark.static
def test_no_software_vulkan_hides_a_missing_card(host: Host) -> None:
    drivers = host.check_output("ls /usr/share/vulkan/icd.d").split()
    assert "radeon_icd.json" in drivers
    assert "lvp_icd.json" not in drivers


@pytest.mark.static
def test_nothing_upgrades_the_driver_by_itself(host: Host) -> None:
    assert not host.package("unattended-upgrades").is_installed


@pytest.mark.static
def test_no_override_hides_a_wrong_target(host: Host) -> None:
    found = host.run("grep -rs HSA_OVERRIDE_GFX_VERSION /etc")
    assert found.stdout == ""


@pytest.mark.boot
def test_rocm_says_what_is_there(host: Host) -> None:
    said = host.run("rocminfo")
    if has_card(host):
        assert said.rc == 0
        assert gfx_target(host) in said.stdout
    else:
        assert "gfx" not in said.stdout


@pytest.mark.boot
def test_vulkan_says_what_is_there(host: Host) -> None:
    said = host.run("vulkaninfo --summary").stdout
    assert "llvmpipe" not in said
    assert ("RADV" in said) == has_card(host)


@pytest.mark.boot
def test_user_may_use_the_card(host: Host) -> None:
    nodes = host.run("ls /dev/kfd /dev/dri/renderD*").stdout.split() if has_card(host) else []
    assert bool(nodes) == has_card(host)
    for node in nodes:
        device = host.file(node)
        assert (device.group, device.mode & 0o660) == ("render", 0o660)
