# SPDX-License-Identifier: Apache-2.0
"""Make the boot pair, vmlinuz and initrd.img, beside the root: a leaf of the layer chain.

It hangs below the packages it is made from; so a changed file or a package of another overlay never
makes a new initrd, and dracut runs beside what follows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from imagebuilder.digest import Json
from imagebuilder.errors import InputError
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
# Where Debian's kernel packages have it: up to trixie, and since Linux 7 in forky.
VMLINUZ = re.compile(r"^(?:/boot/vmlinuz-(\S+)|/usr/lib/modules/([^/\s]+)/vmlinuz)$", re.MULTILINE)


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
        version = kernel_version(workspace, self.kernel)
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


def kernel_version(workspace: Workspace, kernel: str) -> str:
    """The release (`uname -r`) of the one kernel that the package `kernel` brings.

    Follows the package's own metadata: a metapackage depends, over one or more others, on the
    package that ships the kernel itself.  Never by file order (kairos #2522, warewulf #2199).
    Raises InputError.
    """
    form = "${Package} ${Depends}\\n"
    said = workspace.ask(["dpkg-query", "--show", f"--showformat={form}", "linux-*"]).stdout
    depends = {words[0]: words[1:] for words in map(str.split, said.splitlines())}
    listed = workspace.ask(["dpkg", "-L", *brought_by(kernel, depends)], check=False).stdout
    found = sorted({one or other for one, other in VMLINUZ.findall(listed)})
    if len(found) != 1:
        raise InputError(
            f"the package {kernel} brings {len(found)} kernels: {', '.join(found) or 'none'}",
            hint="name one kernel package under `kernel:` of the base",
        )
    return str(found[0])


def brought_by(package: str, depends: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """`package` and those it depends on, over any number of others, as far as `depends` knows."""
    wanted, seen = [package], {package: None}
    while wanted:
        new = [name for name in depends.get(wanted.pop(), ()) if name in depends]
        wanted.extend(name for name in new if name not in seen)
        seen.update(dict.fromkeys(new))
    return tuple(seen)
