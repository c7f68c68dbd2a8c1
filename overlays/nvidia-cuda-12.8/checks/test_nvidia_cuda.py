# SPDX-License-Identifier: Apache-2.0
"""Modules, firmware and libraries are one driver's, and a card that is there has its nodes."""

from __future__ import annotations

import re

import pytest
from testinfra.host import Host

MODULES = ("nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm")
FOLDERS = "/usr/lib /usr/lib64"
LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1")


def driver_version(host: Host) -> str:
    """The version of the driver: that of its library."""
    found = host.check_output(f"find {FOLDERS} -name 'libcuda.so.[0-9]*.*'").splitlines()
    versions = {path.rpartition(".so.")[2] for path in found}
    assert len(versions) == 1, found
    return versions.pop()


def has_card(host: Host) -> bool:
    """Whether the machine has an NVIDIA display device (PCI class 03)."""
    devices = host.check_output("lspci -n").splitlines()
    return any(re.search(r" 03[0-9a-f]{2}: 10de:", device) for device in devices)


@pytest.mark.static
@pytest.mark.parametrize("module", MODULES)
def test_every_kernel_has_the_modules_of_this_driver(host: Host, module: str) -> None:
    for kernel in host.check_output("ls /usr/lib/modules").split():
        modinfo = f"/usr/sbin/modinfo -k {kernel} -F"
        assert host.check_output(f"{modinfo} version {module}") == driver_version(host)
        assert host.check_output(f"{modinfo} vermagic {module}").split()[0] == kernel


@pytest.mark.static
def test_the_modules_are_the_open_ones(host: Host) -> None:
    for kernel in host.check_output("ls /usr/lib/modules").split():
        said = host.check_output(f"/usr/sbin/modinfo -k {kernel} -F license nvidia")
        assert said == "Dual MIT/GPL"


@pytest.mark.static
def test_gsp_firmware_is_of_this_driver(host: Host) -> None:
    folder = f"/usr/lib/firmware/nvidia/{driver_version(host)}"
    assert {"gsp_ga10x.bin", "gsp_tu10x.bin"} <= set(host.check_output(f"ls {folder}").split())


@pytest.mark.static
@pytest.mark.parametrize("library", LIBRARIES)
def test_libraries_are_complete(host: Host, library: str) -> None:
    path = host.check_output(f"find {FOLDERS} -name {library} -print -quit")
    assert path
    assert "not found" not in host.check_output(f"ldd {path}")


@pytest.mark.static
def test_nothing_that_builds_modules_is_in_the_image(host: Host) -> None:
    assert not host.package("dkms").is_installed
    for path in ("/var/lib/dkms", "/usr/sbin/dkms"):
        assert not host.file(path).exists, path
    for headers in ("/usr/src/linux-headers-*", "/usr/src/kernels/*"):
        assert host.run(f"ls -d {headers}").rc != 0, headers


@pytest.mark.static
def test_nouveau_stays_away(host: Host) -> None:
    assert "blacklist nouveau" in host.check_output("cat /etc/modprobe.d/nvidia-cuda-12.8.conf")


@pytest.mark.static
def test_nothing_upgrades_the_driver_by_itself(host: Host) -> None:
    assert not host.package("unattended-upgrades").is_installed


@pytest.mark.boot
def test_nouveau_is_not_loaded(host: Host) -> None:
    assert not re.search(r"^nouveau ", host.file("/proc/modules").content_string, re.MULTILINE)


@pytest.mark.boot
def test_a_card_that_is_there_answers(host: Host) -> None:
    said = host.run("nvidia-smi --query-gpu=driver_version --format=csv,noheader")
    if has_card(host):
        assert said.rc == 0
        assert driver_version(host) in said.stdout
    else:
        assert said.rc != 0


@pytest.mark.boot
def test_everybody_may_use_the_nodes(host: Host) -> None:
    for name in ("nvidiactl", "nvidia0", "nvidia-uvm") if has_card(host) else ():
        assert host.file(f"/dev/{name}").mode == 0o666


@pytest.mark.boot
def test_the_persistence_daemon_runs_where_there_is_a_card(host: Host) -> None:
    service = host.service("nvidia-persistenced")
    assert service.is_enabled
    assert service.is_running == has_card(host)
