# SPDX-License-Identifier: Apache-2.0
"""The whole chain in its other ways: proxy DHCP, strangers, live systems, failures."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path

import pytest

from imagebuilder.boot.lab import Lab
from imagebuilder.boot.machine import Firmware
from imagebuilder.cpio import Entry, render_cpio
from imagebuilder.process import run
from tests.boot.lab import router
from tests.boot.machine import MACS, netbooting
from tests.boot.server import BOOT_SECONDS, Published, boot_server
from tests.workshop import Workshop

pytestmark = pytest.mark.boot

LOG_SECONDS = 30
# The first process of the live system: it says what it was told and waits.
LIVE_INIT = b"""\
#!/bin/busybox sh
/bin/busybox mkdir /proc /dev
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
echo 1 > /proc/sys/kernel/printk # the kernel prints in the middle of lines
exec > /dev/ttyS0
echo "LIVE $(/bin/busybox cat /proc/cmdline)"
exec /bin/busybox sleep 100000
"""


def test_beside_a_router_a_stranger_gets_the_menu_and_its_default(
    room: Lab, workshop: Workshop, published: Published
) -> None:
    nodes = """\
menu: {default: generic, timeout: 2}
nodes:
  gamma: {macs: ["52:54:00:77:00:98"], profile: generic}
"""
    with (
        router(room),
        boot_server(room, workshop, published, nodes, ["--dhcp", "proxy"]) as server,
        netbooting(room, Firmware.UEFI) as machine,
    ):
        report = server.await_stage(machine, "switch-root")
        requests = server.requests()
        menu = machine.console.said(r"generic \(stable\)")
        mistaken = server.program.said(f"^{MACS[1]} ")
    assert report.version == published.old
    assert re.fullmatch(r"10\.77\.0\.1[6-9]\d", report.address), "the router gave it"
    assert "200 /menu.ipxe" in requests
    assert "404 /nodes/52-54-00-77-00-01/boot.ipxe" in requests
    assert menu
    assert not mistaken, "the other NIC of the same machine"


@pytest.mark.parametrize(
    ("firmware", "dhcp"),
    [(Firmware.UEFI, "full"), (Firmware.BIOS, "proxy")],
    ids=["uefi-full", "bios-proxy"],
)
def test_a_live_iso_boots_its_kernel_from_the_menu(
    room: Lab, workshop: Workshop, published: Published, firmware: Firmware, dhcp: str
) -> None:
    iso = make_live_iso(room.work / "tiny.iso", published)
    nodes = "menu: {default: live/tiny, timeout: 2}\n"
    with (
        router(room) if dhcp == "proxy" else nullcontext(),
        boot_server(room, workshop, published, nodes, ["--dhcp", dhcp]) as server,
    ):
        server("live", "add", f"{iso}")
        with netbooting(room, firmware) as machine:
            said = server.awaited(machine, lambda: machine.console.said("LIVE "), "the live system")
    assert "url=http://10.77.0.1/live/tiny/tiny.iso" in str(said)


def test_a_node_without_a_release_ends_at_a_screen_that_says_so(
    room: Lab, workshop: Workshop, published: Published
) -> None:
    nodes = f"""\
nodes:
  delta: {{macs: ["{MACS[0]}"], profile: absent}}
"""
    with (
        boot_server(room, workshop, published, nodes) as server,
        netbooting(room, Firmware.BIOS) as machine,
    ):
        machine.process.wait_for(
            "BOOT FAILED in stage release: no absent/stable that boots", BOOT_SECONDS
        )
        server.program.wait_for(r"404 .* /channels/absent/stable/boot\.ipxe", LOG_SECONDS)
        warned = server.program.said('this tree has no release of "absent"')
    assert warned


def make_live_iso(path: Path, published: Published) -> Path:
    """An ISO as Ubuntu's: the kernel of a release, and an initrd that tells what it was told."""
    files = path.with_suffix(".d")
    (files / "casper").mkdir(parents=True)
    release = published.tree / "http/releases/generic" / published.old
    (files / "casper/vmlinuz").write_bytes((release / "vmlinuz").read_bytes())
    busybox = Path("/bin/busybox").read_bytes()
    entries = [Entry("bin/busybox", busybox, 0o755), Entry("init", LIVE_INIT, 0o755)]
    (files / "casper/initrd").write_bytes(render_cpio(entries))
    run(["xorriso", "-as", "mkisofs", "-quiet", "-V", "TINY", "-J", "-R", "-o", path, files])
    return path
