# SPDX-License-Identifier: Apache-2.0
"""mkosi as its users run it: one configuration folder, `Incremental=yes`, output as a directory.

What mkosi keeps between builds is the tree after its prepare scripts; so dracut is run by one of
them, and a changed file of the extra tree needs neither apt nor dracut again: its best case.  A
changed package list makes that cache invalid.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from imagebuilder.process import run
from imagebuilder.store.workplace import remove_tree
from scripts.benchmark.facts import absent_program, version_of
from scripts.benchmark.tools.order import DRACUT, extract, files_of, lay_over, mark
from scripts.benchmark.tools.tool import PRIVATE, Kind, Made, Order

OLDEST = 24
OUTPUT = "image"
CONFIGURATION = """\
[Distribution]
Distribution=debian
Release={suite}
Architecture={architecture}
LocalMirror=file://{repository}
RepositoryKeyCheck=no

[Output]
Format=directory
Output={output}
OutputDirectory={folder}/output

[Content]
Packages={packages}
Bootable=no
WithDocs=no
CleanPackageMetadata=no
SourceDateEpoch={epoch}
SkeletonTrees={folder}/skeleton
ExtraTrees={folder}/extra
PrepareScripts={folder}/prepare.chroot

[Build]
BuildSources=
Incremental=yes
CacheDirectory={folder}/cache
PackageCacheDirectory={folder}/packages
WorkspaceDirectory={folder}/workspace
ToolsTree=
"""
# mkosi's chroot has /proc and /sys; the second run, `final`, comes when the packages are there.
PREPARE = f"""\
#!/bin/sh
set -eu
[ "$1" = final ] || exit 0
for path in /usr/lib/modules/*/; do {DRACUT} "$(basename "$path")" /boot/initrd.img; done
"""
ARCHITECTURES = {"amd64": "x86-64", "arm64": "arm64"}


class Mkosi:
    """mkosi, found on PATH."""

    name = "mkosi"
    full: Mapping[Kind, str] = {
        Kind.MIDDLE: "a changed package list makes its cache invalid: full rebuild"
    }
    notes = (
        "`Incremental=yes`, `Format=directory`, `WithDocs=no`; dracut in a prepare script, whose "
        "result its cache keeps. Its no-op is `mkosi --force`: without `--force` it only says that "
        "the output exists, and looks at no input"
    )

    def version(self) -> str:
        return version_of(("mkosi", "--version"))

    def missing(self) -> str:
        if fault := absent_program("mkosi"):
            return fault
        major = re.match(r"\d+", self.version())
        return "" if major and int(major[0]) >= OLDEST else f"it is older than {OLDEST}"

    def begin(self, order: Order, folder: Path, log: Path) -> None:
        self.order, self.folder, self.log = order, folder, log
        for name in ("skeleton", "extra", "output", "cache", "packages", "workspace"):
            (folder / name).mkdir()
        extract(order.boot_files, folder / "skeleton")
        lay_over(order.files, folder / "extra")
        (folder / "prepare.chroot").write_text(PREPARE)
        (folder / "prepare.chroot").chmod(0o755)
        self._configure(order.packages)

    def _configure(self, packages: Sequence[str]) -> None:
        text = CONFIGURATION.format(
            suite=self.order.suite,
            architecture=ARCHITECTURES[self.order.architecture],
            repository=self.order.repository,
            output=OUTPUT,
            folder=self.folder,
            packages="\n         ".join(packages),
            epoch=self.order.epoch,
        )
        (self.folder / "mkosi.conf").write_text(text)

    def change(self, kind: Kind) -> None:
        if kind is Kind.LAST:
            mark(self.folder / "extra" / self.order.changing.lstrip("/"))
        if kind is Kind.MIDDLE:
            self._configure((*self.order.packages, self.order.added))

    def build(self, kind: Kind) -> None:
        # Nothing is there that --force could remove before the first.
        force = [] if kind is Kind.COLD else ["--force"]
        run(
            [*PRIVATE, "mkosi", "--directory", self.folder, *force, "build"],
            env={"SOURCE_DATE_EPOCH": str(self.order.epoch)},
            cwd=self.folder,
            log=self.log,
        )

    def made(self) -> Made:
        return files_of(self.folder / "output" / OUTPUT)

    def end(self) -> None:
        remove_tree(self.folder)
