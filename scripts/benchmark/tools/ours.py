# SPDX-License-Identifier: Apache-2.0
"""imagebuilder itself: `imagebuilder build PROFILE --locked`, a whole process each time.

Its result is an image in its store: root, kernel, initrd, manifest, SBOM and proof.  The lock of
the changed recipe is resolved before, as the other tools' archive is made before.
"""

from __future__ import annotations

import platform
import shutil
from collections.abc import Mapping
from pathlib import Path

from imagebuilder import __version__
from imagebuilder.store.workplace import remove_tree
from scripts.benchmark.bed import Bed, Place
from scripts.benchmark.tools.order import make_empty, mark
from scripts.benchmark.tools.tool import Kind, Made, Order

NAME = "imagebuilder"


class Ours:
    """This checkout."""

    name = NAME
    full: Mapping[Kind, str] = {}
    notes = (
        "`build PROFILE --locked`; the overlays' scripts, the commit, the SBOM and the proof too"
    )

    def __init__(self, bed: Bed) -> None:
        self.bed = bed

    def version(self) -> str:
        return f"{__version__}, Python {platform.python_version()}"

    def missing(self) -> str:
        return ""

    def begin(self, order: Order, folder: Path, log: Path) -> None:
        del log  # the program keeps its own
        self.order, self.folder = order, folder
        self.place: Place = self.bed.fresh("tool", own_project=True)

    def change(self, kind: Kind) -> None:
        overlays = self.place.project / "overlays"
        if kind is Kind.LAST:
            last = self.place.recipe(self.order.profile).overlays[-1]
            path = overlays / last.name / "files" / self.order.changing.lstrip("/")
            mark(path if path.exists() else path.with_name(f"{path.name}.j2"))
        if kind is Kind.MIDDLE:
            wider = self.bed.wider(self.order.profile)
            for name in (wider.overlay, wider.lock):
                shutil.copyfile(wider.project / name, self.place.project / name)

    def build(self, kind: Kind) -> None:
        del kind
        self.place("build", self.order.profile, "--locked")

    def made(self) -> Made:
        store, root, files = self.place.store, self.folder / "root", self.folder / "image"
        for path in (root, files):
            remove_tree(path)
        image = self.place.image(self.order.profile)
        named = f"{image.manifest['profile']}@{image.manifest['version']}"
        store.checkout(image.root, root)
        store.checkout(store.image(named).commit, files)
        return Made(root, files / "vmlinuz", files / "initrd.img", files / "early.img")

    def end(self) -> None:
        make_empty(self.folder)
        self.place.drop()
        remove_tree(self.place.project)
