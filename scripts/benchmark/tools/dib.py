# SPDX-License-Identifier: Apache-2.0
"""diskimage-builder as its users run it: an element of theirs, its image cache, a tar file.

Its own `debian-minimal` insists on packages that are in no other column; so the element makes the
root by itself, as diskimage-builder's `debootstrap` element does: mmdebstrap where there is one,
and a tar file of the result in DIB_IMAGE_CACHE, by the digest of the package list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from imagebuilder.process import run
from imagebuilder.store.workplace import remove_tree
from scripts.benchmark.facts import absent_program, version_of
from scripts.benchmark.tools.order import (
    DRACUT,
    NO_INITRD,
    extract,
    files_of,
    lay_over,
    make_empty,
    mark,
)
from scripts.benchmark.tools.tool import PRIVATE, Kind, Made, Order

ELEMENT = "bench"
# dib's hooks are bash, run with its variables.
ROOT = """\
#!/bin/bash
set -eu -o pipefail
kept=$DIB_IMAGE_CACHE/root-$(sha256sum "$BENCH_PACKAGES" | cut -c1-16).tar
if [ -f "$kept" ]; then
    tar -C "$TARGET_ROOT" --numeric-owner -xf "$kept"
else
    mmdebstrap --mode=root --format=directory --variant=essential \\
        --architectures="$ARCH" --include="$(cat "$BENCH_PACKAGES")" \\
        --aptopt='Acquire::Languages none' $BENCH_EXCLUDES \\
        "$DIB_RELEASE" "$TARGET_ROOT" \\
        "deb [trusted=yes] copy:$BENCH_REPOSITORY $DIB_RELEASE main"
    tar -C "$TARGET_ROOT" --numeric-owner -cf "$kept" .
fi
cp -a "$BENCH_SKELETON/." "$TARGET_ROOT"
"""
EXTRA = """\
#!/bin/bash
set -eu
cp -a "$BENCH_EXTRA/." "$TARGET_ROOT"
"""
FINALISE = f"""\
#!/bin/bash
set -eu
for path in /usr/lib/modules/*/; do {DRACUT} "$(basename "$path")" /boot/initrd.img; done
"""
ENVIRONMENT = """\
export DISTRO_NAME=debian
export DIB_INIT_SYSTEM=systemd
"""


class Dib:
    """disk-image-create, found on PATH."""

    name = "diskimage-builder"
    full: Mapping[Kind, str] = {
        Kind.MIDDLE: "a changed package list has no cached root: full rebuild"
    }
    notes = (
        "an element of its own (its `debian-minimal` would add packages), which keeps the root "
        "before the overlays in DIB_IMAGE_CACHE; `-t tar`; everything after that, dracut included, "
        "is done in every build"
    )

    def version(self) -> str:
        return version_of(("disk-image-create", "--version"))

    def missing(self) -> str:
        faults = map(absent_program, ("disk-image-create", "sudo", "mmdebstrap"))
        return next(filter(None, faults), "")

    def begin(self, order: Order, folder: Path, log: Path) -> None:
        self.order, self.folder, self.log = order, folder, log
        for name in ("cache", "skeleton", "extra", "output"):
            (folder / name).mkdir()
        extract(order.boot_files, folder / "skeleton")
        lay_over(order.files, folder / "extra")
        hooks = {
            "root.d/10-bench": ROOT,
            "root.d/90-bench-files": EXTRA,
            "finalise.d/90-bench-initrd": FINALISE,
        }
        for name, text in hooks.items():
            path = folder / "elements" / ELEMENT / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        element = folder / "elements" / ELEMENT
        (element / "environment.d").mkdir()
        (element / "environment.d/10-bench.bash").write_text(ENVIRONMENT)
        (element / "element-provides").write_text("operating-system\n")
        self._ask_for(order.packages)

    def _ask_for(self, packages: Sequence[str]) -> None:
        (self.folder / "packages").write_text(",".join(packages) + "\n")

    def change(self, kind: Kind) -> None:
        if kind is Kind.LAST:
            mark(self.folder / "extra" / self.order.changing.lstrip("/"))
        if kind is Kind.MIDDLE:
            self._ask_for((*self.order.packages, self.order.added))

    def build(self, kind: Kind) -> None:
        del kind
        order, folder = self.order, self.folder
        excludes = (f"--dpkgopt=path-exclude={glob}" for glob in order.path_excludes)
        run(
            [
                *PRIVATE, "disk-image-create", "-n", "-a", order.architecture, "-t", "tar",
                "--image-cache", folder / "cache", "-o", folder / "output/image", ELEMENT,
            ],
            env={
                **NO_INITRD,
                "SOURCE_DATE_EPOCH": str(order.epoch),
                "ELEMENTS_PATH": str(folder / "elements"),
                "DIB_RELEASE": order.suite,
                "BENCH_PACKAGES": str(folder / "packages"),
                # No glob of them is to be taken for file names, nor is any that the shell knows.
                "BENCH_EXCLUDES": " ".join(excludes),
                "BENCH_REPOSITORY": str(order.repository),
                "BENCH_SKELETON": str(folder / "skeleton"),
                "BENCH_EXTRA": str(folder / "extra"),
            },
            cwd=folder,
            log=self.log,
        )  # fmt: skip

    def made(self) -> Made:
        root = self.folder / "root"
        make_empty(root)
        run(["tar", "--extract", "--numeric-owner", f"--file={self.folder}/output/image.tar",
             f"--directory={root}"])  # fmt: skip
        return files_of(root)

    def end(self) -> None:
        remove_tree(self.folder)
