# SPDX-License-Identifier: Apache-2.0
"""What is to be reached, and whether it was.  Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from scripts.benchmark.figures import Figure, Report, Section, SectionName, ratios

OURS = "imagebuilder"
EQUAL = 1.05  # a median this many times the best is equal to it


class Verdict(StrEnum):
    """How a figure stands to its goal."""

    MET = "reached"
    FAILED = "**not reached**"
    BROKEN = "**could not be measured**"
    NOT_MEASURED = "not measured"


class Row(StrEnum):
    """The rows of the build table."""

    COLD = "cold"
    NOOP = "noop"
    LAST = "last"
    MIDDLE = "middle"
    SIZE = "size"
    MEMORY = "memory"
    SAME = "determinism"


@dataclass(frozen=True)
class RowText:
    """A row for readers: what it is, its unit, and how it is measured."""

    what: str
    unit: str
    how: str


ROWS: dict[Row, RowText] = {
    Row.COLD: RowText(
        "cold build", "s",
        "only the packages exist, in a local archive (imagebuilder: in its pool); until root, "
        "kernel and initrd are complete",
    ),
    Row.NOOP: RowText(
        "nothing changed", "s",
        "the same command again",
    ),
    Row.LAST: RowText(
        "file of the last overlay changed", "s",
        "one configuration file that is not in the initrd; until the new result is complete and "
        "contains the change",
    ),
    Row.MIDDLE: RowText(
        "package added to a middle overlay", "s",
        "the package is already in the archive, and for imagebuilder in the lock; the result must "
        "contain it",
    ),
    Row.SIZE: RowText(
        "root, kernel and initrd on disk", "MB",
        "`du` of the result as plain files; hard links count once",
    ),
    Row.MEMORY: RowText(
        "peak memory of the cold build", "MB",
        "anonymous memory of all processes of the tool, sampled five times a second, and the "
        "growth of tmpfs; without the page cache",
    ),
    Row.SAME: RowText(
        "paths that differ between two cold builds", "paths",
        "type, mode, owner and content of every path, without times; each run against the first",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Goal:
    """What a row is to reach: its value, in `unit`, is at most `limit`.

    With `against` the value is the ratio of our column to that one, or to the best other column
    where it is `best`.
    """

    section: SectionName
    row: str
    what: str
    unit: str
    limit: float
    how: str = ""
    against: str = ""


BEST = "best"
TOOLS, NIGHTS, OWN = SectionName.TOOLS, SectionName.NIGHTS, SectionName.OWN
GOALS = (
    Goal(TOOLS, Row.COLD, "cold build, against mmdebstrap and dracut", "times", 1.0,
         against="mmdebstrap"),
    Goal(TOOLS, Row.NOOP, "nothing changed, against mkosi", "times", 0.5, against="mkosi"),
    Goal(TOOLS, Row.LAST, "file of the last overlay changed, against mkosi", "times", 0.2,
         against="mkosi"),
    *(
        Goal(TOOLS, row, f"best or equal: {text.what}", "times", EQUAL, against=BEST)
        for row, text in ROWS.items()
    ),
    Goal(
        NIGHTS, "quiet", "nightly run, nothing changed", "s", 10.0,
        "`imagebuilder nightly`, the whole process, with requests to the mirror; a report of a "
        "boot test existed before, so that the first run has nothing to boot",
    ),
    Goal(
        NIGHTS, "quiet-bytes", "nightly run, nothing changed: bytes published", "bytes", 0,
        "growth of the netboot tree's releases, roots and repository",
    ),
    Goal(
        NIGHTS, "one-package", "nightly run, one package changed: published, share of the image",
        "%", 10.0,
        "a package of the lock gets a new version, with other content in every file; then `build` "
        "and `publish`; growth of the netboot tree on disk, against root, kernel and initrd",
    ),
    Goal(OWN, "plan", "`plan`", "s", 0.5, "the whole process"),
    Goal(
        OWN, "file", "one file in the last overlay changed", "s", 10.0,
        "`build --locked` until the new image is in the store",
    ),
    Goal(
        OWN, "package", "one package added to the middle overlay: steps planned wrongly", "steps",
        0,
        "steps below that overlay's packages must be reused, and the others built; from "
        "`plan --json`",
    ),
    Goal(
        OWN, "memory", "peak memory of our own processes in a cold build", "MB", 300,
        "the program and the first process of each sandbox, without apt, dpkg, dracut and ostree",
    ),
    Goal(
        OWN, "size", "stored size of ten versions that differ by one file, against one", "times",
        1.02, "bytes on disk of `store/`",
    ),
    Goal(
        OWN, "publish", "`publish` into an empty netboot tree", "s", 2.0,
        "the whole process, with verification of every object that is copied, sync and read-back; "
        "tree and store on one file system",
    ),
    Goal(
        OWN, "promote", "`promote` and `rollback`", "s", 0.6,
        "the whole process; the two take turns, and each reads every byte of the release",
    ),
    Goal(
        OWN, "same", "differences between two builds of one lock", "differences", 0,
        "root, initrd, kernel and manifest; the second build has its own state directory, another "
        "time zone, umask, locale, TMPDIR and host name, and one core",
    ),
    Goal(
        OWN, "status", "`status` with the reported health of all nodes", "s", 10.0,
        "the whole process; simulated nodes that answer on port 22",
    ),
    Goal(
        OWN, "status-memory", "`status` with the reported health of all nodes: peak memory", "MB",
        200, "peak memory of the process",
    ),
    Goal(
        OWN, "run", "`run` of `true`, against the faster of clush and pdsh", "times", 1.1,
        "the tools take turns, with the same fan-out of 64; one sshd on the same machine stands "
        "for all nodes",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Judged:
    """A goal and what was measured for it of one subject (a profile, a column; "" for none).

    `runs` is how many runs `values` come from: one ratio of two medians may come from many.
    """

    goal: Goal
    subject: str
    values: tuple[float, ...]
    verdict: Verdict
    runs: int = 0


def judge(goal: Goal, section: Section | None) -> tuple[Judged, ...]:
    """What there is for a goal: once for each subject, and once when there is nothing."""
    figures = section.columns(goal.row) if section else ()
    if goal.against:
        return (compare(goal, {figure.column: figure for figure in figures}),)
    return tuple(
        Judged(goal, f.column, f.values, verdict_of(goal, f.values, (f,)), len(f.values))
        for f in figures
    ) or (Judged(goal, "", (), Verdict.NOT_MEASURED),)


def compare(goal: Goal, figures: dict[str, Figure]) -> Judged:
    """Our column against another, or against the best other one."""
    ours = figures.get(OURS)
    others = [f for name, f in figures.items() if name != OURS and f.values]
    if goal.against == BEST:
        rival = min(others, key=lambda f: median(f.values), default=None)
    else:
        rival = figures.get(goal.against)
    if ours is None or rival is None:
        return Judged(goal, "", (), Verdict.NOT_MEASURED)
    values = against_rival(goal, ours, rival)
    runs = min(len(ours.values), len(rival.values))
    return Judged(goal, rival.column, values, verdict_of(goal, values, (ours, rival)), runs)


def against_rival(goal: Goal, ours: Figure, rival: Figure) -> tuple[float, ...]:
    """Ratios: of runs of one round for a ratio, of the medians to tell who is first."""
    if not ours.values or not rival.values:
        return ()
    if goal.against == BEST:
        one, other = median(ours.values), median(rival.values)
        return (one / other if other else (math.inf if one else 1.0),)
    many = min(len(ours.values), len(rival.values))
    return ratios(ours.values[:many], rival.values[:many])


def verdict_of(goal: Goal, values: Sequence[float], figures: Sequence[Figure]) -> Verdict:
    """Whether the median reaches the goal."""
    if any(figure.fault for figure in figures):
        return Verdict.BROKEN
    if not values:
        return Verdict.NOT_MEASURED
    return Verdict.MET if median(values) <= goal.limit else Verdict.FAILED


def judgements(report: Report) -> Iterator[Judged]:
    """Every goal, in order."""
    for goal in GOALS:
        yield from judge(goal, report.get(goal.section))


def all_met(report: Report, names: Sequence[SectionName]) -> bool:
    """Whether every goal of those sections is reached, and nothing in them broke."""
    broken = any(f.fault for name in names if name in report for f in report[name].figures)
    found = [one.verdict for one in judgements(report) if one.goal.section in names]
    return not broken and all(verdict is Verdict.MET for verdict in found)
