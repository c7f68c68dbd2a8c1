# SPDX-License-Identifier: Apache-2.0
"""The iPXE binaries: which one an architecture needs, and where this host has it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import HostError
from imagebuilder.files import place_file

# The folders of distributions; a folder from --ipxe comes first.
FOLDERS = (
    Path("/usr/local/share/ipxe"),
    Path("/usr/local/lib/ipxe"),
    Path("/usr/lib/ipxe"),
    Path("/usr/share/ipxe"),
)
# Our name of a binary, and its names in distributions.
NAMES: dict[str, tuple[str, ...]] = {
    "undionly.kpxe": ("undionly.kpxe",),
    "ipxe.efi": ("ipxe.efi", "ipxe-x86_64.efi", "x86_64-efi/ipxe.efi"),
    "snponly.efi": ("snponly.efi", "ipxe-snponly-x86_64.efi", "x86_64-efi/snponly.efi"),
    "ipxe-ia32.efi": ("ipxe-ia32.efi", "ipxe-i386.efi", "ipxe32.efi", "i386-efi/ipxe.efi"),
    "snponly-ia32.efi": ("snponly-ia32.efi", "snponly-i386.efi", "i386-efi/snponly.efi"),
    "ipxe-arm64.efi": ("ipxe-arm64.efi", "arm64-efi/ipxe.efi"),
    "snponly-arm64.efi": ("snponly-arm64.efi", "arm64-efi/snponly.efi"),
}
PACKAGE = "ipxe"


@dataclass(frozen=True)
class Architecture:
    """A kind of firmware: its numbers in DHCP option 93 and the binaries it can run.

    `http` firmware fetches its file over HTTP (UEFI HTTP boot) and needs a URL.  `snponly` is for
    nodes whose NIC iPXE has no good driver for; empty if there is only one binary.
    """

    tag: str
    numbers: tuple[int, ...]
    title: str
    ipxe: str
    snponly: str = ""
    http: bool = False


# Numbers: the registry "Processor Architecture Types" of RFC 5970.
ARCHITECTURES = (
    Architecture("bios", (0,), "BIOS", "undionly.kpxe"),
    Architecture("ia32", (6,), "32-bit UEFI", "ipxe-ia32.efi", "snponly-ia32.efi"),
    Architecture("x64", (7, 9), "UEFI", "ipxe.efi", "snponly.efi"),
    Architecture("arm64", (11,), "UEFI on arm64", "ipxe-arm64.efi", "snponly-arm64.efi"),
    Architecture("x64http", (16,), "UEFI HTTP boot", "ipxe.efi", "snponly.efi", http=True),
    Architecture(
        "arm64http", (19,), "UEFI HTTP boot on arm64", "ipxe-arm64.efi", "snponly-arm64.efi",
        http=True,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class IpxeFile:
    """The files of an architecture: existing names below TREE/tftp."""

    architecture: Architecture
    ipxe: str
    snponly: str


def find_binaries(folders: Sequence[Path]) -> dict[str, Path]:
    """The path of each binary by our name; the first folder that has it counts."""
    found: dict[str, Path] = {}
    for name, spellings in NAMES.items():
        paths = (folder / spelling for folder in folders for spelling in spellings)
        path = next((path for path in paths if path.is_file()), None)
        if path:
            found[name] = path
    return found


def choose_boot_files(names: Sequence[str]) -> tuple[IpxeFile, ...]:
    """The binaries for each architecture, out of these names; skips architectures without any.

    Either binary of an architecture replaces a missing one: both boot most NICs.
    """
    chosen: list[IpxeFile] = []
    for architecture in ARCHITECTURES:
        both = [name for name in (architecture.ipxe, architecture.snponly) if name in names]
        if both:
            chosen.append(IpxeFile(architecture, both[0], both[-1]))
    return tuple(chosen)


def missing_architectures(boot_files: Sequence[IpxeFile]) -> list[str]:
    """Titles of the architectures that cannot boot here."""
    there = {file.architecture.tag for file in boot_files}
    return [kind.title for kind in ARCHITECTURES if kind.tag not in there]


def check_binaries(binaries: dict[str, Path]) -> None:
    """Raise HostError if the host has no binaries."""
    if not binaries:
        raise HostError(
            "this host has no iPXE binaries",
            where=", ".join(map(os.fspath, FOLDERS)),
            hint="run imagebuilder setup --serve, or name a folder that has them with --ipxe DIR",
        )


def copy_binaries(binaries: dict[str, Path], folder: Path) -> None:
    """Copy the binaries into TREE/tftp, each complete or not at all; removes our old ones."""
    for name, source in binaries.items():
        place_file(folder / name, source.read_bytes())
    for name in NAMES.keys() - binaries.keys():
        (folder / name).unlink(missing_ok=True)
