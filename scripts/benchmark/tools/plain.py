# SPDX-License-Identifier: Apache-2.0
"""mmdebstrap and debootstrap, each with one dracut at the end: no layers, no cache.

They get every package of the lock at once from the local archive, with the options of their man
pages and no tuning: unlike in our steps, dpkg syncs.  mmdebstrap also leaves out what the recipe
leaves out, debootstrap has no option for it.  The hook with which the kernel's package runs dracut
is off.  Nothing is committed, listed or verified; the overlays' files are copied, their scripts are
not run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from imagebuilder.process import run
from imagebuilder.store.workplace import remove_tree
from scripts.benchmark.facts import absent_program, version_of
from scripts.benchmark.tools.order import (
    NO_INITRD,
    extract,
    files_of,
    lay_over,
    make_initrd,
)
from scripts.benchmark.tools.tool import PRIVATE, Kind, Made, Order

FULL = "no incremental build: full rebuild"


class Plain:
    """A bootstrapper and a dracut: what both have in common."""

    name = ""
    full: Mapping[Kind, str] = {kind: FULL for kind in Kind if kind is not Kind.COLD}
    notes = ""

    def version(self) -> str:
        return version_of((self.name, "--version"))

    def missing(self) -> str:
        return absent_program(self.name)

    def begin(self, order: Order, folder: Path, log: Path) -> None:
        self.order, self.root, self.log = order, folder / "root", log

    def change(self, kind: Kind) -> None:
        raise NotImplementedError(f"{self.name} builds all of it again, {kind} or not")

    def build(self, kind: Kind) -> None:
        assert kind is Kind.COLD
        self.bootstrap()
        extract(self.order.boot_files, self.root)
        lay_over(self.order.files, self.root)
        make_initrd(self.root, self.order, self.log)

    def bootstrap(self) -> None:
        """Make the root."""
        raise NotImplementedError

    def made(self) -> Made:
        return files_of(self.root)

    def end(self) -> None:
        remove_tree(self.root)


class Mmdebstrap(Plain):
    """One mmdebstrap: variant `essential` unpacks nothing twice."""

    name = "mmdebstrap"
    notes = "`--mode=root --variant=essential --format=directory`, the recipe's path-excludes"

    def bootstrap(self) -> None:
        order = self.order
        excludes = [f"--dpkgopt=path-exclude={glob}" for glob in order.path_excludes]
        run(
            [
                *PRIVATE, "mmdebstrap", "--mode=root", "--format=directory", "--variant=essential",
                f"--architectures={order.architecture}", f"--include={','.join(order.packages)}",
                "--aptopt=Acquire::Languages none", *excludes, order.suite, self.root,
                f"deb [trusted=yes] copy:{order.repository} {order.suite} main",
            ],
            env={**NO_INITRD, "SOURCE_DATE_EPOCH": str(order.epoch)},
            log=self.log,
        )  # fmt: skip


class Debootstrap(Plain):
    """One debootstrap, as its man page has it; it cannot leave files out while unpacking."""

    name = "debootstrap"
    notes = "`--variant=minbase`; it also unpacks documentation that the recipe leaves out"

    def bootstrap(self) -> None:
        order = self.order
        run(
            [
                *PRIVATE, "debootstrap", "--no-check-gpg", "--variant=minbase", "--merged-usr",
                f"--arch={order.architecture}", f"--include={','.join(order.packages)}",
                order.suite, self.root, f"file://{order.repository}",
                "/usr/share/debootstrap/scripts/sid",
            ],
            env={**NO_INITRD, "SOURCE_DATE_EPOCH": str(order.epoch)},
            log=self.log,
        )  # fmt: skip
