# SPDX-License-Identifier: Apache-2.0
"""The fleet on a terminal: what needs a person first, as much as fits, and how much does not."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NoReturn

from rich.console import Console, ConsoleDimensions, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from imagebuilder.fleet.health import Verdict
from imagebuilder.fleet.overview import NodeView
from imagebuilder.fleet.rollout.show import describe_status
from imagebuilder.fleet.rollout.types import LiveRollout, RolloutStage, RolloutStatus
from imagebuilder.fleet.state import Condition
from imagebuilder.tree import Tree
from imagebuilder.ui import format_age, format_count
from imagebuilder.untrusted import fit

SHARE = 10  # after computing a shot, this many times as long is waited
ROLLOUTS = 4  # lines at most
USUAL_SIZE = (80, 24)
# From which width of the terminal a column is shown.
HEALTH_FROM, RUNS_FROM, NEXT_FROM = 60, 120, 150
STYLES = {
    Condition.READY: "green",
    Condition.BOOTING: "cyan",
    Condition.FAILED: "bold red",
    Condition.SILENT: "yellow",
    Condition.UNKNOWN: "dim",
    Verdict.OK: "green",
    Verdict.DEGRADED: "yellow",
    Verdict.WRONG: "bold red",
    Verdict.MISSING: "bold red",
    Verdict.UNKNOWN: "dim",
}
ROLLOUT_STYLES = {
    RolloutStatus.RUNNING: "cyan",
    RolloutStatus.PROMOTING: "cyan",
    RolloutStatus.PAUSED: "yellow",
    RolloutStatus.ABORTING: "yellow",
    RolloutStatus.STOPPED: "bold red",
}


@dataclass(frozen=True)
class FleetShot:
    """What was found at one moment."""

    at: datetime
    views: Sequence[NodeView]
    rollouts: Sequence[LiveRollout] = ()


def draw(tree: Tree, shot: FleetShot | None, every: float, width: int, height: int) -> Group:
    """The whole screen, of at most `height` lines."""
    if shot is None:
        return Group(Text("asking the nodes…"))
    top: list[RenderableType] = [draw_counts(shot.views), *draw_rollouts(shot)]
    bottom = Text(
        f"{shot.at:%H:%M:%S} UTC, every {every:g} s, {tree.path}; Ctrl-C ends it", style="dim"
    )
    # Besides what is above and below: an empty line, the headers, and what is left out.
    rows_left = height - len(top) - 4
    views = sorted(shot.views, key=lambda view: view.urgency)
    shown = views[: max(0, rows_left if len(views) > rows_left + 1 else len(views))]
    lines = [*top, Text(""), draw_table(shown, shot.at, width)]
    if left := views[len(shown) :]:
        count = format_count(len(left), "more node")
        lines.append(Text(f"and {count}: {count_words(left).plain}", style="dim"))
    return Group(*(one_line(line) for line in [*lines, bottom]))


def one_line(line: RenderableType) -> RenderableType:
    if isinstance(line, Text):
        line.no_wrap, line.overflow = True, "ellipsis"
    return line


def draw_counts(views: Sequence[NodeView]) -> Text:
    """`800 nodes: 4 failed, 1 missing device, 15 silent, 780 ready`."""
    return Text.assemble((format_count(len(views), "node"), "bold"), ": ", count_words(views))


def count_words(views: Sequence[NodeView]) -> Text:
    """Conditions and illnesses, the most urgent first."""
    counted = Counter((view.urgency, view.word) for view in views)
    parts = [
        Text(f"{number} {word.value}", style=STYLES[word])
        for (_, word), number in sorted(counted.items(), key=lambda item: item[0][0])
    ]
    return Text(", ").join(parts)


def draw_rollouts(shot: FleetShot) -> list[Text]:
    """A line for each roll-out that is under way, or waits for a person."""
    open_ones = [live for live in shot.rollouts if live.rollout.status in ROLLOUT_STYLES]
    most = ROLLOUTS if len(open_ones) <= ROLLOUTS else ROLLOUTS - 1
    lines = [draw_rollout(live) for live in open_ones[:most]]
    if len(open_ones) > most:
        count = format_count(len(open_ones) - most, "more roll-out")
        lines.append(Text(f"and {count}: imagebuilder rollout status"))
    return lines


def draw_rollout(live: LiveRollout) -> Text:
    """`roll-out of demo@2: running, 12 of 40 nodes done, 3 rebooting; run by ada`."""
    rollout = live.rollout
    stages = Counter(node.stage for node in rollout.nodes)
    done = f"{stages[RolloutStage.DONE]} of {format_count(len(rollout.nodes), 'node')} done"
    others = [
        f"{stages[stage]} {stage.value}"
        for stage in RolloutStage
        if stages[stage] and stage not in (RolloutStage.DONE, RolloutStage.WAITING)
    ]
    run_by = f"run by {live.runner}" if live.runs else ""
    style = "bold red" if live.interrupted else ROLLOUT_STYLES[rollout.status]
    status = (describe_status(live), style)
    why = f": {fit(rollout.why)}" if rollout.why else ""
    tail = "; ".join(filter(None, [", ".join([done, *others]), run_by]))
    name = (str(rollout.release), "bold")
    return Text.assemble("roll-out of ", name, ": ", status, why, f"; {tail}")


def draw_table(views: Sequence[NodeView], now: datetime, width: int) -> Table:
    """One line for each node; the narrower the terminal, the fewer columns."""
    table = Table(box=None, expand=True, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    longest = max((len(view.state.node) for view in views), default=0)
    table.add_column("node", no_wrap=True, min_width=min(longest, width // 2))
    table.add_column("state", no_wrap=True)
    if width >= HEALTH_FROM:
        table.add_column("health", no_wrap=True)
        table.add_column("seen", no_wrap=True)
    if width >= RUNS_FROM:
        table.add_column("runs", no_wrap=True)
    if width >= NEXT_FROM:
        table.add_column("boots next", no_wrap=True)
    table.add_column("", no_wrap=True, overflow="ellipsis", ratio=1)
    for view in views:
        table.add_row(*draw_cells(view, now, width))
    return table


def draw_cells(view: NodeView, now: datetime, width: int) -> list[Text]:
    state, last = view.state, view.last
    verdict = view.health.verdict if view.health else None
    word = state.condition if width >= HEALTH_FROM else view.word
    cells = [Text(state.node), Text(word.value, style=STYLES[word])]
    if width >= HEALTH_FROM:
        cells.append(Text(verdict.value, style=STYLES[verdict]) if verdict else Text("-"))
        cells.append(Text(format_age(now - last.at) if last else "-"))
    if width >= RUNS_FROM:
        is_other = state.next and state.release != state.next
        cells.append(Text(state.release or "-", style="yellow" if is_other else ""))
    if width >= NEXT_FROM:
        same = state.next and state.next == state.release
        cells.append(Text("the same" if same else state.next or "nothing"))
    return [*cells, Text(fit("; ".join((view.words, *view.warnings))))]


@dataclass
class LatestShot:
    """What the thread that latest found last, or why it ended."""

    shot: FleetShot | None = None
    failed: BaseException | None = None


def watch(tree: Tree, find: Callable[[], FleetShot], every: float) -> NoReturn:
    """Show what `find` returns, every so many seconds, until Ctrl-C.  Raises what `find` raises.

    Finding it takes seconds if nodes do not answer, so it has a thread of its own: a terminal that
    changes its size is drawn again at once.
    """
    console = Console(file=sys.stdout, highlight=False)
    # Not an Event: a handler of a signal would wait for the lock that its own thread may hold.
    changed: queue.SimpleQueue[None] = queue.SimpleQueue()
    latest = LatestShot()

    def refresh() -> None:
        while latest.failed is None:
            before = time.process_time()
            try:
                latest.shot = find()
            except BaseException as error:  # noqa: BLE001  it is raised where it is seen
                latest.failed = error
            changed.put(None)
            time.sleep(max(every, SHARE * (time.process_time() - before)))

    def resized(number: int, frame: object) -> None:
        del number, frame
        changed.put(None)

    previous = signal.signal(signal.SIGWINCH, resized)
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            threading.Thread(target=refresh, daemon=True).start()
            while latest.failed is None:
                console.size = find_size()
                live.update(draw(tree, latest.shot, every, *console.size), refresh=True)
                changed.get()
                while not changed.empty():  # one picture for all that changed until now
                    changed.get()
        raise latest.failed
    finally:
        signal.signal(signal.SIGWINCH, previous)


def find_size() -> ConsoleDimensions:
    """The size of the terminal, whatever COLUMNS and LINES say: those do not change."""
    try:
        columns, lines = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        columns = lines = 0
    return ConsoleDimensions(columns or USUAL_SIZE[0], lines or USUAL_SIZE[1])
