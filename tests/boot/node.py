# SPDX-License-Identifier: Apache-2.0
"""What a booted node says about itself: a unit among its own files that tells and powers off."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.boot.acceleration import CHEAP
from imagebuilder.boot.lab import Lab
from imagebuilder.cpio import Entry
from imagebuilder.program import Program
from tests.boot.machine import machine, make_initrd

BOOT_SECONDS = 600
# A service that does not end, or a root that hangs, is waited for 90 s by systemd.
OFF_SECONDS = 75
NODE = "imagebuilder/node"
LOWER = "/run/initramfs/imagebuilder/lower"
UNIT = b"""\
[Unit]
Description=Tell the laboratory what this node is
[Service]
ExecStart=/etc/laboratory
"""
# Facts are lines `name=value`.  Files are read again from the server after the caches are
# dropped, because a network that is lost is noticed only then.  Complaints of programs go to the
# console: beside the facts they would fall into the middle of one.
TELL = """\
#!/bin/sh
exec > /dev/ttyS1 2> /dev/ttyS0
tell() {{ sed "s/^/$1=/"; }}
echo "state=$(systemctl is-system-running --wait)"
systemctl --failed --plain --no-legend | tell failed
findmnt -rno FSTYPE / | tell root
findmnt -rno FSTYPE,SOURCE,OPTIONS {lower} | tell lower
findmnt -brno SIZE,SOURCE /run/initramfs/imagebuilder/overlay | tell overlay
ip -o -4 address show scope global | tell address
cat /run/imagebuilder/stages | tell stage
cat /etc/machine-id | tell machine-id
cat /proc/sys/kernel/hostname | tell name
ss -Hltn | tell listens
systemctl list-timers --plain --no-legend | tell timer
stat -c '%n %F %a %u:%g' {paths} | tell stat
echo written > /usr/written && cat /usr/written | tell write
find /var/log/journal -type f | tell journal
echo 3 > /proc/sys/vm/drop_caches
find /usr/bin /usr/lib/systemd -type f | sed -n 1,100p | xargs cat | wc -c | tell read
echo end=
systemctl poweroff --no-block
"""


@dataclass(frozen=True)
class Image:
    """What a build gives: the boot files, and the root as a tree."""

    folder: Path

    @property
    def kernel(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def initrds(self) -> tuple[Path, ...]:
        return tuple(self.folder / name for name in ("early.img", "initrd.img"))

    @property
    def root(self) -> Path:
        return (self.folder / "root").resolve()

    @property
    def cmdline(self) -> list[str]:
        """Its words without the consoles, which are the laboratory's business."""
        words = (self.folder / "cmdline").read_text().split()
        return [word for word in words if not word.startswith("console=")]


@dataclass(frozen=True)
class Told:
    """What a node told, in order, and how long it took to power off."""

    facts: tuple[tuple[str, str], ...]
    off_seconds: float

    def all(self, name: str) -> list[str]:
        """Every value told under `name`."""
        return [value for told, value in self.facts if told == name]

    def one(self, name: str) -> str:
        """The one value told under `name`."""
        values = self.all(name)
        assert len(values) == 1, f"{name}: {values}"
        return values[0]


def run_node(room: Lab, image: Image, words: Sequence[str], entries: Sequence[Entry] = ()) -> Told:
    """Boot a node with the image's cmdline and `words`, and `entries` among its own files.

    Raises WorkError with the console's last lines when it does not come up, or not down in time.
    """
    paths = " ".join(f"/{entry.path.removeprefix(f'{NODE}/')}" for entry in entries)
    tell = TELL.format(lower=LOWER, paths=paths or "/").encode()
    wants = f"{NODE}/etc/systemd/system/multi-user.target.wants"
    ours = (
        Entry(f"{NODE}/etc/laboratory", tell, 0o755),
        Entry(f"{NODE}/etc/systemd/system/laboratory.service", UNIT),
        Entry(f"{wants}/laboratory.service", link="../laboratory.service"),
    )
    initrd = make_initrd(image.initrds, (*ours, *entries), room.work / "initrd.img")
    facts = room.work / "facts"
    cmdline = (*image.cmdline, *CHEAP, *words)
    with machine(room, image.kernel, initrd, cmdline, facts=facts) as node:
        wait_for_end(facts, node)
        started = time.monotonic()
        node.wait(OFF_SECONDS)
        off = time.monotonic() - started
    pairs = (line.strip().partition("=") for line in facts.read_text().splitlines())
    return Told(tuple((name, value) for name, _, value in pairs), off)


def wait_for_end(facts: Path, node: Program) -> None:
    """Wait until `node` has told everything.  Raises WorkError."""
    deadline = time.monotonic() + BOOT_SECONDS
    while not (facts.exists() and "\nend=" in facts.read_text()):
        if node.status is not None or time.monotonic() > deadline:
            raise node.complaint("did not say what it is")
        time.sleep(0.2)


def run_failing_node(
    room: Lab, image: Image, words: Sequence[str], entries: Sequence[Entry] = ()
) -> list[str]:
    """Boot a node that cannot come up and powers off; what our part of the initrd said."""
    initrd = make_initrd(image.initrds, entries, room.work / "initrd.img")
    ending = ("rd.shell=0", "rd.emergency=poweroff")
    with machine(room, image.kernel, initrd, (*image.cmdline, *CHEAP, *ending, *words)) as node:
        node.wait(BOOT_SECONDS)
        said = node.said(r"\] imagebuilder: ")
    return [line.partition("imagebuilder: ")[2] for line in said]
