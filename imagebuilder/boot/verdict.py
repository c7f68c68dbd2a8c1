# SPDX-License-Identifier: Apache-2.0
"""Explain why a boot failed: the stage, what was seen, the last lines of the right log."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from imagebuilder.boot.watch import Watch
from imagebuilder.report.types import Stage, TrialVerdict

LINES = 12
# Seconds that a stage may take under KVM; multiplied by the factor of the acceleration.
PATIENCE: Mapping[Stage, float] = {
    Stage.FIRMWARE: 30,
    Stage.DHCP: 20,
    Stage.BOOT_FILE: 20,
    Stage.IPXE: 40,
    Stage.RELEASE: 60,  # it ends with the fetched kernel, the next one begins with the initrd
    Stage.KERNEL: 80,
    Stage.INITRD: 30,
    Stage.NETWORK: 75,
    Stage.ROOT: 90,  # the initrd itself retries for a minute
    Stage.SWITCH_ROOT: 20,
    Stage.UNITS: 30,
    Stage.SSH: 100,
}


@dataclass(frozen=True)
class Meaning:
    """What it means that a machine stopped at a stage, whose log shows it, and what to check."""

    what: str
    log: str
    hint: str


MEANINGS: Mapping[Stage, Meaning] = {
    Stage.FIRMWARE: Meaning(
        "the firmware did not request an address", "console",
        "the boot order (network first), and whether the firmware has a driver for the NIC",
    ),
    Stage.DHCP: Meaning(
        "the firmware got no address", "dnsmasq",
        "the DHCP server (does it run on this network, has it free addresses), and the MAC",
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
        "iPXE did not fetch the kernel of the release", "nginx",
        "the scripts nodes/MAC/boot.ipxe and releases/PROFILE/VERSION/boot.ipxe, and the channel",
    ),
    Stage.KERNEL: Meaning(
        "the kernel did not start", "console",
        "vmlinuz (is it a kernel for this machine), the initrd (is it complete), and the memory",
    ),
    Stage.INITRD: Meaning(
        "the initrd did not start", "console",
        "the initrd (is it for this kernel, with overlay netboot), and root= of the cmdline",
    ),
    Stage.NETWORK: Meaning(
        "the initrd got no network address", "console",
        "the NIC's driver in the initrd (modules of this kernel), ip= on the command line, DHCP",
    ),
    Stage.ROOT: Meaning(
        "the root was not mounted", "console",
        "root= on the command line, and the export or the file of this release on the server",
    ),
    Stage.SWITCH_ROOT: Meaning(
        "the root was mounted but could not be started", "console",
        "the root's init, the memory for the overlayfs, and the node's files",
    ),
    Stage.UNITS: Meaning(
        "systemd of the root did not start its units", "console",
        "the network after the initrd (KeepConfiguration=), and the root's own systemd",
    ),
    Stage.SSH: Meaning(
        "nobody could log in", "console",
        "the ssh server, its host key, the units before it, and whether the recipe has overlay ssh",
    ),
}  # fmt: skip
# Log lines that are more specific than the stage: pattern, meaning, hint.
SIGNS: Sequence[tuple[re.Pattern[str], str, str]] = (
    (
        re.compile(r"no address available|no address range available"),
        "the DHCP server has no free address",
        "the --range and the lease time; a node may take two leases per boot",
    ),
    (
        re.compile(r"Out of memory|Initramfs unpacking failed: write error|free memory"),
        "the machine has too little memory",
        "the memory of the machine; a root over NFS needs less than one over HTTP",
    ),
    (
        re.compile(r"Initramfs unpacking failed|Failed to execute /init|invalid magic at start of"),
        "the kernel could not read the initrd",
        "the release with imagebuilder releases --verify, and publish a new image if it is damaged",
    ),
    (
        re.compile(r"version magic|disagrees about version of symbol"),
        "the kernel and its modules come from different builds",
        "the image with imagebuilder check, and build it again",
    ),
    (
        re.compile(r"NFSERR_ACCES|Permission denied|access denied by server", re.I),
        "the server does not export the root to this node",
        "the clients, access and options of the export (exportfs -v, ganesha.conf)",
    ),
    (
        # An NFS 4 server hides what it does not export to a client.
        re.compile(r"mount\.nfs4?: .*No such file or directory|there is no file \S+ in /"),
        "the server does not offer this root to this node",
        "whether the release still exists (imagebuilder releases) and is exported to this node's "
        "address (exportfs -v, ganesha.conf)",
    ),
    (
        re.compile(r"mount\.nfs4?: .*[Pp]rotocol not supported"),
        "the server does not support that version of NFS",
        "vers= in root= on the command line, and the versions that the server offers",
    ),
    (
        re.compile(r"stage root: .*: no whole (squashfs|erofs)"),
        "the packed root is damaged",
        "the release with imagebuilder releases --verify, and publish it again if it is damaged",
    ),
    (
        re.compile(r"stage node-files: tar: |^tar: "),
        "the node's own files could not be copied into the root",
        "the space in the overlayfs (imagebuilder.overlay-size=, the memory), and whether root may "
        "read the whole root (no_root_squash on the export)",
    ),
)  # fmt: skip


def give_verdict(
    watch: Watch, why: str, logs: Mapping[str, Sequence[str]], names: Mapping[str, str]
) -> TrialVerdict:
    """The verdict on a machine that stopped where `watch` says.

    `why` is why the trial gave up; `logs` are lines by source (console, dnsmasq, nginx, ganesha),
    `names` their files.
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
        hint=f"check {sign[1] if sign else meaning.hint}",
    )


def find_sign(lines: Sequence[str]) -> tuple[str, str] | None:
    """The meaning and the hint of the first specific line."""
    for pattern, what, hint in SIGNS:
        if any(pattern.search(line) for line in lines):
            return what, hint
    return None
