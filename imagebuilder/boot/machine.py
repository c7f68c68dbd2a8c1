# SPDX-License-Identifier: Apache-2.0
"""A machine in QEMU that boots from the network: its serial console and its monitor."""

from __future__ import annotations

import contextlib
import enum
import shutil
import socket
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
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
MONITOR_SECONDS = 60
PROMPT = "(qemu) "
UUIDS = uuid.UUID("0c4f1c36-3f0e-4f5e-8a2b-6a8f6f4f0f55")


# Without disks, a keyboard and sensors of its own: an emulated node takes seconds to load the
# modules of hardware that no test asks for.
MACHINE = "q35,sata=off,smbus=off,i8042=off"


class Firmware(enum.StrEnum):
    """The firmware of a machine.

    SeaBIOS cannot boot from the network itself: QEMU's option ROM is iPXE, which identifies itself
    as iPXE.  OVMF boots from the network with its own drivers.
    """

    UEFI = "uefi"
    BIOS = "bios"

    def words(self, variables: Path) -> list[Word]:
        """Arguments for QEMU; `variables` becomes the machine's copy of the firmware variables.

        Both firmwares print to the serial port.  Raises HostError.
        """
        if self is Firmware.BIOS:
            return ["-machine", f"{MACHINE},graphics=off"]
        try:
            shutil.copyfile(OVMF / OVMF_VARS, variables)
        except FileNotFoundError as error:
            raise HostError(
                "the UEFI firmware for QEMU is not installed",
                where=str(OVMF),
                hint="run sudo apt-get install ovmf, or use --firmware bios",
            ) from error
        flash = "if=pflash,format=raw"
        return [
            "-machine", MACHINE,
            "-drive", f"{flash},unit=0,readonly=on,file={OVMF / OVMF_CODE}",
            "-drive", f"{flash},unit=1,file={variables}",
        ]  # fmt: skip


@dataclass(frozen=True)
class Nic:
    """A network card: its tap and its MAC address."""

    tap: str
    mac: str


@dataclass(frozen=True)
class Shape:
    """The hardware of a machine: `memory` in MiB, `processors` (0: the default) of a kind."""

    memory: int = MEMORY_MIB
    processors: int = 0
    processor: Processor = Processor.V2


PLAIN = Shape()


@dataclass
class Machine:
    """A machine; `monitor` and `serial` are sockets as we see them.

    `start` starts QEMU, which `power` ends; `process` is QEMU since the machine was switched on.
    """

    name: str
    console: Console
    monitor: Path
    serial: Path
    start: Callable[[], AbstractContextManager[Program]]
    power: ExitStack
    process: Program = field(init=False)

    def __post_init__(self) -> None:
        self.process = self.power.enter_context(self.start())

    def power_cycle(self) -> None:
        """Switch the machine off and on.

        Without KVM, a reset would be slower: QEMU keeps its translation of the code of the last
        boot, and with each page that the next boot writes it has to discard what belongs to it.
        """
        self.power.close()
        self.process = self.power.enter_context(self.start())

    def command(self, line: str) -> str:
        """Run a command of the monitor and return its output.  Raises WorkError."""
        return ask_monitor(self.monitor, line)

    def attach(self, disk: str) -> None:
        """Attach a disk that was passed to netbooting().  Raises WorkError."""
        if said := self.command(f"device_add scsi-hd,drive={disk},id={disk}-disk,bus=disks.0"):
            raise WorkError(f"could not attach the disk {disk}: {said}", where=self.name)

    def detach(self, disk: str) -> None:
        """Detach a disk if it is attached."""
        self.command(f"device_del {disk}-disk")


def ask_monitor(monitor: Path, line: str) -> str:
    """Run a command of the monitor at a socket and return its output.  Raises WorkError."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(MONITOR_SECONDS)
            connection.connect(str(monitor))
            with connection.makefile("rw", newline="") as spoken:
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
    """The output of the monitor up to its prompt."""
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
    """A running machine that boots from the network whenever it is switched on or reset.

    Its serial output goes to `console`.  `disks` are raw images by name for attach(); `more` are
    more arguments for QEMU.
    """
    monitor, serial = f"/run/{name}.monitor", f"/run/{name}.serial"
    argv: list[Word] = [
        "qemu-system-x86_64",
        *acceleration.words(shape.processor, shape.processors),
        *firmware.words(lab.work / f"{name}.vars"),
        "-m", str(shape.memory), "-nodefaults", "-display", "none", "-boot", "n",
        "-uuid", str(uuid.uuid5(UUIDS, name)), "-device", "virtio-rng-pci",
        # A person may connect to the socket to see the console and type.
        "-chardev", f"socket,id=console,path={serial},server=on,wait=off,logfile=/dev/stdout",
        "-serial", "chardev:console", "-monitor", f"unix:{monitor},server=on,wait=off",
        *nic_words(firmware, nics), *disk_words(disks), *more,
    ]  # fmt: skip

    def start() -> AbstractContextManager[Program]:
        return lab.program(name, argv, on_line=console.hear)

    with contextlib.closing(console.log), ExitStack() as power:
        yield Machine(name, console, lab.inside(monitor), lab.inside(serial), start, power)


def nic_words(firmware: Firmware, nics: Sequence[Nic]) -> list[Word]:
    """Arguments for network cards; OVMF has a driver, which QEMU's ROM would replace with iPXE."""
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
    """Arguments for disks that are not attached yet, and for their controller.

    Writes to them are discarded.
    """
    if not disks:
        return []
    drives = [
        word
        for name, path in disks
        for word in ("-drive", f"if=none,id={name},format=raw,snapshot=on,file={path}")
    ]
    return ["-device", "virtio-scsi-pci,id=disks", *drives]
