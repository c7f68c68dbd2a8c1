# SPDX-License-Identifier: Apache-2.0
"""A machine in QEMU that boots from the network: its serial console and its monitor."""

from __future__ import annotations

import contextlib
import enum
import shutil
import socket
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.boot.acceleration import Acceleration, Processor
from imagebuilder.boot.console import Console
from imagebuilder.boot.lab import Lab
from imagebuilder.errors import HostError, WorkError
from imagebuilder.process import Word
from imagebuilder.program import Program

MEMORY_MIB = 2048
OVMF = Path("/usr/share/OVMF")
OVMF_CODE, OVMF_VARS = "OVMF_CODE_4M.fd", "OVMF_VARS_4M.fd"
MONITOR_SECONDS = 10
PROMPT = "(qemu) "
UUIDS = uuid.UUID("0c4f1c36-3f0e-4f5e-8a2b-6a8f6f4f0f55")


class Firmware(enum.StrEnum):
    """What a machine starts with.

    SeaBIOS has no network boot of its own: QEMU's option ROM is iPXE, which asks as iPXE does.
    OVMF boots from the network with its own drivers.
    """

    UEFI = "uefi"
    BIOS = "bios"

    def words(self, variables: Path) -> list[Word]:
        """QEMU's words; `variables` becomes the machine's own variables of the firmware.

        Both show on the serial port what they would show on a screen.  Raises HostError.
        """
        if self is Firmware.BIOS:
            return ["-machine", "pc,graphics=off"]
        try:
            shutil.copyfile(OVMF / OVMF_VARS, variables)
        except FileNotFoundError as error:
            raise HostError(
                "there is no UEFI firmware for machines",
                where=str(OVMF),
                hint="sudo apt-get install ovmf, or --firmware bios",
            ) from error
        flash = "if=pflash,format=raw"
        return [
            "-machine", "q35",
            "-drive", f"{flash},unit=0,readonly=on,file={OVMF / OVMF_CODE}",
            "-drive", f"{flash},unit=1,file={variables}",
        ]  # fmt: skip


@dataclass(frozen=True)
class Nic:
    """A network card: the tap it is plugged into, and its MAC address."""

    tap: str
    mac: str


@dataclass(frozen=True)
class Shape:
    """What a machine has: `memory` in MiB, `processors` of a kind (0: as many as suit it)."""

    memory: int = MEMORY_MIB
    processors: int = 0
    processor: Processor = Processor.V2


PLAIN = Shape()


@dataclass(frozen=True)
class Machine:
    """A running machine; `monitor` and `serial` are sockets as we see them."""

    name: str
    console: Console
    process: Program
    monitor: Path
    serial: Path

    def command(self, line: str) -> str:
        """What the monitor answers to a command.  Raises WorkError."""
        return ask_monitor(self.monitor, line)

    def reset(self) -> None:
        """Press the reset button."""
        self.command("system_reset")

    def attach(self, disk: str) -> None:
        """Plug a disk in that netbooting() was given.  Raises WorkError."""
        if said := self.command(f"device_add scsi-hd,drive={disk},id={disk}-disk,bus=disks.0"):
            raise WorkError(f"the disk {disk} could not be plugged in: {said}", where=self.name)

    def detach(self, disk: str) -> None:
        """Pull a disk out again, if it is in."""
        self.command(f"device_del {disk}-disk")


def ask_monitor(monitor: Path, line: str) -> str:
    """What the monitor at a socket answers to a command.  Raises WorkError."""
    try:
        with socket.socket(socket.AF_UNIX) as wire:
            wire.settimeout(MONITOR_SECONDS)
            wire.connect(str(monitor))
            with wire.makefile("rw", newline="") as spoken:
                read_answer(spoken)
                spoken.write(f"{line}\n")
                spoken.flush()
                answer = read_answer(spoken)
    except OSError as error:
        what = f"the monitor of {monitor.stem} does not answer: {error}"
        raise WorkError(what) from error
    # It echoes what we typed, with the sequences of a terminal.
    return answer.partition("\n")[2].removesuffix(PROMPT).strip()


def read_answer(spoken: object) -> str:
    """What the monitor says up to its prompt."""
    text = ""
    while not text.endswith(PROMPT):
        letter = spoken.read(1)  # type: ignore[attr-defined]
        if not letter:
            break
        text += letter
    return text


@contextlib.contextmanager
def netbooting(
    lab: Lab,
    name: str,
    firmware: Firmware,
    nics: Sequence[Nic],
    acceleration: Acceleration,
    console: Console,
    *,
    shape: Shape = PLAIN,
    disks: Sequence[tuple[str, Path]] = (),
    more: Sequence[Word] = (),
) -> Iterator[Machine]:
    """A running machine that boots from the network, again after every reset.

    What it says goes to `console`.  `disks` are raw images by name, for attach() to plug in;
    `more` are more of QEMU's words.
    """
    monitor, serial = f"/run/{name}.monitor", f"/run/{name}.serial"
    argv: list[Word] = [
        "qemu-system-x86_64",
        *acceleration.words(shape.processor, shape.processors),
        *firmware.words(lab.work / f"{name}.vars"),
        "-m", str(shape.memory), "-nodefaults", "-display", "none", "-boot", "n",
        "-uuid", str(uuid.uuid5(UUIDS, name)), "-device", "virtio-rng-pci",
        # Whoever connects to the socket sees the console too, and may type.
        "-chardev", f"socket,id=console,path={serial},server=on,wait=off,logfile=/dev/stdout",
        "-serial", "chardev:console", "-monitor", f"unix:{monitor},server=on,wait=off",
        *nic_words(firmware, nics), *disk_words(disks), *more,
    ]  # fmt: skip
    with (
        contextlib.closing(console.log),
        lab.program(name, argv, on_line=console.hear) as process,
    ):
        yield Machine(name, console, process, lab.inside(monitor), lab.inside(serial))


def nic_words(firmware: Firmware, nics: Sequence[Nic]) -> list[Word]:
    """QEMU's words for network cards; OVMF has a driver, which QEMU's ROM would replace by iPXE."""
    rom = ",romfile=" if firmware is Firmware.UEFI else ""
    return [
        word
        for number, nic in enumerate(nics)
        for word in (
            "-netdev", f"tap,id=n{number},ifname={nic.tap},script=no,downscript=no",
            "-device", f"virtio-net-pci,netdev=n{number},mac={nic.mac}{rom}",
        )
    ]  # fmt: skip


def disk_words(disks: Sequence[tuple[str, Path]]) -> list[Word]:
    """QEMU's words for disks that are not plugged in yet, and what they will be plugged into.

    Nothing that is written to them stays.
    """
    if not disks:
        return []
    drives = [
        word
        for name, path in disks
        for word in ("-drive", f"if=none,id={name},format=raw,snapshot=on,file={path}")
    ]
    return ["-device", "virtio-scsi-pci,id=disks", *drives]
