# SPDX-License-Identifier: Apache-2.0
"""Nightly runs as self-contained HTML pages: one for each run, one for each month, the history.

They show output of programs and machines, so nothing is trusted: the templates escape every value,
control characters are removed, and the pages' content security policy forbids scripts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment

import imagebuilder.report
from imagebuilder.errors import Fault
from imagebuilder.lock.changes import PackageChange
from imagebuilder.nightly.history import (
    RUNS_FOLDER,
    Cell,
    CellKind,
    ProfileHistory,
    count_security,
    find_cell,
    find_records,
    profiles_of,
)
from imagebuilder.nightly.message import headline, start_of
from imagebuilder.nightly.types import Ending, NightlyRun, NightlyStage, ProfileRun
from imagebuilder.report.page import LogEnd, Tile, show_log
from imagebuilder.templates import templates
from imagebuilder.ui import format_count, format_duration, format_size
from imagebuilder.untrusted import clean_lines

LINES = 200  # of the end of a log are shown
HEIGHT = 24  # of a row of bars, in SVG units
STEP = 4  # from one bar to the next


@dataclass(frozen=True)
class EndingStyle:
    """How an ending is shown: never by its colour alone."""

    mark: str
    tone: str


LOOKS: Mapping[CellKind, EndingStyle] = {
    CellKind.UNCHANGED: EndingStyle("=", "calm"),
    CellKind.FRESH: EndingStyle("✓", "passed"),
    CellKind.PROMOTED: EndingStyle("▲", "passed"),
    CellKind.FAILED: EndingStyle("✗", "failed"),
    CellKind.CUT_OFF: EndingStyle("!", "degraded"),
    CellKind.WAITING: EndingStyle("…", "calm"),
    CellKind.ABSENT: EndingStyle("–", "absent"),  # noqa: RUF001
}
MEANINGS: Mapping[CellKind, str] = {
    CellKind.UNCHANGED: "nothing new; the newest image is released and tested",
    CellKind.FRESH: "a new release passed its boot test",
    CellKind.PROMOTED: "the new release is now stable",
    CellKind.FAILED: "stable is unchanged",
    CellKind.CUT_OFF: "the run ended before this profile was finished",
}


@dataclass(frozen=True)
class StageSpan:
    """A stage of a profile; `left` and `width` of its bar are percentages of all stages."""

    stage: NightlyStage
    seconds: float
    left: float
    width: float
    broken: bool


@dataclass(frozen=True)
class Card:
    cell: Cell
    done: ProfileRun
    spans: tuple[StageSpan, ...]
    security: tuple[PackageChange, ...]
    others: tuple[PackageChange, ...]
    log: LogEnd | None
    log_file: str
    boot: str


@dataclass(frozen=True)
class Bars:
    """A row of bars as SVG paths, oldest run first, and its label."""

    label: str
    width: int
    good: str
    bad: str


@cache
def environment() -> Environment:
    """The template environment; the style sheets of boot test reports are shared."""
    made = templates(Path(__file__).parent, *map(Path, imagebuilder.report.__path__), html=True)
    add_words(made)
    return made


def add_words(made: Environment) -> None:
    """Add the filters and globals that parts.html.j2 needs."""
    made.filters |= {"began": start_of, "security": count_security}
    made.globals |= {
        "looks": LOOKS,
        "meanings": MEANINGS,
        "runs_folder": RUNS_FOLDER,
        "page": page_of,
    }


def render(template: str, **values: object) -> str:
    return environment().get_template(template).render(**values)


def page_of(id: str) -> str:  # noqa: A002
    return f"{id}.html"


def boot_page_of(id: str, number: int) -> str:  # noqa: A002
    """The file name of the page of a boot test, by the place of its profile in the run."""
    return f"{id}.boot-{number}.html"


def month_page_of(month: str) -> str:
    return f"month-{month}.html"


def render_run_page(
    run: NightlyRun, *, running: bool, logs: Mapping[int, str], boots: Mapping[int, str]
) -> str:
    """The page of a run; `logs` and the files `boots` are by the place of a profile in it."""
    cards = [
        show_card(find_cell(run, done.profile, running=running), done, logs, boots)
        for done in run.profiles
    ]
    return render(
        "run.html.j2",
        run=run,
        title=start_of(run),
        state=state(run, running=running),
        tone=tone(run, running=running),
        running=running,
        cells=[find_cell(run, name, running=running) for name in profiles_of([run])],
        cards=cards,
        tiles=[*tiles(run), Tile("freed", format_size(run.pruned.freed))],
    )


def render_index(
    runs: Sequence[NightlyRun], *, faults: Sequence[Fault], months: Sequence[str], running: bool
) -> str:
    """The history: `runs` newest first, which may be in progress; links to the pages of `months`.

    `faults` are those of unreadable runs.
    """
    newest = runs[0]
    records = find_records(runs, running=running)
    return render(
        "index.html.j2",
        run=newest,
        runs=runs,
        state=state(newest, running=running),
        tone=tone(newest, running=running),
        running=running,
        rows=[show_row(record) for record in records],
        records=records,
        faults=faults,
        months={month: month_page_of(month) for month in months},
        tiles=[*tiles(newest), Tile("runs without a failure", str(quiet_runs(runs)))],
    )


def render_month(month: str, runs: Sequence[NightlyRun]) -> str:
    """The runs of a month, newest first; all of them are over."""
    records = find_records(runs, running=False)
    return render("month.html.j2", month=month, runs=runs, records=records)


def state(run: NightlyRun, *, running: bool) -> str:
    words = headline(run).partition(" (")[0]
    if run.finished:
        return words
    done = f"{len(run.profiles)} of {format_count(len(profiles_of([run])), 'profile')}"
    failed = sum(one.failed for one in run.profiles)
    more = f", {failed} failed" if failed else ""
    return f"running: {done} done{more}" if running else f"cut off after {done}{more}"


def tone(run: NightlyRun, *, running: bool) -> str:
    if any(done.failed for done in run.profiles):
        return "failed"
    if not run.finished:
        return "calm" if running else "degraded"
    return "passed"


def tiles(run: NightlyRun) -> list[Tile]:
    well = sum(not done.failed for done in run.profiles)
    return [
        Tile("profiles succeeded", f"{well} of {len(profiles_of([run]))}"),
        Tile("became stable", str(sum(d.ending is Ending.PROMOTED for d in run.profiles))),
        Tile("security updates", str(count_security(run))),
        Tile("published", format_size(sum(done.published for done in run.profiles))),
        Tile("took", format_duration(run.seconds)),
    ]


def quiet_runs(runs: Sequence[NightlyRun]) -> int:
    """The number of consecutive runs without a failure; a run in progress does not count yet."""
    over = [run for number, run in enumerate(runs) if run.finished or number]
    return next((n for n, run in enumerate(over) if run.failed), len(over))


def show_card(
    cell: Cell, done: ProfileRun, logs: Mapping[int, str], boots: Mapping[int, str]
) -> Card:
    log = logs.get(cell.number)
    beside = Path(done.log).name.startswith(f"{cell.run.id}.")
    changes = sorted(done.changes, key=lambda change: change.name)
    return Card(
        cell=cell,
        done=done,
        spans=show_spans(done),
        security=tuple(change for change in changes if change.security),
        others=tuple(change for change in changes if not change.security),
        log=show_log(f"log-{cell.number}", clean_lines(log).splitlines(), LINES) if log else None,
        log_file=Path(done.log).name if log and beside else "",
        boot=boots.get(cell.number, ""),
    )


def show_spans(done: ProfileRun) -> tuple[StageSpan, ...]:
    whole = sum(done.seconds.values()) or 1.0
    spans: list[StageSpan] = []
    before = 0.0
    for stage in NightlyStage:
        if stage in done.seconds:
            seconds = done.seconds[stage]
            left, width = round(before * 100 / whole, 2), round(seconds * 100 / whole, 2)
            spans.append(
                StageSpan(stage, seconds, left, width, done.failed and stage is done.stage)
            )
            before += seconds
    return tuple(spans)


def show_row(record: ProfileHistory) -> tuple[ProfileHistory, Bars, Bars]:
    """A profile with the times of its runs and the bytes that they published."""
    cells = record.cells
    times = [sum(cell.done.seconds.values()) if cell.done else 0.0 for cell in cells]
    sizes = [float(cell.done.published) if cell.done else 0.0 for cell in cells]
    return (
        record,
        show_bars(cells, times, f"up to {format_duration(max(times))}"),
        show_bars(cells, sizes, f"up to {format_size(max(sizes))}"),
    )


def show_bars(cells: Sequence[Cell], values: Sequence[float], label: str) -> Bars:
    """Bars from the oldest to the newest; `cells` and `values` newest first."""
    most = max(values) or 1.0
    paths = {True: "", False: ""}
    for place, (cell, value) in enumerate(zip(reversed(cells), reversed(values), strict=True)):
        if cell.done:
            height = max(1, round(value / most * HEIGHT))
            paths[not cell.done.failed] += f"M{place * STEP} {HEIGHT}v-{height}h3v{height}z"
    return Bars(label, len(cells) * STEP, paths[True], paths[False])
