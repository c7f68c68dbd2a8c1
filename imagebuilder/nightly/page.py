# SPDX-License-Identifier: Apache-2.0
"""Nights as HTML pages that need nothing else: one of each night, one of a month, the history.

What they show was said by programs and machines, so nothing of it is trusted: the templates escape
every value, control characters are gone, and the pages' own policy forbids scripts.
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
    NIGHTS,
    Cell,
    CellKind,
    ProfileHistory,
    count_security,
    find_cell,
    find_records,
    profiles_of,
)
from imagebuilder.nightly.message import headline, night_of
from imagebuilder.nightly.types import Ending, NightlyRun, NightlyStage, ProfileRun
from imagebuilder.report.page import LogEnd, Tile, show_log
from imagebuilder.templates import templates
from imagebuilder.ui import format_count, format_duration, format_size
from imagebuilder.untrusted import clean_lines

LINES = 200  # of a log are shown, the last ones
HEIGHT = 24  # of a row of bars, in its own units
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
    CellKind.UNCHANGED: "nothing new, and the newest image is released and tested",
    CellKind.FRESH: "a new release passed its boot test",
    CellKind.PROMOTED: "it is stable now",
    CellKind.FAILED: "stable is unchanged",
    CellKind.CUT_OFF: "the run ended before this profile was finished",
}


@dataclass(frozen=True)
class StageSpan:
    """A stage of a profile; `left` and `width` of its bar are percent of all of them."""

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
    """A row of bars as SVG paths, oldest night first, and what it says in words."""

    label: str
    width: int
    good: str
    bad: str


@dataclass(frozen=True)
class Row:
    record: ProfileHistory
    seconds: Bars
    bytes: Bars


@cache
def environment() -> Environment:
    """Where the templates come from; those of a boot test's report lend their style."""
    made = templates(Path(__file__).parent, *map(Path, imagebuilder.report.__path__), html=True)
    add_words(made)
    return made


def add_words(made: Environment) -> None:
    """Give templates what parts.html.j2 needs."""
    made.filters |= {
        "night": night_of,
        "security": count_security,
    }
    made.globals |= {"looks": LOOKS, "meanings": MEANINGS, "nights_folder": NIGHTS, "page": page_of}


def page_of(id: str) -> str:  # noqa: A002
    return f"{id}.html"


def boot_page_of(id: str, number: int) -> str:  # noqa: A002
    """The file of the page of a boot test, of a night's profile by its place."""
    return f"{id}.boot-{number}.html"


def month_page_of(month: str) -> str:
    return f"month-{month}.html"


def render_night_page(
    night: NightlyRun, *, runs: bool, logs: Mapping[int, str], boots: Mapping[int, str]
) -> str:
    """The page of a night; `logs` and files of `boots` are by the place of a profile in it."""
    cards = [
        show_card(find_cell(night, done.profile, runs=runs), done, logs, boots)
        for done in night.profiles
    ]
    return (
        environment()
        .get_template("night.html.j2")
        .render(
            night=night,
            title=night_of(night),
            state=state(night, runs=runs),
            tone=tone(night, runs=runs),
            runs=runs,
            cells=[find_cell(night, name, runs=runs) for name in profiles_of([night])],
            cards=cards,
            tiles=[*tiles(night), Tile("freed", format_size(night.pruned.freed))],
        )
    )


def render_index(
    nights: Sequence[NightlyRun], *, faults: Sequence[Fault], months: Sequence[str], runs: bool
) -> str:
    """The history: `nights` newest first, which may be under way; links to the pages of `months`.

    `faults` are those of nights that cannot be read.
    """
    newest = nights[0]
    records = find_records(nights, runs=runs)
    return (
        environment()
        .get_template("index.html.j2")
        .render(
            night=newest,
            nights=nights,
            state=state(newest, runs=runs),
            tone=tone(newest, runs=runs),
            runs=runs,
            rows=[show_row(record) for record in records],
            records=records,
            faults=faults,
            months={month: month_page_of(month) for month in months},
            tiles=[*tiles(newest), Tile("runs without a failure", str(quiet_nights(nights)))],
        )
    )


def render_month(month: str, nights: Sequence[NightlyRun]) -> str:
    """The nights of a month, newest first; none of them is under way."""
    records = find_records(nights, runs=False)
    return (
        environment()
        .get_template("month.html.j2")
        .render(month=month, nights=nights, records=records)
    )


def state(night: NightlyRun, *, runs: bool) -> str:
    words = headline(night).partition(" (")[0]
    if night.finished:
        return words
    done = f"{len(night.profiles)} of {format_count(len(profiles_of([night])), 'profile')}"
    failed = sum(one.failed for one in night.profiles)
    more = f", {failed} failed" if failed else ""
    return f"running: {done} done{more}" if runs else f"cut off after {done}{more}"


def tone(night: NightlyRun, *, runs: bool) -> str:
    if any(done.failed for done in night.profiles):
        return "failed"
    if not night.finished:
        return "calm" if runs else "degraded"
    return "passed"


def tiles(night: NightlyRun) -> list[Tile]:
    well = sum(not done.failed for done in night.profiles)
    return [
        Tile("profiles went well", f"{well} of {len(profiles_of([night]))}"),
        Tile("became stable", str(sum(d.ending is Ending.PROMOTED for d in night.profiles))),
        Tile("security updates", str(count_security(night))),
        Tile("published", format_size(sum(done.published for done in night.profiles))),
        Tile("took", format_duration(night.seconds)),
    ]


def quiet_nights(nights: Sequence[NightlyRun]) -> int:
    """How many nights in a row had no failure; one that is under way does not count yet."""
    over = [night for number, night in enumerate(nights) if night.finished or number]
    return next((n for n, night in enumerate(over) if night.failed), len(over))


def show_card(
    cell: Cell, done: ProfileRun, logs: Mapping[int, str], boots: Mapping[int, str]
) -> Card:
    log = logs.get(cell.number)
    beside = Path(done.log).name.startswith(f"{cell.night.id}.")
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


def show_row(record: ProfileHistory) -> Row:
    cells = record.cells
    times = [sum(cell.done.seconds.values()) if cell.done else 0.0 for cell in cells]
    sizes = [float(cell.done.published) if cell.done else 0.0 for cell in cells]
    return Row(
        record,
        show_bars(cells, times, f"up to {format_duration(max(times))}"),
        show_bars(cells, sizes, f"up to {format_size(max(sizes))}"),
    )


def show_bars(cells: Sequence[Cell], values: Sequence[float], label: str) -> Bars:
    """Values of cells, newest first, as bars from the oldest to the newest."""
    most = max(values) or 1.0
    paths = {True: "", False: ""}
    for place, (cell, value) in enumerate(zip(reversed(cells), reversed(values), strict=True)):
        if cell.done:
            height = max(1, round(value / most * HEIGHT))
            paths[not cell.done.failed] += f"M{place * STEP} {HEIGHT}v-{height}h3v{height}z"
    return Bars(label, len(cells) * STEP, paths[True], paths[False])
