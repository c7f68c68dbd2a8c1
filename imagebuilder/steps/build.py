# SPDX-License-Identifier: Apache-2.0
"""Build something in a tree that is thrown away; only what it leaves in $DESTDIR is the layer.

    packages, sources, wheels      run the program           place its result
    tree = root + toolchain   ->   KERNEL, DESTDIR set   ->  tree = root
    thrown away                    no network                the layer

So compilers, headers and DKMS are never in the root, and what was built depends on nothing that is
not locked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath

from imagebuilder.digest import Json
from imagebuilder.errors import WorkError
from imagebuilder.families.protocol import Family, Packages
from imagebuilder.lock.builds import source_files
from imagebuilder.lock.types import LockedBuild, LockedPackage
from imagebuilder.lock.verified import Locked
from imagebuilder.recipe.types import ModuleSigning, PythonEnv, Script
from imagebuilder.sandbox.sandbox import INSIDE, Bind
from imagebuilder.steps import clean
from imagebuilder.steps.clean import run_clean
from imagebuilder.steps.dkms import find_dkms_failure
from imagebuilder.steps.packages import PackagesStep, inputs_of
from imagebuilder.steps.placed import copy_program
from imagebuilder.steps.python import PythonStep
from imagebuilder.steps.signing import check_signing, sign_modules
from imagebuilder.steps.step import Step, StepWorkspace
from imagebuilder.store.upper import remove, walk
from imagebuilder.workspace import check_places

VERSION = 2
OUT, SOURCES = INSIDE / "out", INSIDE / "source"
MODULES = PurePosixPath("usr/lib/modules")
# dkms(8) would build as soon as it is installed, for whatever kernel it takes to be the right one,
# and sign with a key that it makes: another one in each build, which nobody can enrol.
SET_UP_DKMS = (
    "mkdir -p /etc/dkms/framework.conf.d && : > /etc/dkms/no-autoinstall && "
    "echo sign_file=/nonexistent > /etc/dkms/framework.conf.d/unsigned.conf"
)
# What is signed is the module; kmod reads it uncompressed as well.
UNPACK = (
    'find "$1" -type f -name "*.ko.xz" -exec xz --decompress {} + && '
    'find "$1" -type f -name "*.ko.gz" -exec gzip --decompress {} + && '
    'find "$1" -type f -name "*.ko.zst" -exec zstd --quiet --decompress --rm {} +'
)
# As the rest of the root: links to directories are followed, times are not kept (store/upper.py).
PLACE = (
    'tar --create --sort=name --mtime=@0 --numeric-owner --directory="$1" . | '
    "tar --extract --same-owner --preserve-permissions --numeric-owner "
    "--keep-directory-symlink --no-overwrite-dir --directory=/"
)


def tools_upper(upper: str) -> str:
    """The name, beside a step's upper, of that of the tree which is thrown away."""
    return f"{upper}.tools"


@dataclass(frozen=True)
class BuildStep(Step):
    """One build of an overlay, made with `tools`.  `kernel` is the package that brings the image's
    kernel.
    """

    overlay: str
    family: Family
    tools: Packages
    kernel: str
    locked: LockedBuild
    script: Script
    environment: tuple[tuple[str, str], ...]
    python: PythonEnv | None
    signing: ModuleSigning | None = None

    @property
    def title(self) -> str:
        return f"build {self.overlay} {self.locked.name}"

    def inputs(self) -> Mapping[str, Json]:
        python = self.locked.python
        return {
            "step": f"build {VERSION}.{clean.VERSION}",
            "kernel": self.kernel,
            "packages": inputs_of(self.tools.packages),
            "sources": {
                f"{package.name} {package.version} {file.name}": file.sha256
                for package in self.locked.source_packages
                for file in package.files
            },
            "wheels": {w.filename: w.sha256 for w in python.wheels} if python else {},
            "script": f"{self.script.name} {self.script.digest}",
            "environment": dict(self.environment),
            "path-excludes": list(self.tools.path_excludes),
            "epoch": self.epoch,
            **({"modules signed by": self.signing.digest} if self.signing else {}),
        }

    @property
    def takes(self) -> tuple[Locked, ...]:
        python = self.locked.python
        wheels = python.wheels if python else ()
        return (*self.tools.packages, *source_files(self.locked), *wheels)

    @property
    def checks(self) -> tuple[Callable[[], object], ...]:
        signing = (partial(check_signing, self.signing),) if self.signing else ()
        return (self.family.check_host, *signing)

    def apply(self, workspace: StepWorkspace) -> None:
        tools = replace(workspace, upper=tools_upper(workspace.upper))
        tools.tree.mkdir()
        tools.tree.chmod(0o755)
        kernel = tools.family.kernel_release(tools, self.kernel)
        self.furnish(tools)
        check_headers(tools, kernel, self.tools.packages)
        workspace.out.mkdir()
        workspace.out.chmod(0o755)
        try:
            self.build(tools, workspace.out, kernel)
        except WorkError as error:
            raise self.failure(tools, kernel, error) from error
        check_result(workspace, kernel)
        if self.signing:
            out = [Bind(workspace.out, OUT, writable=True)]
            tools.run(["sh", "-c", UNPACK, "sh", OUT], binds=out)
            sign_modules(workspace.out, self.signing)
        workspace.run(["sh", "-c", PLACE, "sh", OUT], binds=[Bind(workspace.out, OUT)])
        if os.path.lexists(workspace.out / MODULES) or os.path.lexists(workspace.out / "lib"):
            workspace.run(["depmod", "--all", kernel])
        run_clean(workspace)
        remove(tools.tree)

    def furnish(self, tools: StepWorkspace) -> None:
        """Install what the build needs in its tree."""
        tools.run(["sh", "-c", SET_UP_DKMS])
        if self.tools.packages:
            PackagesStep(self.family, self.tools, self.overlay, epoch=self.epoch).apply(tools)
        if self.python and self.locked.python:
            python = self.locked.python
            interpreter = self.python.interpreter
            PythonStep(self.overlay, interpreter, python, epoch=self.epoch).apply(tools)

    def build(self, tools: StepWorkspace, result: Path, kernel: str) -> None:
        """Unpack the sources and run the program, in the tree with the tools."""
        sources = tools.work / f"{tools.upper}.source"
        sources.mkdir()
        for package in self.locked.source_packages:
            tools.family.unpack_source(package, sources, tools)
        program = tools.work / f"{tools.upper}.script"
        copy_program(self.script, program)
        tools.run(
            [INSIDE / "script"],
            binds=[
                Bind(program, INSIDE / "script"),
                Bind(sources, SOURCES, writable=True),
                Bind(result, OUT, writable=True),
            ],
            env={**dict(self.environment), "KERNEL": kernel, "DESTDIR": os.fspath(OUT)},
        )

    def failure(self, tools: StepWorkspace, kernel: str, error: WorkError) -> WorkError:
        """The error of a build that failed: DKMS's own reason where it was DKMS that failed."""
        fault = error.faults[0]
        where = f"overlays/{self.overlay}/{self.script.name}"
        if failed := find_dkms_failure(tools, kernel):
            reason, hint = failed
            return WorkError(reason, where=where, hint=f"{hint}\n        {fault.hint}")
        what = fault.what.replace("script failed", f"{self.script.name} failed", 1)
        return WorkError(what, where=where, hint=fault.hint)


def check_headers(tools: StepWorkspace, kernel: str, packages: tuple[LockedPackage, ...]) -> None:
    """Raise WorkError when headers were installed, but not those of the image's kernel."""
    is_headers = tools.family.is_kernel_headers
    named = sorted(package.name for package in packages if is_headers(package.name))
    place = f"/lib/modules/{kernel}/build/include"
    if named and tools.ask(["test", "-e", place], check=False).status != 0:
        raise WorkError(
            f"the image's kernel is {kernel}, and {', '.join(named)} has no headers for it",
            hint="run imagebuilder lock PROFILE to choose kernel and headers from one archive",
        )


def check_result(workspace: StepWorkspace, kernel: str) -> None:
    """Refuse a result that is empty, is not for the root, or is for another kernel.

    Raises WorkError.
    """
    places = [place for place in placed(workspace.out)]
    if not places:
        raise WorkError(
            "the build installed nothing below $DESTDIR",
            hint="its program must install there what belongs in the root",
        )
    check_places(workspace, places)
    for folder in (MODULES, PurePosixPath("lib/modules")):
        below = workspace.out / folder
        others = sorted({p.name for p in below.iterdir()} - {kernel}) if below.is_dir() else []
        if others:
            raise WorkError(
                f"the build left modules for {', '.join(others)}, but the image's kernel is "
                f"{kernel}",
                hint="the program finds the release of the image's kernel in KERNEL; `uname -r` is "
                "that of the builder",
            )


def placed(result: Path) -> Iterator[str]:
    """The absolute paths, in the root, of everything below `result` that is no folder."""
    for path, _ in walk(result):
        if path.is_symlink() or not path.is_dir():
            yield f"/{os.fspath(path.relative_to(result))}"
