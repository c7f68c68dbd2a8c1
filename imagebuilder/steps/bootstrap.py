# SPDX-License-Identifier: Apache-2.0
"""The first layer: an engine turns the locked packages of the base into a root."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from imagebuilder.digest import Json
from imagebuilder.families.protocol import Family, Packages
from imagebuilder.families.tool import check_tool
from imagebuilder.lock.verified import Locked
from imagebuilder.steps import clean
from imagebuilder.steps.bytecode import run_uncheck
from imagebuilder.steps.clean import run_clean
from imagebuilder.steps.packages import inputs_of
from imagebuilder.steps.step import Counted, Step, StepWorkspace


@dataclass(frozen=True)
class BootstrapStep(Step):
    """The base of a recipe."""

    base: str
    engine: str
    family: Family
    first: Packages

    @property
    def title(self) -> str:
        return f"base {self.base}"

    def inputs(self) -> Mapping[str, Json]:
        version = self.family.engines[self.engine].version
        return {
            "step": f"bootstrap {self.family.bootstrap_version}.{clean.VERSION}",
            "engine": self.engine if version == 1 else f"{self.engine} {version}",
            "suite": self.first.suite,
            "architecture": self.first.architecture,
            "packages": inputs_of(self.first.packages),
            "path-excludes": list(self.first.path_excludes),
            "epoch": self.epoch,
        }

    @property
    def takes(self) -> tuple[Locked, ...]:
        return self.first.packages

    @property
    def checks(self) -> tuple[Callable[[], object], ...]:
        return (self.family.check_host, partial(check_tool, self.family.engines[self.engine].tool))

    @property
    def counted(self) -> Counted:
        return Counted(len(self.first.packages), "package", self.family.set_up)

    def apply(self, workspace: StepWorkspace) -> None:
        self.family.bootstrap(self.engine, self.first, workspace)
        run_clean(workspace)
        run_uncheck(workspace)
