# SPDX-License-Identifier: Apache-2.0
"""Why a boot failed, for people: the stage, what was seen, the last lines of the right log."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from imagebuilder.boot.watch import Watch
from imagebuilder.report.types import Stage, TrialVerdict

LINES = 12
# Seconds that a stage may take under KVM; emulated, times the factor of the acceleration.
PATIENCE: Mapping[Stage, float] = {
    Stage.FIRMWARE: 30,
    Stage.DHCP: 20,
    Stage.BOOT_FILE: 20,
    Stage.IPXE: 40,
    Stage.RELEASE: 60,  # it ends with the kernel fetched, the next one begins with the initrd
    Stage.KERNEL: 80,
    Stage.INITRD: 30,
    Stage.NETWORK: 75,
    Stage.ROOT: 90,  # the initrd itself tries for a minute
    Stage.SWITCH_ROOT: 20,
    Stage.UNITS: 30,
    Stage.SSH: 100,
}


@dataclass(frozen=True)
class Meaning:
    """What it means that a machine is no further: in words, whose log tells, what to look at."""

    what: str
    log: str
    hint: str


MEANINGS: Mapping[Stage, Meaning] = {
    Stage.FIRMWARE: Meaning(
        "the firmware did not ask for an address", "console",
        "the boot order (network first), and whether the firmware has a driver for the NIC",
    ),
    Stage.DHCP: Meaning(
        "the firmware got no address", "dnsmasq",
        "the DHCP server: does it run on this wire, has it free addresses, does it know the MAC",
    ),
    Stage.BOOT_FILE: Meaning(
        "iPXE was not fetched", "dnsmasq",
        "the boot file that DHCP names for this architecture, and TFTP (UDP port 69)",
    ),
    Stage.IPXE: Meaning(
        "iPXE did not fetch its entry script", "console",
        "the web server, and the address of boot.ipxe that DHCP gives to iPXE",
    ),
    Stage.RELEASE: Meaning(
        "iPXE did not come to the kernel of the release", "nginx",
        "the scripts nodes/MAC/boot.ipxe and releases/PROFILE/VERSION/boot.ipxe, and the channel",
    ),
    Stage.KERNEL: Meaning(
        "the kernel did not start", "console",
        "vmlinuz: is it a kernel for this machine; the initrd: is it whole; the memory",
    ),
    Stage.INITRD: Meaning(
        "the initrd did not start", "console",
        "the initrd: is it readable, of this kernel, with overlay netboot; root= of the cmdline",
    ),
    Stage.NETWORK: Meaning(
        "the initrd got no network", "console",
        "the NIC's driver in the initrd (modules of this kernel), ip= on the command line, DHCP",
    ),
    Stage.ROOT: Meaning(
        "the root was not mounted", "console",
        "root= on the command line; the export or the file of this release on the server",
    ),
    Stage.SWITCH_ROOT: Meaning(
        "the root was mounted and could not be started", "console",
        "the root: has it an init, is there memory for the overlay, are the node's files fit",
    ),
    Stage.UNITS: Meaning(
        "systemd of the root did not start its units", "console",
        "the network after the initrd was left (KeepConfiguration=), the root's own systemd",
    ),
    Stage.SSH: Meaning(
        "nobody could log in", "console",
        "ssh.service and its host key, the units before it; overlay ssh is in the recipe",
    ),
}  # fmt: skip
# What a line of a log says more exactly than the stage: pattern, what it means, the hint.
SIGNS: Sequence[tuple[re.Pattern[str], str, str]] = (
    (
        re.compile(r"no address available|no address range available"),
        "the DHCP server has no address left",
        "a larger --range, or shorter leases; a node may take two leases a boot",
    ),
    (
        re.compile(r"Out of memory|Initramfs unpacking failed: write error|free memory"),
        "the machine has too little memory",
        "more memory, or a root over NFS instead of HTTP",
    ),
    (
        re.compile(r"Initramfs unpacking failed|Failed to execute /init|invalid magic at start of"),
        "the kernel could not read the initrd",
        "imagebuilder releases --verify; build and publish the image again",
    ),
    (
        re.compile(r"version magic|disagrees about version of symbol"),
        "kernel and modules are not of one build",
        "imagebuilder check shows which; build the image again",
    ),
    (
        re.compile(r"NFSERR_ACCES|Permission denied|access denied by server", re.I),
        "the server refuses to export the root to this node",
        "the export's clients and access (exportfs -v, ganesha.conf), and its options",
    ),
    (
        # Servers of version 4 hide what they do not export to a client.
        re.compile(r"mount\.nfs4?: .*No such file or directory|there is no file \S+ in /"),
        "the server has no such root for this node",
        "whether the release is still there (imagebuilder releases), and exported to this node's "
        "address (exportfs -v, ganesha.conf)",
    ),
    (
        re.compile(r"mount\.nfs4?: .*[Pp]rotocol not supported"),
        "the server does not speak that version of NFS",
        "vers= in root= on the command line, and the versions that the server offers",
    ),
    (
        re.compile(r"stage root: .*: no whole (squashfs|erofs)"),
        "the packed root is damaged",
        "imagebuilder releases --verify; publish the release again",
    ),
    (
        re.compile(r"stage node-files: tar: |^tar: "),
        "the node's own files could not be copied into the root",
        "the room in the overlay (imagebuilder.overlay-size=, the memory), and whether root may "
        "read all of the root (no_root_squash on the export)",
    ),
)  # fmt: skip


def give_verdict(
    watch: Watch, why: str, logs: Mapping[str, Sequence[str]], names: Mapping[str, str]
) -> TrialVerdict:
    """The verdict on a machine that is no further than `watch` says.

    `why` is what made us give up; `logs` are lines by source (console, dnsmasq, nginx, ganesha),
    `names` the files they are in.
    """
    stage = watch.current
    meaning = MEANINGS[stage]
    source = meaning.log
    said = watch.failure.what if watch.failure else ""
    lines = logs.get(source, ())
    sign = find_sign([said, *lines, *logs.get("console", ())])
    what = sign[0] if sign else meaning.what
    return TrialVerdict(
        passed=False,
        stage=stage,
        what=": ".join(filter(None, (what, said or why))),
        evidence=tuple(lines[-LINES:]),
        log=names.get(source, ""),
        hint=f"look at {sign[1] if sign else meaning.hint}",
    )


def find_sign(lines: Sequence[str]) -> tuple[str, str] | None:
    """What the first telling line means, and the hint."""
    for pattern, what, hint in SIGNS:
        if any(pattern.search(line) for line in lines):
            return what, hint
    return None
