# SPDX-License-Identifier: Apache-2.0
"""The first layer: an engine turns the locked packages of the base into a root.

An engine is a function `run_engine(request, workspace)` in a module of this package: it fills
`workspace.merged` from the repository it is given, which holds exactly the locked packages.  What
else it leaves behind (its sources list, its logs) is removed here, so engines stay interchangeable.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from imagebuilder.digest import Json
from imagebuilder.lock.repository import make_repository
from imagebuilder.lock.types import LockedPackage
from imagebuilder.lock.verified import Locked
from imagebuilder.steps import clean
from imagebuilder.steps.bootstrap.debootstrap import run_debootstrap
from imagebuilder.steps.bootstrap.dib import DIB, run_dib
from imagebuilder.steps.bootstrap.mkosi import MKOSI, run_mkosi
from imagebuilder.steps.bootstrap.mmdebstrap import run_mmdebstrap
from imagebuilder.steps.bootstrap.request import BootstrapRequest
from imagebuilder.steps.bootstrap.tool import Tool, check_tool
from imagebuilder.steps.bytecode import run_uncheck
from imagebuilder.steps.clean import run_clean
from imagebuilder.steps.packages import SET_UP, check_apt, inputs_of
from imagebuilder.steps.step import Counted, Step
from imagebuilder.store.upper import remove
from imagebuilder.workspace import Workspace

VERSION = 2


@dataclass(frozen=True)
class Engine:
    """What makes a first layer: its code here, the version of that, and the host's program.

    `version` is counted up when the engine makes something else of the same packages.
    """

    run: Callable[[BootstrapRequest, Workspace], None]
    tool: Tool
    version: int = 1


ENGINES: Mapping[str, Engine] = {
    "mmdebstrap": Engine(run_mmdebstrap, Tool("mmdebstrap", "mmdebstrap", "imagebuilder setup")),
    "debootstrap": Engine(
        run_debootstrap, Tool("debootstrap", "debootstrap", "imagebuilder setup"), version=2
    ),
    "mkosi": Engine(run_mkosi, MKOSI),
    "dib": Engine(run_dib, DIB),
}
# What engines leave besides packages; the root's sources are written by finalise.
TRACES = (
    "etc/apt/sources.list", "etc/apt/sources.list.d", "etc/apt/apt.conf.d/99mmdebstrap",
    "etc/dpkg/dpkg.cfg.d/99mmdebstrap", "etc/hostname",
    "etc/.resolv.conf.systemd-resolved.bak",  # the builder's, which the package found in the root
    "var/log/bootstrap.log", "debootstrap",
    "var/lib/dbus/machine-id", "var/lib/dpkg/available", "var/lib/dpkg/cmethopt",  # debootstrap
    "var/cache/debconf/tmp.ci",
    "efi", "boot/loader",  # mkosi, for a boot loader
)  # fmt: skip
# Folders of other word sizes, which debootstrap and mkosi make whether a package fills them or not.
NOBODY = 65534  # whom the kernel names for an owner that has no id in a sandbox
WORD_SIZES = ("lib32", "libx32")


@dataclass(frozen=True)
class BootstrapStep(Step):
    """The base of a recipe."""

    base: str
    engine: str
    suite: str
    architecture: str
    packages: tuple[LockedPackage, ...]
    path_excludes: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"base {self.base}"

    def inputs(self) -> Mapping[str, Json]:
        version = ENGINES[self.engine].version
        return {
            "step": f"bootstrap {VERSION}.{clean.VERSION}",
            "engine": self.engine if version == 1 else f"{self.engine} {version}",
            "suite": self.suite,
            "architecture": self.architecture,
            "packages": inputs_of(self.packages),
            "path-excludes": list(self.path_excludes),
            "epoch": self.epoch,
        }

    @property
    def takes(self) -> tuple[Locked, ...]:
        return self.packages

    @property
    def checks(self) -> tuple[Callable[[], object], ...]:
        return (check_apt, partial(check_tool, ENGINES[self.engine].tool))

    @property
    def counted(self) -> Counted:
        return Counted(len(self.packages), "packages", SET_UP)

    def apply(self, workspace: Workspace) -> None:
        repository = workspace.work / f"{workspace.upper}.repository"
        make_repository(
            self.packages,
            workspace.pool,
            repository,
            suite=self.suite,
            architecture=self.architecture,
            epoch=self.epoch,
        )
        request = BootstrapRequest(
            suite=self.suite,
            architecture=self.architecture,
            packages=tuple(p.name for p in self.packages),
            repository=repository,
            path_excludes=self.path_excludes,
        )
        ENGINES[self.engine].run(request, workspace)
        remove_traces(workspace.tree)
        run_clean(workspace)
        run_uncheck(workspace)


def remove_traces(tree: Path) -> None:
    """Drop what the engine left besides packages, also where every boot mounts something."""
    for name in TRACES:
        remove(tree / name)
    for name in WORD_SIZES:
        folder = tree / "usr" / name
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
            remove(tree / name)
    machine_id = tree / "etc/machine-id"
    if machine_id.exists():  # a root is of no machine, and its layer the same each time
        machine_id.chmod(0o644)
        machine_id.write_text("")
    resolver = tree / "etc/resolv.conf"
    if not resolver.is_symlink():  # a link is the resolver's own, a file is the builder's
        remove(resolver)
    for name in ("proc", "sys"):
        # What is mounted there in a sandbox is nobody's, and an engine may have copied that.
        if (tree / name).is_dir() and (tree / name).stat().st_uid == NOBODY:
            os.chown(tree / name, 0, 0, follow_symlinks=False)
    for name in ("dev", "run", "tmp"):
        for entry in (tree / name).iterdir():
            remove(entry)
