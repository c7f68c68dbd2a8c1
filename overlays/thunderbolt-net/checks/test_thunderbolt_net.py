# SPDX-License-Identifier: Apache-2.0
"""Cables between nodes make a network of their own, which is never in the way of the boot NIC."""

from __future__ import annotations

import json
import re

import pytest
from testinfra.host import Host

FOLDER = "/etc/systemd/network"
BRIDGE = "tb0"
FILES = ("60-thunderbolt-bridge.netdev", "60-thunderbolt-bridge.network", "60-thunderbolt.network")
MODULES = ("thunderbolt", "thunderbolt_net", "bridge")


def lines(host: Host, name: str) -> list[str]:
    """The lines of one of our files."""
    text: str = host.file(f"{FOLDER}/{name}").content_string
    return text.splitlines()


def mtus(host: Host) -> set[str]:
    """The sizes of packets that our files name."""
    text = "\n".join(line for name in FILES for line in lines(host, name))
    return set(re.findall(r"^MTUBytes=(.*)$", text, re.MULTILINE))


@pytest.mark.static
@pytest.mark.parametrize("module", MODULES)
def test_every_kernel_has_the_driver(host: Host, module: str) -> None:
    kernels = host.check_output("ls /usr/lib/modules").split()
    assert kernels
    for kernel in kernels:
        assert host.run(f"/usr/sbin/modinfo -k {kernel} -n {module}").rc == 0


@pytest.mark.static
def test_the_service_is_offered_from_the_boot_on(host: Host) -> None:
    assert host.run("grep -rsqx thunderbolt_net /etc/modules-load.d").rc == 0


@pytest.mark.static
def test_the_boot_does_not_wait_for_a_cable(host: Host) -> None:
    for name in FILES[1:]:
        assert "RequiredForOnline=no" in lines(host, name)


@pytest.mark.static
def test_no_route_leads_over_a_cable(host: Host) -> None:
    found = set(lines(host, FILES[1]))
    assert {"DHCP=no", "IPv6AcceptRA=no"} <= found
    assert not any(line.startswith(("Gateway=", "[Route]")) for line in found)


@pytest.mark.static
def test_packets_have_one_size(host: Host) -> None:
    found = mtus(host)
    assert len(found) == 1
    assert 1280 <= int(found.pop()) <= 65520


@pytest.mark.static
def test_nothing_authorises_devices(host: Host) -> None:
    # Two hosts need no authorisation; a device that is plugged in would get PCIe, that is memory.
    assert not host.package("bolt").is_installed
    assert host.run("grep -rls 'ATTR{authorized}=\"1\"' /etc/udev/rules.d").stdout == ""


@pytest.mark.boot
def test_the_bridge_is_there_and_quiet(host: Host) -> None:
    found = json.loads(host.check_output(f"ip -j -d link show {BRIDGE}"))[0]
    assert found["linkinfo"]["info_kind"] == "bridge"
    assert found["linkinfo"]["info_data"]["stp_state"] == 1
    assert {str(found["mtu"])} == mtus(host)


@pytest.mark.boot
def test_cables_are_its_ports(host: Host) -> None:
    script = "for d in /sys/class/net/*/device/driver; do readlink -f $d; done"
    drivers = host.run(script).stdout.splitlines()
    cables = [driver for driver in drivers if driver.endswith("/thunderbolt-net")]
    ports = json.loads(host.check_output(f"ip -j link show master {BRIDGE}"))
    assert len(ports) == len(cables)


@pytest.mark.boot
def test_no_default_route_is_its(host: Host) -> None:
    routes = host.check_output("ip route show default; ip -6 route show default")
    assert f"dev {BRIDGE}" not in routes
