# SPDX-License-Identifier: Apache-2.0
"""What all profiles of a nightly run share, and the progress of each profile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

from imagebuilder.fleet.rollout.message import TellRollout, tell_nobody
from imagebuilder.nightly.faults import fault_of, in_a_line, is_full
from imagebuilder.nightly.history import RUNS_FOLDER
from imagebuilder.nightly.types import Ending, NightlyOptions, NightlyStage, ProfileRun
from imagebuilder.nightly.upstream import Upstream
from imagebuilder.report.types import Report
from imagebuilder.settings import Settings
from imagebuilder.store.repository import Store
from imagebuilder.tree import ReleaseName, Tree
from imagebuilder.ui import Ui

# Boots a release and saves its report in the tree.
Boot = Callable[[Tree, ReleaseName, Ui], Report]


@dataclass(frozen=True)
class Nightly:
    """The context of a nightly run; `id` is its name, and `wait` waits for some seconds.

    `tell` is called for each status of a roll-out.
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
        """A file of a profile beside the run's record, for people to read."""
        return (self.options.folder / RUNS_FOLDER / f"{self.id}.{profile}.{what}").absolute()


class Attempt:
    """A profile in progress: `known` is its result so far.

    `retry` is whether another attempt in the same run may get further.  `save` saves the progress.
    """

    def __init__(
        self, profile: str, ui: Ui, save: Callable[[ProfileRun], None] = lambda _: None
    ) -> None:
        self._save = save
        self.known = ProfileRun(profile, Ending.FAILED, NightlyStage.LOCK)
        self.retry = False
        self._ui = ui

    @property
    def profile(self) -> str:
        return self.known.profile

    @contextmanager
    def at(self, stage: NightlyStage) -> Iterator[None]:
        """Run a stage and add up its time."""
        self.known = replace(self.known, stage=stage)
        start = monotonic()
        try:
            yield
        finally:
            self.add_seconds(stage, monotonic() - start)

    def save(self) -> None:
        """Save the progress before a change: if we are killed after it, the next run reports it."""
        self._save(self.known)

    def add_seconds(self, stage: NightlyStage, seconds: float) -> None:
        seconds_by_stage = {**self.known.seconds}
        seconds_by_stage[stage] = round(seconds_by_stage.get(stage, 0.0) + seconds, 3)
        self.known = replace(self.known, seconds=seconds_by_stage)

    def warn(self, text: str) -> None:
        self._ui.warn(f"{self.profile}: {text}")
        self.known = replace(self.known, warnings=(*self.known.warnings, text))

    def explain(self, text: str) -> None:
        """Print a reason and record it."""
        self._ui.note(f"{self.profile}: {text}")
        self.known = replace(self.known, reasons=(*self.known.reasons, text))

    def end(self, ending: Ending) -> None:
        self.known = replace(self.known, ending=ending)

    def fail(self, error: BaseException, log: str) -> None:
        """Record the error that ended it, and keep one that ended an earlier part as a warning."""
        if self.known.fault:
            self.warn(f"had failed before: {in_a_line(self.known.fault)}")
        self.retry = self.retry or is_full(error)
        self.known = replace(self.known, ending=Ending.FAILED, fault=fault_of(error), log=log)
