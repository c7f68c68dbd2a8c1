# SPDX-License-Identifier: Apache-2.0
"""The whole chain under UEFI: a node boots a release as itself, and outlives what is published."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from imagebuilder.boot.lab import SERVER, Lab
from imagebuilder.boot.machine import Firmware, Machine
from imagebuilder.drift.types import PARTS
from imagebuilder.nodes.evidence.seen import PCI
from imagebuilder.tree import DEFAULT_TREE
from tests.boot.conftest import NEWS, UNTESTED
from tests.boot.machine import MACS, netbooting
from tests.boot.node import LOWER
from tests.boot.server import CHEAP_NODE, Login, Published, Server, boot_server, log_in
from tests.workshop import Workshop

pytestmark = pytest.mark.boot

# `beta` is somebody to ask for by name.
NODES = f"""\
nodes:
  alpha:
    macs: ["{MACS[0]}"]
    profile: generic
    address: 10.77.0.21
    static: true
    console: [ttyS0]
    cmdline: {CHEAP_NODE}
    netconsole: true
  beta:
    macs: ["52:54:00:77:00:99"]
    profile: generic
    address: 10.77.0.22
"""
TELL = f"""\
echo "name=$(hostname)"
echo "machine-id=$(cat /etc/machine-id)"
echo "firmware=$(test -d /sys/firmware/efi && echo uefi || echo bios)"
echo "lower=$(findmnt -rno FSTYPE,SOURCE {LOWER})"
echo "beta=$(getent hosts beta.nodes | cut -d ' ' -f 1)"
echo "host-keys=$(cd /etc/ssh && echo ssh_host_*_key)"
echo "state=$(systemctl is-system-running --wait)"
"""
# What is in no cache is read from the server: a root that is gone would be a stale file handle.
READ = f"""\
echo 3 > /proc/sys/vm/drop_caches
find /usr/bin /usr/lib/systemd -type f | sed 100q | xargs cat | wc -c
test -e /{NEWS} && echo new || echo old
"""


@dataclass(frozen=True)
class Alpha:
    """The node under test, booted, and its server."""

    server: Server
    machine: Machine
    login: Login
    booted: str


@pytest.fixture(scope="module")
def alpha(shared_room: Lab, workshop: Workshop, published: Published) -> Iterator[Alpha]:
    """`alpha`, which answers to ssh with its own host key and no other."""
    with (
        boot_server(shared_room, workshop, published, NODES) as server,
        netbooting(shared_room, Firmware.UEFI) as machine,
    ):
        report = server.await_stage(machine, "switch-root")
        yield Alpha(
            server, machine, log_in(server, machine, "alpha", report.address), report.version
        )


def test_over_uefi_and_nfs_a_node_boots_its_release_as_itself(
    alpha: Alpha, published: Published
) -> None:
    told = dict(line.split("=", 1) for line in alpha.login(TELL).stdout.splitlines())
    kept = alpha.server.tree / "nodes/alpha"
    assert alpha.booted == published.old
    assert told == {
        "name": "alpha",
        "machine-id": (kept / "machine-id").read_text().strip(),
        "firmware": "uefi",
        "lower": f"nfs4 {SERVER}:{DEFAULT_TREE}/roots/generic/{published.old}",
        "beta": "10.77.0.22",
        "host-keys": "ssh_host_ed25519_key",
        "state": "running",
    }


def test_who_watches_the_server_sees_the_stages_of_a_boot(alpha: Alpha) -> None:
    alpha.server.program.wait_for(r"^alpha +ssh ", 60)
    lines = alpha.server.program.said(r"^alpha ")
    assert [line.split()[1] for line in lines[:6]] == [
        "DHCP", "firmware", "iPXE", "kernel", "root", "ssh",
    ]  # fmt: skip


def test_its_kernel_sends_what_it_said_from_its_first_message_on(alpha: Alpha) -> None:
    (boot,) = json.loads(alpha.server("console", "alpha", "--json").stdout)
    assert re.match(r"\[ +0\.\d+\] Linux version ", boot["lines"][0])
    assert any("imagebuilder: stage switch-root" in line for line in boot["lines"])


def test_its_last_report_has_its_cards(alpha: Alpha) -> None:
    record = alpha.server.tree / f"seen/{MACS[0].replace(':', '-')}.json"
    assert PCI.fullmatch(json.loads(record.read_text())["pci"])


def test_what_the_node_was_given_is_known_and_nothing_would_change(alpha: Alpha) -> None:
    assert ask_drift(alpha.server) == dict.fromkeys(PARTS, "same")


def ask_drift(server: Server) -> dict[str, str]:
    """What a reboot of alpha would do to each part."""
    (node,) = json.loads(server("drift", "alpha", "--json").stdout)["nodes"]
    return {name: node[name]["state"] for name in PARTS}


def test_a_running_node_is_untouched_by_promotion_and_its_next_boot_gets_it(
    alpha: Alpha, published: Published
) -> None:
    server, machine = alpha.server, alpha.machine
    kernels = {
        version: f"200 /releases/generic/{version}/vmlinuz"
        for version in (published.old, published.new)
    }

    # 1. Another version is stable, and the old one is nobody's any more but the node's.
    server("promote", "generic", *UNTESTED)
    server("gc", "--releases", "--keep", "1")
    refused = server("unpublish", f"generic@{published.old}", check=False)
    assert refused.status == 2
    assert "alpha" in refused.stderr
    size, version = alpha.login(READ).stdout.split()
    assert int(size) > 1_000_000
    assert version == "old"
    changed = ask_drift(server)
    assert (changed["root"], changed["cmdline"], changed["files"]) == ("changes", "same", "same")

    # 2. The next boot gets it.
    before = len(server.reports("root"))
    machine.power_cycle()
    seen = server.await_request(machine, kernels[published.new])
    report = server.await_stage(machine, "root", after=before)
    assert (report.version, report.mac) == (published.new, MACS[0])

    # 3. After a rollback, the one after that gets the old one again.
    server("rollback", "generic")
    machine.power_cycle()
    server.await_request(machine, kernels[published.old], after=seen)
