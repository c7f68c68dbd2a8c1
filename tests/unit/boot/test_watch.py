# SPDX-License-Identifier: Apache-2.0
"""How far a machine is, from lines that machines, dnsmasq and nginx really said."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from imagebuilder.boot.watch import Watch
from imagebuilder.report.types import Stage

MAC, ADDRESS = "52:54:00:9a:7e:01", "10.77.0.11"
BIOS = (
    "SeaBIOS (version 1.16.2-debian-1.16.2-1)",
    "Configuring (net0 52:54:00:9a:7e:01)... ok",
    "net0: 10.77.0.11/255.255.255.0",
    "Next server: 10.77.0.1",
    "Filename: http://10.77.0.1/boot.ipxe",
)
UEFI = (
    'BdsDxe: starting Boot0001 "UEFI PXEv4 (MAC:5254009A7E01)" from PciRoot(0x0)',
    ">>Start PXE over IPv4.",
    "  Station IP address is 10.77.0.11",
    "  NBP filename is ipxe.efi",
)
KERNEL = "[    0.000000] Linux version 7.2.12+deb14-amd64 (debian-kernel@lists.debian.org)"
INITRD = (
    "[    5.388032] systemd[1]: systemd 262-1 running in system mode (+PAM +AUDIT +SELINUX)",
    "[    7.259638] systemd[1]: Queued start job for default target initrd.target.",
)
OURS = (
    ("[   12.164032] imagebuilder: stage network", Stage.INITRD),
    ("[   26.534559] imagebuilder: stage root", Stage.NETWORK),
    ("[   29.834651] imagebuilder: stage overlay", Stage.ROOT),
    ("[   31.445645] imagebuilder: stage node-files", Stage.ROOT),
    ("[   32.749561] imagebuilder: stage switch-root", Stage.SWITCH_ROOT),
    ("[   36.763491] systemd[1]: systemd 262-1 running in system mode (+PAM)", Stage.UNITS),
)
DHCP = "dnsmasq-dhcp[16365]: 2577915956 "
RELEASE = "/releases/generic/20261030080801-3c38b245"


def watched(
    console: Iterable[str] = (), dnsmasq: Iterable[str] = (), nginx: Iterable[str] = ()
) -> Watch:
    """A watch that has heard these lines, one a second."""
    watch = Watch(MAC, {ADDRESS})
    for hear, lines in (
        (watch.hear_dnsmasq, dnsmasq), (watch.hear_nginx, nginx), (watch.hear_console, console),
    ):  # fmt: skip
        for second, line in enumerate(lines):
            hear(line, float(second))
    return watch


def test_nothing_is_known_before_anything_is_said() -> None:
    assert watched().last is None
    assert watched().current is Stage.FIRMWARE


@pytest.mark.parametrize(
    ("lines", "last"),
    [
        (BIOS[:1], None),
        (BIOS[:2], Stage.FIRMWARE),
        (BIOS, Stage.BOOT_FILE),
        (UEFI[:1], None),
        (UEFI, Stage.FIRMWARE),
        ((*UEFI, KERNEL), Stage.KERNEL),
    ],
)
def test_a_console_tells_what_no_daemon_does(lines: tuple[str, ...], last: Stage | None) -> None:
    assert watched(lines).last is last


def test_each_line_of_the_initrd_passes_a_stage() -> None:
    lines = [KERNEL, *INITRD]
    assert watched(lines).last is Stage.KERNEL
    for line, stage in OURS:
        lines.append(line)
        assert watched(lines).last is stage
    lines[-1] = "gate-1 login: [   98.871210] input: PC Speaker as /devices/platform/pcspkr"
    assert watched(lines).last is Stage.UNITS


@pytest.mark.parametrize(
    ("line", "last"),
    [
        (f"{DHCP}DHCPDISCOVER(br0) {MAC} ", Stage.FIRMWARE),
        (f"{DHCP}DHCPACK(br0) 10.77.0.11 {MAC} gate-1", Stage.DHCP),
        (f"{DHCP}DHCPDISCOVER(br0) 52:54:00:9a:7e:02 ", None),
        (f"{DHCP}DHCPACK(br0) 10.77.0.12 52:54:00:9a:7e:02 gate-2", None),
        ("dnsmasq-tftp[16365]: sent /run/netboot/tftp/ipxe.efi to 10.77.0.11", Stage.BOOT_FILE),
        ("dnsmasq-tftp[16365]: sent /run/netboot/tftp/ipxe.efi to 10.77.0.12", None),
        ("dnsmasq-tftp[16365]: file /run/netboot/tftp/ipxe.efi not found for 10.77.0.11", None),
    ],
)
def test_dnsmasq_tells(line: str, last: Stage | None) -> None:
    assert watched(dnsmasq=[line]).last is last


def test_an_address_that_it_is_given_is_its_own() -> None:
    told = watched(
        dnsmasq=[f"{DHCP}DHCPACK(br0) 10.77.0.200 {MAC}"],
        nginx=["10.77.0.200 200 3103 0.000 /boot.ipxe"],
    )
    assert told.last is Stage.IPXE


@pytest.mark.parametrize(
    ("line", "last"),
    [
        ("10.77.0.11 200 3103 0.000 /boot.ipxe", Stage.IPXE),
        ("10.77.0.11 404 146 0.000 /boot.ipxe", None),
        ("10.77.0.12 200 3103 0.000 /boot.ipxe", None),
        (f"10.77.0.11 200 14123008 0.041 {RELEASE}/vmlinuz", Stage.RELEASE),
        (f"10.77.0.11 302 138 0.000 {RELEASE}/vmlinuz", None),
        (f"10.77.0.11 204 0 0.000 /report/x?stage=root&uptime=26.5&node={MAC}", Stage.NETWORK),
        (f"10.77.0.11 204 0 0.000 /report/x?stage=failed&at=root&node={MAC}", None),
    ],
)
def test_nginx_tells(line: str, last: Stage | None) -> None:
    assert watched(nginx=[line]).last is last


@pytest.mark.parametrize(
    ("line", "stage"),
    [
        ("imagebuilder: BOOT FAILED in stage scripts: no answer from http://10.77.0.1", Stage.IPXE),
        ("imagebuilder: BOOT FAILED in stage release: no generic/candidate", Stage.RELEASE),
        ("[   12.1] imagebuilder: BOOT FAILED in stage cmdline: root=x is not", Stage.INITRD),
        ("[   12.1] imagebuilder: BOOT FAILED in stage network: no network", Stage.NETWORK),
        ("[   12.1] imagebuilder: BOOT FAILED in stage root: nfs4:10.77.0.1:/x: no", Stage.ROOT),
        ("[   12.1] imagebuilder: BOOT FAILED in stage overlay: no space", Stage.ROOT),
        ("[   12.1] imagebuilder: BOOT FAILED in stage node-files: no", Stage.SWITCH_ROOT),
        ("[!!!!!!] Switch root target contains no usable init.", Stage.SWITCH_ROOT),
    ],
)
def test_a_machine_says_where_it_fails(line: str, stage: Stage) -> None:
    failed = watched([KERNEL, line])
    assert failed.failure
    assert failed.current is stage
    assert failed.failure.what == re.sub(r".*BOOT FAILED in stage \S+: ", "", line)


@pytest.mark.parametrize(
    ("before", "line", "stage"),
    [
        (BIOS[:2], "No bootable device.", Stage.DHCP),
        (BIOS, "No bootable device.", Stage.IPXE),
        (UEFI, "BdsDxe: No bootable option or device was found.", Stage.DHCP),
        (UEFI, "  PXE-E23: Client received TFTP error from server.", Stage.DHCP),
        (
            (KERNEL,),
            "[    1.9] Kernel panic - not syncing: VFS: Unable to mount root fs on (0,0)",
            Stage.INITRD,
        ),
    ],
)
def test_some_lines_mean_that_no_waiting_helps(
    before: tuple[str, ...], line: str, stage: Stage
) -> None:
    lost = watched((*before, line))
    assert lost.failure
    assert lost.failure.what == line.strip()
    assert lost.current is stage


def test_what_is_said_first_counts() -> None:
    lines = (
        "[ 20.0] imagebuilder: BOOT FAILED in stage root: no export",
        "[ 21.0] systemd[1]: You are in emergency mode",
    )
    assert watched(lines).failure == watched(lines[:1]).failure


def test_stages_keep_their_order_and_the_time_they_were_first_reached() -> None:
    watch = watched([KERNEL, OURS[0][0], KERNEL])
    assert [(one.stage, one.seconds) for one in watch.stages] == [
        (Stage.KERNEL, 0.0), (Stage.INITRD, 1.0),
    ]  # fmt: skip
