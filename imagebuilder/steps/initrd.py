# SPDX-License-Identifier: Apache-2.0
"""Make the boot pair, vmlinuz and initrd.img, beside the root: a leaf of the layer chain.

It hangs below the packages it is made from; so a changed file or a package of another overlay never
makes a new initrd, and dracut runs beside what follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from imagebuilder.digest import Json
from imagebuilder.recipe.types import TreeFile
from imagebuilder.sandbox import INSIDE, Bind
from imagebuilder.steps.generated import files_input
from imagebuilder.steps.step import Step
from imagebuilder.steps.tarball import run_place
from imagebuilder.workspace import Workspace

VERSION = 2
OUT = INSIDE / "out"
# An initrd and all that it is packed from.
INITRD_BYTES = 300_000_000


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
            'dracut --force --no-hostonly --reproducible --kver "$1" "$2/initrd.img" && '
            # A node's own files follow in a second archive, which the kernel looks for at a
            # multiple of four bytes (Documentation/driver-api/early-userspace/buffer-format.rst);
            # its EFI stub puts one file behind the other without a gap.
            'exec truncate --size=%4 "$2/initrd.img"'
        )
        workspace.run(
            ["sh", "-c", script, "sh", version, OUT],
            binds=[Bind(workspace.out, OUT, writable=True)],
            # dracut keeps times that are older than this: with 0, all times in the initrd are 0
            # (the store gives links and empty files whatever time it makes them at).
            env={"SOURCE_DATE_EPOCH": "0"},
        )
        (workspace.out / "initrd.img").chmod(0o644)
