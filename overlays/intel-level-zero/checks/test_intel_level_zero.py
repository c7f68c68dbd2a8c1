# SPDX-License-Identifier: Apache-2.0
"""Driver, firmware and runtimes of an Arc card are there, compile for it, and use one that is."""

from __future__ import annotations

import re

import pytest
from testinfra.host import Host

from imagebuilder.checks.facts import Facts

SETTINGS = "/etc/default/intel-level-zero"
# Mesa's driver for the cards of each overlay; those of others would stand in for a card.
VULKAN = {"amdgpu-rocm": "radeon", "intel-level-zero": "intel"}
UDEV = "/usr/lib/udev/rules.d/50-udev-default.rules"
RULE = 'SUBSYSTEM=="drm", KERNEL=="renderD*", GROUP="render", MODE="0660"'
# How firmware of the targets is called (intel_uc_fw.c and intel_dmc.c in Linux); what is not here
# is proved by the PCI id alone.
FIRMWARE = {"dg2": ("i915/dg2_guc_70.bin", "i915/dg2_huc_gsc.bin", "i915/dg2_dmc_ver2_08.bin")}
KERNEL = "kernel void twice(global float *a) { a[get_global_id(0)] *= 2.0f; }"
# What zeInit(3) of Level Zero returns without a device (ze_result_t in ze_api.h).
UNINITIALIZED = 0x78000001
ZE_INIT = "import ctypes; print(ctypes.CDLL('libze_loader.so.1').zeInit(0) & 0xffffffff)"


def setting(host: Host, name: str) -> str:
    """What this image was built for."""
    text: str = host.file(SETTINGS).content_string
    return text.partition(f"\n{name}=")[2].partition("\n")[0]


def has_card(host: Host) -> bool:
    """Whether the machine has a discrete Intel display device: one that is not on bus 0."""
    devices = host.check_output("lspci -Dn").splitlines()
    return any(
        re.match(r"[0-9a-f]{4}:(?!00:)[0-9a-f]{2}:\S+ 03[0-9a-f]{2}: 8086:", device)
        for device in devices
    )


@pytest.mark.static
@pytest.mark.parametrize("module", ["i915", "mei_gsc", "mei_pxp"])
def test_every_kernel_has_the_driver(host: Host, module: str) -> None:
    kernels = host.check_output("ls /usr/lib/modules").split()
    assert kernels
    for kernel in kernels:
        assert host.run(f"/usr/sbin/modinfo -k {kernel} -n {module}").rc == 0


@pytest.mark.static
def test_firmware_of_the_target_is_there(host: Host) -> None:
    for name in FIRMWARE.get(setting(host, "INTEL_TARGET"), ()):
        assert host.run(f"ls /usr/lib/firmware/{name}*").rc == 0, f"no firmware {name}"


@pytest.mark.static
def test_the_compiler_makes_code_for_the_target(host: Host) -> None:
    # The offline compiler opens the libraries that the drivers compile kernels with on the node.
    target = setting(host, "INTEL_TARGET")
    said = host.run(
        f"cd $(mktemp -d) && echo '{KERNEL}' > twice.cl && ocloc compile -file twice.cl "
        f"-device {target} -output twice -output_no_suffix && head -c 4 twice.bin"
    )
    assert "Build succeeded" in said.stdout, said.stdout + said.stderr
    assert said.stdout.endswith("\x7fELF")


@pytest.mark.static
def test_runtimes_start_without_a_card(host: Host) -> None:
    assert int(host.check_output(f'python3 -c "{ZE_INIT}"')) == UNINITIALIZED
    said = host.run("clinfo")
    assert said.rc == 0
    assert re.search(r"Number of platforms +[01]\b", said.stdout)


@pytest.mark.static
def test_opencl_leads_to_a_driver(host: Host) -> None:
    for path in host.check_output("ls /etc/OpenCL/vendors/*.icd").split():
        library = host.file(path).content_string.strip()
        assert host.run(f"ldd {library}").rc == 0, f"{path} leads nowhere"
        assert "not found" not in host.check_output(f"ldd {library}")


@pytest.mark.static
def test_only_the_vulkan_of_the_cards_is_there(host: Host, facts: Facts) -> None:
    names = sorted(VULKAN[overlay] for overlay in facts.image.overlays if overlay in VULKAN)
    icds = host.check_output("ls /usr/share/vulkan/icd.d").split()
    assert icds == [f"{name}_icd.json" for name in names]
    drivers = host.check_output("ls /usr/lib/*-linux-gnu | grep ^libvulkan_").split()
    assert drivers == [f"libvulkan_{name}.so" for name in names]


@pytest.mark.static
def test_device_nodes_are_of_render(host: Host) -> None:
    assert RULE in host.file(UDEV).content_string
    assert host.group("render").exists


@pytest.mark.boot
def test_opencl_says_what_is_there(host: Host) -> None:
    said = host.run("clinfo -l")
    assert said.rc == 0
    assert ("Intel(R) Arc" in said.stdout) == has_card(host)


@pytest.mark.boot
def test_level_zero_says_what_is_there(host: Host) -> None:
    result = int(host.check_output(f'python3 -c "{ZE_INIT}"'))
    assert result == (0 if has_card(host) else UNINITIALIZED)


@pytest.mark.boot
def test_vulkan_says_what_is_there(host: Host) -> None:
    said = host.run("vulkaninfo --summary").stdout
    assert "llvmpipe" not in said
    assert ("Arc" in said) == has_card(host)


@pytest.mark.boot
def test_user_may_use_the_card(host: Host) -> None:
    nodes = host.run("ls /dev/dri/renderD*").stdout.split() if has_card(host) else []
    assert bool(nodes) == has_card(host)
    for node in nodes:
        device = host.file(node)
        assert (device.group, device.mode & 0o660) == ("render", 0o660)
