# SPDX-License-Identifier: Apache-2.0
"""iPXE's binaries: which a client architecture needs, and where this host has them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import HostError
from imagebuilder.files import place_file

# Where distributions put them; a folder the person names comes first.
FOLDERS = (
    Path("/usr/local/share/ipxe"),
    Path("/usr/local/lib/ipxe"),
    Path("/usr/lib/ipxe"),
    Path("/usr/share/ipxe"),
)
# What we call a binary, and what distributions call it.
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

    `http` firmware fetches its file over HTTP (UEFI HTTP boot) and wants a URL.  `snponly` is for
    nodes whose NIC iPXE has no good driver for; empty where there is but one binary.
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
    """What an architecture is given: names below TREE/tftp; both are there."""

    architecture: Architecture
    ipxe: str
    snponly: str


def find_binaries(folders: Sequence[Path]) -> dict[str, Path]:
    """Our name of each binary -> where it is; the first folder that has one counts."""
    found: dict[str, Path] = {}
    for name, spellings in NAMES.items():
        paths = (folder / spelling for folder in folders for spelling in spellings)
        path = next((path for path in paths if path.is_file()), None)
        if path:
            found[name] = path
    return found


def choose_boot_files(names: Sequence[str]) -> tuple[IpxeFile, ...]:
    """What each architecture gets of binaries with these names; one without any is left out.

    A binary stands in for the other of its kind: one of both boots most NICs.
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
    """Raise HostError when there is nothing to boot with."""
    if not binaries:
        raise HostError(
            "no iPXE binaries on this host",
            where=", ".join(map(os.fspath, FOLDERS)),
            hint="imagebuilder setup --serve installs them; --ipxe DIR names a folder with some",
        )


def copy_binaries(binaries: dict[str, Path], folder: Path) -> None:
    """Put the binaries into TREE/tftp, each whole or not at all; others of ours there go."""
    for name, source in binaries.items():
        place_file(folder / name, source.read_bytes())
    for name in NAMES.keys() - binaries.keys():
        (folder / name).unlink(missing_ok=True)
