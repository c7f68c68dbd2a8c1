# SPDX-License-Identifier: Apache-2.0
"""A machine in QEMU: its serial console, and its monitor.

It has one processor: with several, multi-threaded TCG can run the stale half of an instruction that
the kernel is patching (static keys), and the machine panics once in some dozen boots.
"""

from __future__ import annotations

import contextlib
import enum
import shutil
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.nodes.initrd import Entry, padded, render_cpio
from imagebuilder.process import Word
from imagebuilder.program import Program
from tests.boot.lab import TAPS, Lab

UUID = "6f2b1c34-58d0-4c6e-9a41-0b7de1f0c2a5"
MACS = ("52:54:00:77:00:01", "52:54:00:77:00:02")
# Enough for every root that tests boot; a machine of a test has this much memory.
MEMORY_MIB = 2048
OVMF = Path("/usr/share/OVMF")
OVMF_CODE, OVMF_VARS = "OVMF_CODE_4M.fd", "OVMF_VARS_4M.fd"
MONITOR_SECONDS = 10


class Firmware(enum.Enum):
    """What a machine starts with.

    SeaBIOS has no network boot of its own: QEMU's option ROM is iPXE, which asks as iPXE does.
    OVMF boots from the network with its own drivers.
    """

    UEFI = "uefi"
    BIOS = "bios"

    def words(self, work: Path) -> list[Word]:
        """QEMU's words; `work` is where a machine's own variables of the firmware go.

        Both show on the serial port what they would show on a screen.
        """
        if self is Firmware.BIOS:
            return ["-machine", "pc,graphics=off"]
        shutil.copyfile(OVMF / OVMF_VARS, work / OVMF_VARS)
        flash = "if=pflash,format=raw"
        return [
            "-machine", "q35",
            "-drive", f"{flash},unit=0,readonly=on,file={OVMF / OVMF_CODE}",
            "-drive", f"{flash},unit=1,file={work / OVMF_VARS}",
        ]  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """A running machine: what its console says, and the socket of its monitor."""

    console: Program
    monitor: Path

    def reset(self) -> None:
        """Press the reset button."""
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(MONITOR_SECONDS)
            line.connect(str(self.monitor))
            with line.makefile("rw") as spoken:
                spoken.write("system_reset\n")
                spoken.flush()
                while "system_reset" not in spoken.readline():
                    pass


def make_initrd(initrd: Path, entries: Sequence[Entry], target: Path) -> Path:
    """`initrd` with the node's own files behind it, as a boot loader puts them together."""
    target.write_bytes(padded(initrd.read_bytes()) + render_cpio(entries))
    return target


def base_words(macs: Sequence[str], *, nic: str) -> list[Word]:
    """QEMU's words for a machine with a NIC on each tap; `nic` is said of all of them."""
    nics = [
        word
        for number, (tap, mac) in enumerate(zip(TAPS, macs, strict=True))
        for word in (
            "-netdev", f"tap,id=n{number},ifname={tap},script=no,downscript=no",
            "-device", f"virtio-net-pci,netdev=n{number},mac={mac}{nic}",
        )
    ]  # fmt: skip
    return [
        "qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-smp", "1",
        "-m", str(MEMORY_MIB), "-nodefaults", "-display", "none", "-serial", "stdio",
        "-device", "virtio-rng-pci", "-uuid", UUID, *nics,
    ]  # fmt: skip


@contextlib.contextmanager
def machine(
    room: Lab, kernel: Path, initrd: Path, cmdline: Sequence[str], *, name: str = "machine"
) -> Iterator[Program]:
    """A running machine that was given its kernel; its lines are its serial console.

    It ends by itself when the node powers off, and instead of rebooting.
    """
    argv: list[Word] = [
        *base_words(MACS, nic=",romfile="), "-no-reboot",
        "-kernel", kernel, "-initrd", initrd, "-append", " ".join(("console=ttyS0", *cmdline)),
    ]  # fmt: skip
    with room.program(name, argv) as started:
        yield started


@contextlib.contextmanager
def netbooting(
    room: Lab, firmware: Firmware, macs: Sequence[str] = MACS, *, name: str = "machine"
) -> Iterator[Machine]:
    """A running machine that boots from the network, again after every reset."""
    # OVMF has a driver of its own, which QEMU's ROM would replace by iPXE.
    rom = ",romfile=" if firmware is Firmware.UEFI else ""
    monitor = room.work / f"{name}.monitor"
    argv: list[Word] = [
        *base_words(macs, nic=rom), *firmware.words(room.work), "-boot", "n",
        "-monitor", f"unix:{monitor},server=on,wait=off",
    ]  # fmt: skip
    with room.program(name, argv) as console:
        yield Machine(console, monitor)
