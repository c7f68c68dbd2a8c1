# SPDX-License-Identifier: Apache-2.0
"""Driver, firmware and runtime of the NPU are there and fit, and an NPU that is there is used."""

from __future__ import annotations

import pytest
from testinfra.host import Host

from imagebuilder.checks.facts import Facts

LIBRARIES = ("libxrt_coreutil.so.2", "libxrt_core.so.2", "libxrt_driver_xdna.so.2")
PACKAGES = ("libxrt2", "libxrt-npu2", "libxrt-utils", "libxrt-utils-npu")
UDEV = "/usr/lib/udev/rules.d/50-udev-default.rules"
RULE = 'SUBSYSTEM=="accel", GROUP="render", MODE="0660"'
LIMITS = "/etc/security/limits.d/amd-xdna.conf"
# XDNA 2: Strix, Strix Halo and Krackan are one id, told apart by its revision.
NPU = "1022:17f0"


def has_npu(host: Host) -> bool:
    """Whether the machine has the NPU."""
    return NPU in host.check_output("lspci -n")


@pytest.mark.static
def test_every_kernel_has_the_driver(host: Host) -> None:
    kernels = host.check_output("ls /usr/lib/modules").split()
    assert kernels
    for kernel in kernels:
        said = host.run(f"/usr/sbin/modinfo -k {kernel} amdxdna")
        assert said.rc == 0
        assert "pci:v00001022d000017F0" in said.stdout


@pytest.mark.static
def test_firmware_that_the_driver_names_is_there(host: Host) -> None:
    # The driver names one for each revision; Debian has 00, 10 and 11 of those it knows.
    kernel = host.check_output("ls /usr/lib/modules").split()[0]
    named = host.check_output(f"/usr/sbin/modinfo -k {kernel} -F firmware amdxdna").split()
    mine = [name for name in named if name.startswith("amdnpu/17f0_11/")]
    assert mine
    there = [name for name in mine if host.run(f"ls /usr/lib/firmware/{name}*").rc == 0]
    assert there, f"none of {', '.join(mine)}"


@pytest.mark.static
def test_the_runtime_is_of_one_version(host: Host) -> None:
    assert len({host.package(name).version for name in PACKAGES}) == 1


@pytest.mark.static
@pytest.mark.parametrize("library", LIBRARIES)
def test_libraries_are_complete(host: Host, library: str) -> None:
    path = host.check_output(f"find /usr/lib -name {library}")
    assert path
    assert "not found" not in host.check_output(f"ldd {path}")


@pytest.mark.static
def test_the_tool_starts_without_an_npu(host: Host) -> None:
    said = host.run("xrt-smi examine")
    assert said.rc == 0
    assert "0 devices found" in said.stdout


@pytest.mark.static
def test_device_nodes_are_of_render_and_it_may_lock_memory(host: Host) -> None:
    assert RULE in host.file(UDEV).content_string
    assert "@render - memlock unlimited" in host.file(LIMITS).content_string.splitlines()


@pytest.mark.static
def test_the_iommu_stays_on(facts: Facts) -> None:
    # amdxdna shares the process's page tables with the NPU (SVA), which only the IOMMU can do.
    assert not {"amd_iommu=off", "iommu=off"} & set(facts.image.boot.cmdline)


@pytest.mark.boot
def test_the_runtime_says_what_is_there(host: Host) -> None:
    said = host.run("xrt-smi examine")
    assert said.rc == 0
    assert ("0 devices found" in said.stdout) != has_npu(host)


@pytest.mark.boot
def test_user_may_use_the_npu(host: Host) -> None:
    nodes = host.run("ls /dev/accel/accel*").stdout.split()
    assert bool(nodes) == has_npu(host)
    for node in nodes:
        device = host.file(node)
        assert (device.group, device.mode & 0o660) == ("render", 0o660)


@pytest.mark.boot
def test_user_may_lock_memory(host: Host) -> None:
    groups = host.check_output("id -nG").split()
    if "render" in groups:
        assert host.check_output("ulimit -l") == "unlimited"
