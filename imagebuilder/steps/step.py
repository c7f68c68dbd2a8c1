# SPDX-License-Identifier: Apache-2.0
"""What every kind of step tells of itself; nothing else asks which kind it is."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from imagebuilder.digest import Json
from imagebuilder.families.protocol import Family
from imagebuilder.lock.verified import Locked
from imagebuilder.workspace import Workspace


@dataclass(frozen=True)
class Counted:
    """Progress that a step's output tells: `line` matches, with a name as its first group, for each
    of `total` things.
    """

    total: int
    unit: str
    line: re.Pattern[str]


@dataclass(frozen=True)
class StepWorkspace(Workspace):
    """Where a step works; `family` has made the packages in it."""

    family: Family = field(kw_only=True)


@dataclass(frozen=True, kw_only=True)
class Step(ABC):
    """A planned unit of work.  A step is a value: equal inputs mean an equal layer.

    `epoch` is SOURCE_DATE_EPOCH while it runs.  `leaf` is whether it makes files beside the root
    (`Workspace.out`) instead of changing it.  `reports` is the key of the manifest that holds the
    numbers it leaves in `Workspace.facts`, "" for none.  It writes at most what it takes from the
    pool, `writes` bytes more, and `rewrites` per cent of the root's packages.
    """

    epoch: int
    leaf: ClassVar[bool] = False
    reports: ClassVar[str] = ""
    writes: ClassVar[int] = 0
    rewrites: ClassVar[int] = 0

    @property
    @abstractmethod
    def title(self) -> str:
        """What a person reads, unique in a plan: `packages llama-cpp`."""

    @abstractmethod
    def inputs(self) -> Mapping[str, Json]:
        """Everything it reads besides the layer below, with the version of its own code."""

    @abstractmethod
    def apply(self, workspace: StepWorkspace) -> None:
        """Do the work.  Raises WorkError."""

    @property
    def takes(self) -> tuple[Locked, ...]:
        """The files of the package pool that it takes, in that order."""
        return ()

    @property
    def checks(self) -> tuple[Callable[[], object], ...]:
        """What raises HostError unless the host has what it needs; equal checks are made once."""
        return ()

    @property
    def counted(self) -> Counted | None:
        """How its progress is counted; None where there is nothing to count."""
        return None
