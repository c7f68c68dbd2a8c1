# SPDX-License-Identifier: Apache-2.0
"""Make vmlinuz, early.img and initrd.img beside the root: a leaf of the layer chain.

dracut puts two archives without compression in front of the others: the processors' microcode,
which the kernel reads before it unpacks anything, and modules and firmware that are compressed
already.  They are most of the bytes and change with the kernel alone, so they are a file of their
own: a new libc or libssl changes the other one.

It hangs below the packages it is made from; so a changed file or a package of another overlay never
makes a new initrd, and dracut runs beside what follows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar

from imagebuilder.bootfiles import EARLY, INITRD
from imagebuilder.digest import Json
from imagebuilder.errors import WorkError
from imagebuilder.files import plain_file
from imagebuilder.recipe.types import TreeFile
from imagebuilder.sandbox import INSIDE, Bind
from imagebuilder.steps.generated import files_input
from imagebuilder.steps.step import Step
from imagebuilder.steps.tarball import run_place
from imagebuilder.workspace import Workspace

VERSION = 3
OUT = INSIDE / "out"
# An initrd and all that it is packed from.
INITRD_BYTES = 300_000_000
# cpio's format newc: a header of 110 bytes, then name and content, each padded to ALIGNED bytes
# (Documentation/driver-api/early-userspace/buffer-format.rst).
MAGIC = b"070701"
HEADER = 110
TRAILER = b"TRAILER!!!"
# The kernel looks for an archive at such an offset only, and its EFI stub puts one file behind the
# other without a gap.
ALIGNED = 4
BLOCK = 1 << 20


@dataclass(frozen=True)
class InitrdStep(Step):
    """The initrd of the kernel that the package `kernel` stands for.

    `files` are what the initrd may read of the overlays' files; they are placed for dracut to see,
    and for the root again by those overlays' own steps.
    """

    kernel: str
    files: tuple[TreeFile, ...]
    title: ClassVar[str] = "initrd"
    leaf: ClassVar[bool] = True
    writes: ClassVar[int] = INITRD_BYTES

    def inputs(self) -> Mapping[str, Json]:
        return {
            "step": f"initrd {VERSION}",
            "kernel": self.kernel,
            "files": files_input(self.files),
            "epoch": self.epoch,
        }

    def apply(self, workspace: Workspace) -> None:
        version = workspace.family.kernel_release(workspace, self.kernel)
        run_place(workspace, self.files)
        workspace.out.mkdir()
        workspace.out.chmod(0o755)
        script = (
            'kernel="/boot/vmlinuz-$1"; [ -e "$kernel" ] || kernel="/usr/lib/modules/$1/vmlinuz"; '
            'cp "$kernel" "$2/vmlinuz" && printf "%s\\n" "$1" > "$2/kernel-version" && '
            'exec dracut --force --no-hostonly --reproducible --kver "$1" "$2/initrd.img"'
        )
        workspace.run(
            ["sh", "-c", script, "sh", version, OUT],
            binds=[Bind(workspace.out, OUT, writable=True)],
            # dracut keeps times that are older than this: with 0, all times in the initrd are 0
            # (the store gives links and empty files whatever time it makes them at).
            env={"SOURCE_DATE_EPOCH": "0"},
        )
        split_initrd(workspace.out)


def split_initrd(folder: Path) -> None:
    """Move what is not compressed of the initrd in `folder` to early.img.

    Raises WorkError if the initrd is not a file, or damaged.
    """
    initrd, rest = folder / INITRD, folder / "rest"
    try:
        with plain_file(initrd, follow=False) as whole:
            size = measure_early(whole)
    except (OSError, ValueError) as error:
        raise WorkError(f"dracut made an initrd that cannot be read: {error}") from error
    with initrd.open("rb") as whole:
        if size:
            copy_part(whole, folder / EARLY, size)
        copy_part(whole, rest, initrd.stat().st_size - size)
    rest.replace(initrd)


def copy_part(source: BinaryIO, target: Path, size: int) -> None:
    """Write the next `size` bytes to a new file, and fill it up to a multiple of ALIGNED."""
    with target.open("xb") as stream:
        for start in range(0, size, BLOCK):
            stream.write(source.read(min(BLOCK, size - start)))
        stream.write(bytes(-size % ALIGNED))
    target.chmod(0o644)


def measure_early(initrd: BinaryIO) -> int:
    """The bytes of the archives, with what pads them, that precede the first compressed one.

    It is 0 if none is compressed.  Raises ValueError if an archive ends early.
    """
    while skip_archive(initrd):
        skip_padding(initrd)
    size = initrd.tell()
    return size if initrd.read(1) else 0


def skip_archive(stream: BinaryIO) -> bool:
    """Go behind an archive; False, where there is none.  Raises ValueError if it ends early."""
    name = b""
    while header := read_header(stream):
        size, length = int(header[54:62], 16), int(header[94:102], 16)
        name = stream.read(length).rstrip(b"\0")
        stream.seek(-(HEADER + length) % ALIGNED + size + -size % ALIGNED, os.SEEK_CUR)
        if name == TRAILER:
            return True
    if name:
        raise ValueError(f"an archive ends after {os.fsdecode(name)}")
    return False


def read_header(stream: BinaryIO) -> bytes:
    """The header of the next entry; where there is none, nothing, and nothing is read."""
    header = stream.read(HEADER)
    if header.startswith(MAGIC) and len(header) == HEADER:
        return header
    stream.seek(-len(header), os.SEEK_CUR)
    return b""


def skip_padding(stream: BinaryIO) -> None:
    """Go to the next byte that is not 0."""
    while block := stream.read(512):
        if rest := block.lstrip(b"\0"):
            stream.seek(-len(rest), os.SEEK_CUR)
            return
