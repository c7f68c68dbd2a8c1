# SPDX-License-Identifier: Apache-2.0
"""A machine in QEMU that boots a kernel and an initrd, and its serial console."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.process import Word
from tests.boot.lab import TAPS, Lab
from imagebuilder.program import Program

UUID = "6f2b1c34-58d0-4c6e-9a41-0b7de1f0c2a5"
MACS = ("52:54:00:77:00:01", "52:54:00:77:00:02")
# Enough for every root that tests boot; a machine of a test has this much memory.
MEMORY_MIB = 2048


@dataclass(frozen=True)
class Entry:
    """Something in a cpio archive: a file with `content`, a symlink with `link`, else by `kind`."""

    path: str
    content: bytes = b""
    mode: int = 0o644
    owner: int = 0
    group: int = 0
    link: str = ""
    kind: int = stat.S_IFREG

    def render(self, number: int) -> bytes:
        """Its record in the kernel's format, newc (buffer-format.rst in Linux)."""
        kind = stat.S_IFLNK if self.link else self.kind
        data = self.link.encode() or self.content
        name = self.path.encode() + b"\0"
        fields = (
            number, kind | self.mode, self.owner, self.group, 1, 0, len(data),
            0, 0, 0, 0, len(name), 0,
        )  # fmt: skip
        header = b"070701" + b"".join(b"%08x" % value for value in fields)
        return padded(header + name) + padded(data)


def padded(data: bytes) -> bytes:
    """Up to the next multiple of four."""
    return data + b"\0" * (-len(data) % 4)


def render_cpio(entries: Sequence[Entry]) -> bytes:
    """An archive that the kernel unpacks after an initrd; folders come before what is in them."""
    folders = {
        os.fspath(parent)
        for entry in entries
        for parent in Path(entry.path).parents
        if parent != Path()
    }
    made = [Entry(folder, kind=stat.S_IFDIR, mode=0o755) for folder in sorted(folders)]
    given = {entry.path for entry in entries}
    ordered = [*(e for e in made if e.path not in given), *entries, Entry("TRAILER!!!", kind=0)]
    return b"".join(entry.render(number) for number, entry in enumerate(ordered, 1))


def make_initrd(initrd: Path, entries: Sequence[Entry], target: Path) -> Path:
    """`initrd` with the node's own files behind it, as a boot loader puts them together."""
    target.write_bytes(padded(initrd.read_bytes()) + render_cpio(entries))
    return target


@contextlib.contextmanager
def machine(
    room: Lab, kernel: Path, initrd: Path, cmdline: Sequence[str], *, name: str = "machine"
) -> Iterator[Program]:
    """A running machine with two NICs; its lines are its serial console.

    It ends by itself when the node powers off, and instead of rebooting.  It has one processor:
    with several, multi-threaded TCG can run the stale half of an instruction that the kernel is
    patching (static keys), and the machine panics once in some dozen boots.
    """
    nics = [
        word
        for number, (tap, mac) in enumerate(zip(TAPS, MACS, strict=True))
        for word in (
            "-netdev", f"tap,id=n{number},ifname={tap},script=no,downscript=no",
            "-device", f"virtio-net-pci,netdev=n{number},mac={mac},romfile=",
        )
    ]  # fmt: skip
    argv: list[Word] = [
        "qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-smp", "1",
        "-m", str(MEMORY_MIB), "-nodefaults", "-display", "none", "-serial", "stdio",
        "-device", "virtio-rng-pci", "-uuid", UUID, "-no-reboot", *nics,
        "-kernel", kernel, "-initrd", initrd, "-append", " ".join(("console=ttyS0", *cmdline)),
    ]  # fmt: skip
    with room.program(name, argv) as started:
        yield started
