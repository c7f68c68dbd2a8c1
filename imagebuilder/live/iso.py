# SPDX-License-Identifier: Apache-2.0
"""A distribution's live ISO: its kind and files, read without mounting it."""

from __future__ import annotations

import os
import re
import shlex
import stat
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from imagebuilder.errors import InputError, WorkError
from imagebuilder.process import check_tools, run

CASPER, DEBIAN_LIVE = "casper", "debian-live"
# ECMA-119: the primary volume descriptor is sector 16; 8.4 names the offsets in it.
SECTOR = 2048
DESCRIPTOR = 16 * SECTOR
LIST_S = 120.0  # for the names in an ISO: distributions' have thousands, read within a second
GET_ISO = "download the ISO again and compare its sha256 with the distribution's published one"
WANTED = (
    "Ubuntu's live ISOs have casper/vmlinuz and casper/initrd, Debian's have live/vmlinuz, "
    "live/initrd.img and live/filesystem.squashfs"
)


@dataclass(frozen=True)
class LiveIso:
    """A live ISO: its volume name, kind, and the paths of its boot files.

    `squashfs` is empty if the whole ISO is fetched instead.
    """

    path: Path
    size: int
    title: str
    kind: str
    kernel: str
    initrd: str
    squashfs: str = ""


def read_iso(path: Path) -> LiveIso:
    """Read the ISO at `path`.  Raises InputError if it is not a supported live ISO."""
    check_tools("xorriso")
    title, size = read_descriptor(path)
    listed = list_files(path)
    for find in (find_casper, find_debian_live):
        if found := find(path, size, title, listed):
            return found
    tops = sorted({PurePosixPath(name).parts[1] for name in listed if name != "/"})
    shown = ", ".join(tops[:12]) or "nothing"
    raise InputError(
        f"contains no supported live system, only {shown}",
        where=os.fspath(path),
        hint=WANTED,
    )


def read_descriptor(path: Path) -> tuple[str, int]:
    """Volume name and length in bytes.  Raises InputError if it is not an ISO or truncated."""
    where = os.fspath(path)
    try:
        if not path.is_file():
            raise InputError("is not a file" if path.exists() else "does not exist", where=where)
        with path.open("rb") as stream:
            stream.seek(DESCRIPTOR)
            sector = stream.read(SECTOR)
            length = os.fstat(stream.fileno()).st_size
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=where) from error
    if sector[:7] != b"\x01CD001\x01":
        raise InputError("is not an ISO image", where=where, hint=GET_ISO)
    (blocks,) = struct.unpack_from("<I", sector, 80)
    (block,) = struct.unpack_from("<H", sector, 128)
    if length < blocks * block:
        what = f"is truncated: {length} bytes of {blocks * block}"
        raise InputError(what, where=where, hint=GET_ISO)
    title = sector[40:72].decode("ascii", errors="replace").strip()
    return re.sub(r"[^A-Za-z0-9 ._()+-]", "?", title), length


def list_files(path: Path) -> tuple[str, ...]:
    """The absolute paths in the ISO, two levels deep.

    xorriso reads all folders first, for ever if one is in itself.
    """
    done = run([*xorriso(path), "-find", "/", "-maxdepth", "2"], seconds=LIST_S, check=False)
    if done.late or done.status != 0:
        why = f"not within {LIST_S:g} s" if done.late else last_complaint(done.stderr)
        raise InputError(
            f"cannot be read as an ISO image: {why}",
            where=os.fspath(path),
            hint=GET_ISO,
        )
    return tuple(shlex.split(done.stdout))  # a name may have a line end in it


def extract(iso: LiveIso, files: Sequence[tuple[str, Path]]) -> None:
    """Write files of the ISO to paths on the host, for all to read.

    An ISO can have links and devices.  A link is made as it is, and would lead to a file of the
    host, which would be served to everybody.  Raises InputError for these, and for a damaged ISO.
    """
    words = [word for name, target in files for word in ("-extract", name, os.fspath(target))]
    try:
        run([*xorriso(iso.path), "-osirrox", "on", *words])
    except WorkError as error:
        what = f"is damaged: {last_complaint(str(error))}"
        raise InputError(what, where=os.fspath(iso.path), hint=GET_ISO) from error
    for name, target in files:
        found = target.lstat() if os.path.lexists(target) else None  # devices are left out
        if found is None or not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            raise InputError(f"{name} in it is not a file", where=os.fspath(iso.path), hint=GET_ISO)
        target.chmod(0o644)


def xorriso(path: Path) -> list[str]:
    """The start of a command that reads the ISO at `path`, without the user's start-up files."""
    return ["xorriso", "-no_rc", "-report_about", "WARNING", "-indev", f"stdio:{path.absolute()}"]


def last_complaint(output: str) -> str:
    """The last message of xorriso, without its prefix."""
    lines = [line for line in output.splitlines() if " : " in line]
    return lines[-1].rpartition(" : ")[2] if lines else "xorriso failed"


def find_casper(path: Path, size: int, title: str, listed: Sequence[str]) -> LiveIso | None:
    """Ubuntu's: casper, which fetches the whole ISO."""
    kernel = first(listed, ("/casper/vmlinuz", "/casper/vmlinuz.efi"))
    initrd = first(listed, ("/casper/initrd", "/casper/initrd.gz", "/casper/initrd.lz"))
    if not kernel or not initrd:
        return None
    return LiveIso(path, size, title, CASPER, kernel, initrd)


def find_debian_live(path: Path, size: int, title: str, listed: Sequence[str]) -> LiveIso | None:
    """Debian's: live-boot, which fetches a squashfs.  Of several kernels the last by name."""
    squashfs = first(listed, ("/live/filesystem.squashfs",))
    kernels = sorted(n for n in listed if PurePosixPath(n).match("/live/vmlinuz*"))
    for kernel in ["/live/vmlinuz", *reversed(kernels)]:
        initrd = kernel.replace("/live/vmlinuz", "/live/initrd.img", 1)
        if squashfs and kernel in listed and initrd in listed:
            return LiveIso(path, size, title, DEBIAN_LIVE, kernel, initrd, squashfs)
    return None


def first(listed: Sequence[str], names: Sequence[str]) -> str:
    return next((name for name in names if name in listed), "")
