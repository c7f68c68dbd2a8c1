# SPDX-License-Identifier: Apache-2.0
"""The goals, what a figure is, and how figures become JSON and a Markdown page.  Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from statistics import median

from imagebuilder.digest import Json

SCHEMA = 1
# How many digits after the point a unit is shown with; goals are judged before rounding.
DIGITS = {"times": 3, "s": 2, "MB": 0, "differences": 0, "steps": 0}


class Verdict(StrEnum):
    """How a figure stands to its goal."""

    MET = "met"
    FAILED = "**failed**"
    BROKEN = "**could not be measured**"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Goal:
    """What a row is to reach: its value, in `unit`, is at most `limit`."""

    row: str
    what: str
    unit: str
    limit: float
    how: str


@dataclass(frozen=True)
class Figure:
    """One row measured on `subject` (a profile): every value, in the unit of the row's goal.

    `parts` are the values they were computed from, by name (`mmdebstrap, s`).  With a `fault` the
    row could not be measured, or only in part.
    """

    row: str
    subject: str
    values: tuple[float, ...] = ()
    parts: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    note: str = ""
    fault: str = ""


@dataclass(frozen=True)
class Report:
    """One run of the benchmark: its figures, and the facts they are worth nothing without."""

    date: str
    host: Mapping[str, str]
    profiles: Mapping[str, str]
    figures: tuple[Figure, ...]


GOALS = (
    Goal(
        "mmdebstrap", "cold build of `generic`, against mmdebstrap and dracut", "times", 1.15,
        "an empty store and a filled package pool; the other is one mmdebstrap of all packages of "
        "the same lock, from a local archive, and one dracut with the same configuration; untuned: "
        "its dpkg waits for the disk after each package, as ours does not (`force-unsafe-io`)",
    ),
    Goal(
        "debootstrap", "cold build of `generic`, against debootstrap and dracut", "times", 0.6,
        "as above, with debootstrap, which also unpacks documentation that the recipe leaves out",
    ),
    Goal(
        "unchanged", "`build --locked`, nothing changed", "s", 1.0,
        "the whole process",
    ),
    Goal(
        "plan", "`plan`", "s", 0.5,
        "the whole process",
    ),
    Goal(
        "file", "one file in the last overlay changed", "s", 10.0,
        "`build --locked` until the new image is in the store",
    ),
    Goal(
        "package", "one package added to the middle overlay: steps planned wrongly", "steps", 0,
        "what is below that overlay's packages must be reused, the rest built; from `plan --json`",
    ),
    Goal(
        "memory", "peak memory of our own processes in a cold build", "MB", 300,
        "the program, and the first process of each sandbox; not apt, dpkg, dracut or ostree",
    ),
    Goal(
        "size", "stored size of ten versions that differ by one file, against one", "times", 1.02,
        "bytes on disk of `store/`",
    ),
    Goal(
        "publish", "`publish` into an empty netboot tree", "s", 2.0,
        "the whole process, with sync and read-back; tree and store on one filesystem",
    ),
    Goal(
        "promote", "`promote` and `rollback`", "s", 0.6,
        "the whole process, in turns",
    ),
    Goal(
        "same", "differences between two builds of one lock", "differences", 0,
        "root, initrd, kernel and manifest of a second state directory, made with another time "
        "zone, umask, locale, TMPDIR, host name and on one core",
    ),
)  # fmt: skip


def goal_of(row: str) -> Goal:
    """The goal of a row.  Raises KeyError."""
    return {goal.row: goal for goal in GOALS}[row]


def ratios(values: Sequence[float], others: Sequence[float]) -> tuple[float, ...]:
    """Each of `values` against that of `others` which ran beside it; drift cancels out."""
    return tuple(value / other for value, other in zip(values, others, strict=True))


def judge(figure: Figure) -> Verdict:
    """Whether the median of a figure reaches its goal."""
    if figure.fault:
        return Verdict.BROKEN
    if not figure.values:
        return Verdict.NOT_MEASURED
    reached = median(figure.values) <= goal_of(figure.row).limit
    return Verdict.MET if reached else Verdict.FAILED


def all_met(figures: Sequence[Figure]) -> bool:
    """Whether every figure reaches its goal."""
    return all(judge(figure) is Verdict.MET for figure in figures)


def render_value(value: float, unit: str) -> str:
    """A value in its unit; a plain number where the unit is a count."""
    shown = f"{value:.{DIGITS.get(unit, 2)}f}"
    return shown if unit in ("differences", "steps") else f"{shown} {unit}"


def render_goal(goal: Goal) -> str:
    """A goal in words."""
    return f"at most {goal.limit:g} {goal.unit}" if goal.limit else "none"


def render_rows(figures: Sequence[Figure]) -> list[str]:
    """The lines of the table: every goal, measured or not."""
    lines = [
        "| row | what | of | goal | median | lowest to highest | runs | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for goal in GOALS:
        found = [figure for figure in figures if figure.row == goal.row]
        lines += [render_row(goal, figure) for figure in found or [Figure(goal.row, "")]]
    return lines


def render_row(goal: Goal, figure: Figure) -> str:
    """One line of the table."""
    middle = spread = ""
    if figure.values:
        middle = render_value(median(figure.values), goal.unit)
    if len(figure.values) > 1:
        lowest, highest = min(figure.values), max(figure.values)
        spread = f"{render_value(lowest, goal.unit)} to {render_value(highest, goal.unit)}"
    cells = (
        goal.row, goal.what, figure.subject and f"`{figure.subject}`",
        render_goal(goal), middle, spread,
        str(len(figure.values) or ""), judge(figure),
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def render_part(values: Sequence[float]) -> str:
    """The median of what a figure was computed from, and the spread if there is one."""
    spread = f" ({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else ""
    return f"{median(values):.2f}{spread}"


def render_details(figures: Sequence[Figure]) -> list[str]:
    """What the figures were computed from, and what is to be said of them."""
    lines: list[str] = []
    for figure in figures:
        said = [f"{name} {render_part(values)}" for name, values in figure.parts.items() if values]
        # A table or list of Markdown ends where a line does.
        words = [*said, *(" ".join(text.split()) for text in (figure.note, figure.fault) if text)]
        if words:
            lines.append(f"* {figure.row}, `{figure.subject}`: {'; '.join(words)}")
    return lines


def render_report(report: Report | None) -> str:
    """The page of a run; without one, the goals."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `scripts/bench` from the JSON that stands beside it: change neither by hand.",
        "`make bench` measures on your machine (as root, about half an hour, 30 GB of disk) and",
        "writes both to `build/bench/`. Your store, your pool and your recipes are not touched.",
        "",
    ]
    figures = report.figures if report else ()
    if report is None:
        lines += ["Nothing has been measured yet. These are the goals.", ""]
    else:
        lines += [f"Measured {report.date} on:", ""]
        lines += [f"* {name}: {value}" for name, value in report.host.items()]
        lines += [f"* profile `{name}`: {value}" for name, value in report.profiles.items()]
        lines.append("")
    lines += render_rows(figures)
    if details := render_details(figures):
        lines += ["", "What these were computed from; medians, with lowest to highest:", ""]
        lines += details
    lines += ["", "What a row measures:", ""]
    lines += [f"* {goal.row}: {goal.how}" for goal in GOALS]
    lines += [
        "",
        "The verdict is on the median. Ratios are of runs that took turns (A B A B); compare them",
        "within one report only.",
    ]
    return "\n".join(lines) + "\n"


def report_json(report: Report) -> str:
    """A report as JSON text, every single run in it, with goals and verdicts for programs."""
    value: dict[str, Json] = {
        "schema": SCHEMA,
        "date": report.date,
        "host": dict(report.host),
        "profiles": dict(report.profiles),
        "figures": [
            {**asdict(figure), "goal": asdict(goal_of(figure.row)), "verdict": judge(figure).name}
            for figure in report.figures
        ],
    }
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def parse_report(text: str) -> Report:
    """The report that report_json() wrote.  Raises KeyError or ValueError for anything else."""
    given = json.loads(text)
    if given["schema"] != SCHEMA:
        raise ValueError(f"its schema is {given['schema']}, this program reads {SCHEMA}")
    figures = tuple(
        Figure(
            f["row"],
            f["subject"],
            tuple(f["values"]),
            {name: tuple(values) for name, values in f["parts"].items()},
            f["note"],
            f["fault"],
        )
        for f in given["figures"]
    )
    return Report(given["date"], given["host"], given["profiles"], figures)
