# SPDX-License-Identifier: Apache-2.0
"""The first layer: an engine turns the locked packages of the base into a root.

An engine is a function `run_NAME(packages, workspace)` in engines/: it fills `workspace.merged`
from an archive that holds exactly these packages.  What else it leaves behind (its sources list,
its logs) is removed here, so engines stay interchangeable.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.families.apt.engines.debootstrap import run_debootstrap
from imagebuilder.families.apt.engines.dib import DIB, run_dib
from imagebuilder.families.apt.engines.mkosi import MKOSI, run_mkosi
from imagebuilder.families.apt.engines.mmdebstrap import run_mmdebstrap
from imagebuilder.families.apt.engines.request import BootstrapRequest
from imagebuilder.families.apt.repository import make_repository
from imagebuilder.families.protocol import Engine, Packages
from imagebuilder.families.tool import Tool
from imagebuilder.files import place_file
from imagebuilder.root import Root
from imagebuilder.store.upper import remove
from imagebuilder.workspace import Workspace


@dataclass(frozen=True, kw_only=True)
class AptEngine(Engine):
    """An engine; `run` fills `workspace.merged`."""

    run: Callable[[BootstrapRequest, Workspace], None]


ENGINES: Mapping[str, AptEngine] = {
    "mmdebstrap": AptEngine(
        Tool("mmdebstrap", "mmdebstrap", "imagebuilder setup"), run=run_mmdebstrap
    ),
    "debootstrap": AptEngine(
        Tool("debootstrap", "debootstrap", "imagebuilder setup"), version=2, run=run_debootstrap
    ),
    "mkosi": AptEngine(MKOSI, run=run_mkosi),
    "dib": AptEngine(DIB, run=run_dib),
}
# What engines leave besides packages; finalise writes the root's sources.
TRACES = (
    "etc/apt/sources.list", "etc/apt/sources.list.d", "etc/apt/apt.conf.d/99mmdebstrap",
    "etc/dpkg/dpkg.cfg.d/99mmdebstrap", "etc/hostname",
    "etc/.resolv.conf.systemd-resolved.bak",  # the builder's, which the package found in the root
    "var/log/bootstrap.log", "debootstrap",
    "var/lib/dbus/machine-id", "var/lib/dpkg/available", "var/lib/dpkg/cmethopt",  # debootstrap
    "var/cache/debconf/tmp.ci",
    "efi", "boot/loader",  # mkosi, for a boot loader
)  # fmt: skip
NOBODY = 65534  # the kernel's uid for an owner that has no id in a sandbox
# Folders of other word sizes, which debootstrap and mkosi create even if no package fills them.
WORD_SIZES = ("lib32", "libx32")


def run_bootstrap(engine: str, first: Packages, workspace: Workspace) -> None:
    repository = workspace.work / f"{workspace.upper}.repository"
    make_repository(first, workspace.pool, repository)
    request = BootstrapRequest(
        suite=first.suite,
        architecture=first.architecture,
        packages=tuple(p.name for p in first.packages),
        repository=repository,
        path_excludes=first.path_excludes,
    )
    ENGINES[engine].run(request, workspace)
    remove_traces(workspace.tree)


def remove_traces(tree: Path) -> None:
    """Remove what the engine left besides packages, including below mount points.

    Maintainer scripts have run in the tree, and this runs outside of the sandbox: symlinks lead
    where they lead in the tree, never to files of the host.
    """
    root = Root(tree)
    for name in TRACES:
        remove_in(root, name)
    for name in WORD_SIZES:
        if root.is_dir(f"/usr/{name}") and not root.names(f"/usr/{name}"):
            remove_in(root, f"usr/{name}")
            remove_in(root, name)
    own = root.place("/etc/machine-id")
    if own and os.path.lexists(own):  # a root belongs to no machine, and must be reproducible
        remove(own)
        place_file(own, b"", 0o644)
    if root.link_at("/etc/resolv.conf") == "":  # a link is the resolver's, a file the builder's
        remove_in(root, "etc/resolv.conf")
    for name in ("proc", "sys"):
        # What is mounted there in a sandbox belongs to nobody, and an engine may have copied that.
        folder = tree / name
        if folder.is_dir() and not folder.is_symlink() and folder.lstat().st_uid == NOBODY:
            os.chown(folder, 0, 0, follow_symlinks=False)
    for name in ("dev", "run", "tmp"):
        for entry in root.names(f"/{name}"):
            remove_in(root, f"{name}/{entry}")


def remove_in(root: Root, name: str) -> None:
    """Remove a file, folder or symlink of a root; nothing that is not there."""
    place = root.place(f"/{name}")
    if place and os.path.lexists(place):
        remove(place)
