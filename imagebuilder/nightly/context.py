# SPDX-License-Identifier: Apache-2.0
"""What every profile of a night shares, and how far each of them is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

from imagebuilder.fleet.rollout.message import TellRollout, tell_nobody
from imagebuilder.nightly.faults import fault_of
from imagebuilder.nightly.history import NIGHTS
from imagebuilder.nightly.retry import is_full
from imagebuilder.nightly.types import Ending, NightlyOptions, NightlyStage, ProfileRun
from imagebuilder.nightly.upstream import Upstream
from imagebuilder.report.types import Report
from imagebuilder.settings import Settings
from imagebuilder.store.repository import Store
from imagebuilder.tree import ReleaseName, Tree
from imagebuilder.ui import Ui

# What boots a release and leaves its report in the tree.
Boot = Callable[[Tree, ReleaseName, Ui], Report]


@dataclass(frozen=True)
class Nightly:
    """A night's surroundings; `id` is its name, and `wait` lets so many seconds pass.

    `tell` is told of roll-outs.
    """

    options: NightlyOptions
    settings: Settings
    tree: Tree
    ui: Ui
    boot: Boot
    upstream: Upstream
    id: str
    wait: Callable[[float], None]
    tell: TellRollout = tell_nobody

    @property
    def store(self) -> Store:
        return Store(self.settings.state / "store")

    def beside(self, profile: str, what: str) -> Path:
        """A file beside the night's record for what a person may want to see of a profile."""
        return (self.options.folder / NIGHTS / f"{self.id}.{profile}.{what}").absolute()


class Attempt:
    """A profile on its way: `known` is what there is to tell of it, wherever it ends.

    `again` is whether it may come further in a while.
    """

    def __init__(self, profile: str, ui: Ui) -> None:
        self.known = ProfileRun(profile, Ending.FAILED, NightlyStage.LOCK)
        self.again = False
        self._ui = ui

    @property
    def profile(self) -> str:
        return self.known.profile

    @contextmanager
    def at(self, stage: NightlyStage) -> Iterator[None]:
        """What is done here is that stage; its time is added up."""
        self.known = replace(self.known, stage=stage)
        start = monotonic()
        try:
            yield
        finally:
            self.spend(stage, monotonic() - start)

    def spend(self, stage: NightlyStage, seconds: float) -> None:
        spent = {**self.known.seconds}
        spent[stage] = round(spent.get(stage, 0.0) + seconds, 3)
        self.known = replace(self.known, seconds=spent)

    def warn(self, text: str) -> None:
        """Say what did not go as it should, and write it down."""
        self._ui.warn(f"{self.profile}: {text}")
        self.known = replace(self.known, warnings=(*self.known.warnings, text))

    def explain(self, text: str) -> None:
        """Say why, and write it down."""
        self._ui.note(f"{self.profile}: {text}")
        self.known = replace(self.known, reasons=(*self.known.reasons, text))

    def end(self, ending: Ending) -> None:
        self.known = replace(self.known, ending=ending)

    def fail(self, error: BaseException, log: str) -> None:
        self.again = self.again or is_full(error)
        self.known = replace(self.known, ending=Ending.FAILED, fault=fault_of(error), log=log)
