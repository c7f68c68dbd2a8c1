# SPDX-License-Identifier: Apache-2.0
"""Install locked packages: those of a base make the first layer, those of an overlay add to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from imagebuilder.digest import Json
from imagebuilder.families.protocol import Family, Packages
from imagebuilder.families.tool import check_tool
from imagebuilder.lock.types import LockedPackage
from imagebuilder.lock.verified import Locked
from imagebuilder.steps import clean
from imagebuilder.steps.bytecode import run_uncheck
from imagebuilder.steps.clean import run_clean
from imagebuilder.steps.step import Counted, Step, StepWorkspace


def inputs_of(packages: tuple[LockedPackage, ...]) -> Json:
    """Packages as a digest sees them: exact name, version, architecture and content."""
    return {p.name: f"{p.version} {p.architecture} {p.sha256}" for p in packages}


@dataclass(frozen=True)
class InstallStep(Step):
    """Locked packages that `family` installs."""

    family: Family
    packages: Packages

    @property
    def takes(self) -> tuple[Locked, ...]:
        return self.packages.packages

    @property
    def checks(self) -> tuple[Callable[[], object], ...]:
        return (self.family.check_host,)

    @property
    def counted(self) -> Counted:
        return Counted(len(self.packages.packages), "package", self.family.set_up)


@dataclass(frozen=True)
class PackagesStep(InstallStep):
    """The packages that an overlay adds to those below."""

    overlay: str

    @property
    def title(self) -> str:
        return f"packages {self.overlay}"

    def inputs(self) -> Mapping[str, Json]:
        return {
            "step": f"packages {self.family.install_version}.{clean.VERSION}",
            "packages": inputs_of(self.packages.packages),
            "path-excludes": list(self.packages.path_excludes),
            "epoch": self.epoch,
        }

    def apply(self, workspace: StepWorkspace) -> None:
        self.family.install(self.packages, workspace)
        run_clean(workspace)
        run_uncheck(workspace)


@dataclass(frozen=True)
class BootstrapStep(InstallStep):
    base: str
    engine: str

    @property
    def title(self) -> str:
        return f"base {self.base}"

    def inputs(self) -> Mapping[str, Json]:
        version = self.family.engines[self.engine].version
        return {
            "step": f"bootstrap {self.family.bootstrap_version}.{clean.VERSION}",
            "engine": self.engine if version == 1 else f"{self.engine} {version}",
            "suite": self.packages.suite,
            "architecture": self.packages.architecture,
            "packages": inputs_of(self.packages.packages),
            "path-excludes": list(self.packages.path_excludes),
            "epoch": self.epoch,
        }

    @property
    def checks(self) -> tuple[Callable[[], object], ...]:
        return (*super().checks, partial(check_tool, self.family.engines[self.engine].tool))

    def apply(self, workspace: StepWorkspace) -> None:
        self.family.bootstrap(self.engine, self.packages, workspace)
        run_clean(workspace)
        run_uncheck(workspace)
