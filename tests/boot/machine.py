# SPDX-License-Identifier: Apache-2.0
"""Machines of tests: netbooting ones as the product has them, and one given its kernel."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from imagebuilder.boot.acceleration import emulated
from imagebuilder.boot.console import Console
from imagebuilder.boot.lab import Lab
from imagebuilder.boot.machine import MEMORY_MIB, Firmware, Machine, Nic, nic_words
from imagebuilder.boot.machine import netbooting as switched_on
from imagebuilder.cpio import Entry, padded, render_cpio
from imagebuilder.process import Word
from imagebuilder.program import Program
from tests.boot.lab import TAPS

__all__ = [
    "MACS",
    "MEMORY_MIB",
    "UUID",
    "Firmware",
    "Machine",
    "machine",
    "make_initrd",
    "netbooting",
]

UUID = "6f2b1c34-58d0-4c6e-9a41-0b7de1f0c2a5"
MACS = ("52:54:00:77:00:01", "52:54:00:77:00:02")
# The same everywhere, so that a test takes the same way.
ACCELERATION = emulated("tests")


def make_initrd(initrds: Sequence[Path], entries: Sequence[Entry], target: Path) -> Path:
    """`initrds` and the node's own files behind them, as a boot loader puts them together."""
    parts = [padded(path.read_bytes()) for path in initrds]
    target.write_bytes(b"".join((*parts, render_cpio(entries))))
    return target


def nics(macs: Sequence[str]) -> list[Nic]:
    """A NIC on each tap."""
    return [Nic(tap, mac) for tap, mac in zip(TAPS, macs, strict=True)]


@contextlib.contextmanager
def machine(
    room: Lab, kernel: Path, initrd: Path, cmdline: Sequence[str], *, facts: Path | None = None
) -> Iterator[Program]:
    """A running machine that was given its kernel; its lines are its serial console.

    `facts` gets what the node writes to its second serial port: to the first one the kernel
    prints at any time, in the middle of a line too.
    It ends by itself when the node powers off, and instead of rebooting.
    """
    second: list[Word] = ["-serial", f"file:{facts}"] if facts else []
    argv: list[Word] = [
        "qemu-system-x86_64", *ACCELERATION.words(), "-m", str(MEMORY_MIB), "-nodefaults",
        "-display", "none", "-serial", "stdio", *second, "-device", "virtio-rng-pci", "-uuid", UUID,
        "-no-reboot", *nic_words(Firmware.UEFI, nics(MACS)),
        "-kernel", kernel, "-initrd", initrd, "-append", " ".join(("console=ttyS0", *cmdline)),
    ]  # fmt: skip
    with room.program("machine", argv) as started:
        yield started


@contextlib.contextmanager
def netbooting(
    room: Lab, firmware: Firmware, macs: Sequence[str] = MACS, *, name: str = "machine"
) -> Iterator[Machine]:
    """A running machine that boots from the network whenever it is switched on."""
    console = Console(room.work / f"{name}.console")
    with switched_on(room, name, firmware, nics(macs), ACCELERATION, console) as machine:
        yield machine
