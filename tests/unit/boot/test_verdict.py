# SPDX-License-Identifier: Apache-2.0
"""Why a boot failed: the stage, what a line of a log means, evidence of the right log, a hint."""

from __future__ import annotations

import pytest

from imagebuilder.boot.verdict import LINES, MEANINGS, PATIENCE, find_sign, give_verdict
from imagebuilder.boot.watch import BOOTED, Watch
from imagebuilder.report.types import Stage

MAC = "52:54:00:9a:7e:01"
NAMES = {name: f"bios+nfs-{name}.log" for name in ("console", "dnsmasq", "nginx", "ganesha")}


def stuck_after(stage: Stage) -> Watch:
    """A machine that came so far and no further."""
    watch = Watch(MAC, {"10.77.0.11"})
    watch.reach(stage, 3.0)
    return watch


def test_every_stage_of_a_boot_has_a_meaning_and_a_limit() -> None:
    assert set(MEANINGS) == set(PATIENCE) == set(BOOTED) - {Stage.TREE}


@pytest.mark.parametrize("stage", list(MEANINGS))
def test_without_a_sign_the_stage_says_what_it_means(stage: Stage) -> None:
    watch = Watch(MAC)
    if stage is not Stage.FIRMWARE:
        watch = stuck_after(BOOTED[BOOTED.index(stage) - 1])
    verdict = give_verdict(watch, "nothing happened for 60 s", {"nginx": ["x"]}, NAMES)
    assert not verdict.passed
    assert verdict.stage is stage
    assert verdict.what == f"{MEANINGS[stage].what}: nothing happened for 60 s"
    assert verdict.hint == f"check {MEANINGS[stage].hint}"
    assert verdict.log == NAMES[MEANINGS[stage].log]


def test_evidence_is_the_end_of_the_log_that_tells() -> None:
    lines = [f"line {number}" for number in range(LINES + 5)]
    verdict = give_verdict(
        stuck_after(Stage.IPXE), "slow", {"nginx": lines, "console": ["no"]}, NAMES
    )
    assert verdict.log == NAMES["nginx"]
    assert verdict.evidence == tuple(lines[5:])


def test_what_the_machine_says_goes_before_what_made_us_give_up() -> None:
    watch = stuck_after(Stage.KERNEL)
    watch.fail("nfs4:10.77.0.1:/x: No such file or directory", Stage.ROOT)
    verdict = give_verdict(watch, "it failed", {}, NAMES)
    assert verdict.stage is Stage.ROOT
    assert verdict.what == (
        "the root was not mounted: nfs4:10.77.0.1:/x: No such file or directory"
    )


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        (
            f"dnsmasq-dhcp[99]: 1 DHCPDISCOVER(br0) {MAC} no address available",
            "the DHCP server has no free address",
        ),
        (
            "root.squashfs: the image has 212 MiB, this node only 190 MiB of free memory",
            "the machine has too little memory",
        ),
        ("[ 0.9] Initramfs unpacking failed: write error", "the machine has too little memory"),
        (
            "[ 1.7] Initramfs unpacking failed: ZSTD-compressed data is truncated",
            "the kernel could not read the initrd",
        ),
        (
            "virtio_net: version magic '6.1.0-49-amd64 SMP' should be '7.2.12+deb14-amd64 SMP'",
            "the kernel and its modules come from different builds",
        ),
        (
            "mount.nfs4: access denied by server while mounting 10.77.0.1:/run/netboot/roots/x",
            "the server does not export the root to this node",
        ),
        (
            "mount.nfs4: mounting 10.77.0.1:/x failed, reason given by server: "
            "No such file or directory",
            "the server does not offer this root to this node",
        ),
        (
            "nfs4:10.77.0.1:/x:vers=4.2: mount.nfs4: Protocol not supported for 10.77.0.1:/x on /y",
            "the server does not support that version of NFS",
        ),
        (
            "imagebuilder: BOOT FAILED in stage root: http://10.77.0.1/x/root.erofs: no whole "
            "erofs: it does not begin as one",
            "the packed root is damaged",
        ),
        (
            "imagebuilder: BOOT FAILED in stage root: nfs4:10.77.0.1:/roots/x/7.squashfs: no whole "
            "squashfs: it ends after 4096 of 81920 bytes",
            "the packed root is damaged",
        ),
        (
            "nfs4:10.77.0.1:/roots/x/7.squashfs: there is no file 7.squashfs in /roots/x",
            "the server does not offer this root to this node",
        ),
        (
            "imagebuilder: BOOT FAILED in stage node-files: tar: Exiting with failure status",
            "the node's own files could not be copied into the root",
        ),
        ("[    0.0] Linux version 7.2.12+deb14-amd64", ""),
    ],
)
def test_a_line_of_a_log_can_say_more_than_the_stage(line: str, meaning: str) -> None:
    found = find_sign(["something else", line])
    assert (found[0] if found else "") == meaning
