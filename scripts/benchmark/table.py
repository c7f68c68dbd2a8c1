# SPDX-License-Identifier: Apache-2.0
"""The build table: every tool in turns, one round after the other, in an order that rotates."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import WorkError
from imagebuilder.store.workplace import remove_tree
from imagebuilder.ui import Ui
from scripts.benchmark.bed import Bed
from scripts.benchmark.goals import OURS, Row
from scripts.benchmark.record import Recorder
from scripts.benchmark.spent import Spent, timed
from scripts.benchmark.tools.dib import Dib
from scripts.benchmark.tools.mkosi import Mkosi
from scripts.benchmark.tools.order import (
    check_changed,
    check_same_work,
    make_empty,
    make_order,
    outcome_of,
)
from scripts.benchmark.tools.ours import Ours
from scripts.benchmark.tools.plain import Debootstrap, Mmdebstrap
from scripts.benchmark.tools.tool import Kind, Made, Order, Outcome, Tool
from scripts.benchmark.trees import differing, list_tree, size_of

MAKERS: Mapping[str, Callable[[Bed], Tool]] = {
    OURS: Ours,
    "mmdebstrap": lambda _: Mmdebstrap(),
    "debootstrap": lambda _: Debootstrap(),
    "mkosi": lambda _: Mkosi(),
    "diskimage-builder": lambda _: Dib(),
}
# Seconds that one round of a tool takes with `generic` on two cores; for the estimate alone.
ROUND_SECONDS: Mapping[str, float] = {
    OURS: 70, "mmdebstrap": 55, "debootstrap": 60, "mkosi": 150, "diskimage-builder": 240,
}  # fmt: skip
PREPARE_SECONDS = 90
MB = 1e6
SHOWN = 8


@dataclass(frozen=True)
class Sample:
    """One value of one round of a tool, in the unit of its row."""

    row: Row
    value: float
    parts: Mapping[str, float]
    note: str = ""


class Table:
    """The build table under way; `top` is where tools work and first results are remembered."""

    def __init__(self, top: Path, ui: Ui, recorder: Recorder) -> None:
        self.top, self.ui, self.recorder = top, ui, recorder
        self.outcome: Outcome | None = None
        self.at = Row.COLD  # what is measured now, and broken if it fails

    def measure(self, tools: Sequence[Tool], order: Order, runs: int) -> None:
        """Every tool as often as `runs`, less what the recorder has already."""
        able: list[Tool] = []
        for tool in tools:
            self.recorder.remark(tool.name, f"{tool.version()}: {tool.notes}")
            if why := tool.missing():
                self.recorder.fault(Row.COLD, tool.name, why)
            else:
                able.append(tool)
        for number in range(runs):
            turn = number % max(1, len(able))
            for tool in (*able[turn:], *able[:turn]):
                if self.recorder.broken(Row.COLD, tool.name):
                    continue
                if self.recorder.count(Row.COLD, tool.name) <= number:
                    self._turn(tool, order, number)
        for tool in able:
            for kind, why in tool.full.items():
                self.recorder.instead(Row(kind), Row.COLD, tool.name, why)
        self.recorder.save()

    def _turn(self, tool: Tool, order: Order, number: int) -> None:
        """One round of a tool, written when it ends: up to what failed, nothing if interrupted."""
        folder = self.top / "work" / tool.name
        make_empty(folder)
        before = self.recorder.section
        try:
            with self.ui.step(f"{tool.name}, round {number + 1}") as step:
                tool.begin(order, folder, self.top / "logs" / f"{tool.name}.log")
                told: list[str] = []
                for sample in self._round(tool, order):
                    told.append(f"{sample.row} {sample.value:.1f}")
                    step.remark(", ".join(told))
                    self.recorder.add(
                        sample.row, tool.name, sample.value, sample.parts, sample.note
                    )
        except WorkError as error:
            self.recorder.fault(self.at, tool.name, str(error))
        except BaseException:
            # Half a round would be without a partner when the run is resumed.
            self.recorder.section = before
            raise
        finally:
            tool.end()
            self.recorder.save()

    def _round(self, tool: Tool, order: Order) -> Iterator[Sample]:
        """Cold, and what follows on it.  Raises WorkError."""
        self.at = Row.COLD
        spent = build(tool, Kind.COLD)
        made = tool.made()
        outcome = outcome_of(made)
        # The first tool that is measured sets what is the same work.
        self.outcome = self.outcome or outcome
        check_same_work(self.outcome, outcome, tool.name)
        yield from self._compare(tool, made)
        yield Sample(Row.COLD, spent.wall, {"processor, s": spent.cpu})
        yield Sample(Row.MEMORY, spent.memory / MB, {})
        yield Sample(Row.SIZE, size_of(made.places) / MB, {})
        for kind in (Kind.NOOP, Kind.LAST, Kind.MIDDLE):
            if kind in tool.full:
                continue
            self.at = Row(kind)
            if kind is not Kind.NOOP:
                tool.change(kind)
            spent = build(tool, kind)
            if kind is not Kind.NOOP:
                check_changed(tool.made(), order, added=kind is Kind.MIDDLE)
            yield Sample(Row(kind), spent.wall, {"processor, s": spent.cpu})

    def _compare(self, tool: Tool, made: Made) -> Iterator[Sample]:
        """What differs from the first round, which is kept beside: nothing to say in that one."""
        kept = self.top / "listings" / f"{tool.name}.json"
        listing = list_tree(made.places)
        if not self.recorder.count(Row.COLD, tool.name) or not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(listing))
            return
        paths = differing(json.loads(kept.read_text()), listing)
        more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
        yield Sample(Row.SAME, len(paths), {}, ", ".join(paths[:SHOWN]) + more)


def order_of(bed: Bed, profile: str) -> Order:
    """What every tool is told."""
    added = bed.wider(profile).added
    main, folder = bed.fresh("main"), bed.top / "work/order"  # after what wider() fetched
    remove_tree(folder)
    recipe, lock = main.recipe(profile), main.lock(profile)
    return make_order(recipe, lock, added, main.state / "debs", folder)


def build(tool: Tool, kind: Kind) -> Spent:
    """One build, with what was written before on disk: that is on nobody's time."""
    os.sync()
    return timed(lambda: tool.build(kind))


def estimate(names: Sequence[str], runs: int) -> float:
    """Seconds that the table takes, by earlier runs on two cores."""
    return PREPARE_SECONDS + runs * sum(ROUND_SECONDS[name] for name in names)
