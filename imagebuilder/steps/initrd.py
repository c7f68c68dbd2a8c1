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

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar

from imagebuilder.bootfiles import EARLY, INITRD, check_made
from imagebuilder.cpio import ALIGNED, measure_archives
from imagebuilder.digest import Json
from imagebuilder.errors import WorkError
from imagebuilder.files import plain_file
from imagebuilder.recipe.types import TreeFile
from imagebuilder.sandbox.sandbox import INSIDE, Bind
from imagebuilder.steps.placed import files_input, run_place
from imagebuilder.steps.step import Step, StepWorkspace

VERSION = 3
OUT = INSIDE / "out"
# An initrd and all that it is packed from.
INITRD_BYTES = 300_000_000
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

    def apply(self, workspace: StepWorkspace) -> None:
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
        check_made(workspace.out)
        split_initrd(workspace.out)


def split_initrd(folder: Path) -> None:
    """Move what is not compressed of the initrd in `folder` to early.img.

    Raises WorkError if the initrd is not a file, or damaged.
    """
    initrd, rest = folder / INITRD, folder / "rest"
    try:
        with plain_file(initrd, follow=False) as whole:
            size = measure_archives(whole)
            if not whole.read(1):  # nothing is compressed
                size = 0
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
