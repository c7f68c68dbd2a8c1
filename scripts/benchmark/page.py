# SPDX-License-Identifier: Apache-2.0
"""The page that a report becomes.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from scripts.benchmark.figures import Figure, Report, Section, SectionName
from scripts.benchmark.goals import (
    BEST,
    EQUAL,
    GOALS,
    ROWS,
    Judged,
    Row,
    Verdict,
    judgements,
)
from scripts.benchmark.page_boot import render_boot

# How many digits after the point a unit is shown with; goals are judged before rounding.
DIGITS = {"times": 3, "s": 2, "MB": 0, "%": 2}
COUNTS = ("differences", "steps", "paths", "bytes")
# Why it may be that a row is not ours; shown where it is not.
WHY: Mapping[Row, str] = {
    Row.COLD: (
        "a cold build of ours also writes every file into the store by its digest, verifies each "
        "package, runs the overlays' scripts and makes manifest, SBOM and proof; it gains by "
        "leaving out dpkg's waiting for the disk and by running dracut beside the later layers"
    ),
    Row.NOOP: "the plan reads every input and compares digests instead of looking at times",
    Row.LAST: "a new root is a new commit in the store, and its proof is made again",
    Row.MIDDLE: (
        "all layers above the changed one are built again, so that the result is that of a cold "
        "build"
    ),
    Row.SIZE: (
        "ours has what only an image of ours has (configuration by the overlays' scripts, Python "
        "bytecode, manifest and SBOM), and keeps apt's records of what is installed"
    ),
    Row.MEMORY: (
        "the most is where the root's dpkg-deb decompresses the kernel's modules in threads; "
        "beside it are mmdebstrap, which is our engine, and the program itself, in Python"
    ),
    Row.SAME: "see the paths below the table",
}
INTRODUCTION = """\
# Benchmarks

What `imagebuilder` takes, beside other tools given the same work on the same machine, and what a
boot over the network takes by the kind of root. Every number was measured by `scripts/bench`, which
wrote this page and the JSON beside it (each single run is in there): change neither by hand.

To repeat it, from a checkout, as root, on a machine that does nothing else:

    imagebuilder setup --boot               # what builds and boot tests need
    sudo scripts/bench --output build/bench # all tables; --estimate says for how long, before

mkosi (24 or newer) and diskimage-builder (`pip install diskimage-builder`) are measured when
`mkosi` and `disk-image-create` are found on PATH, and are said to be absent when not.
`--sections tools`, `nights`, `boot` or `own` measures one table and leaves the others as they are;
a run that was interrupted goes on with `--resume`, given the same `--work` folder. Your store, your
pool and your recipes are not touched: it works on copies, in a folder of its own."""


def render_report(report: Report) -> str:
    """The page of a report; of an empty one, the goals."""
    lines = [INTRODUCTION, "", "## Goals", ""]
    if not report:
        lines += ["Nothing has been measured yet.", ""]
    lines += render_goals(report)
    for name in SectionName:
        lines += ["", f"## {TITLES[name]}", ""]
        if name in report:
            lines += [*RENDERERS[name](report[name]), "", *render_facts(report[name])]
        else:
            lines.append("Not measured yet.")
    return "\n".join(lines) + "\n"


# --- goals


def render_goals(report: Report) -> list[str]:
    """The table of goals: every one, measured or not."""
    lines = [
        "| goal | of | at most | measured | lowest to highest | runs | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [render_judged(one) for one in judgements(report)]
    return [
        *lines,
        "",
        "The verdict is on the median. Ratios are of runs of the same round; who is first is told "
        f"by medians,\nand what is at most {EQUAL:g} times the best of the others is equal first.",
    ]


def render_judged(one: Judged) -> str:
    """A line of it."""
    goal = one.goal
    middle = spread = ""
    if one.values:
        middle = render_value(median(one.values), goal.unit)
    if len(one.values) > 1:
        lowest, highest = min(one.values), max(one.values)
        spread = f"{render_value(lowest, goal.unit)} to {render_value(highest, goal.unit)}"
    subject = one.subject and (f"against {one.subject}" if goal.against else f"`{one.subject}`")
    limit = "none" if not goal.limit else f"{goal.limit:g} {goal.unit}"
    cells = (goal.what, subject, limit, middle, spread, str(one.runs or ""), one.verdict)
    return render_row(cells)


def render_row(cells: Sequence[str]) -> str:
    """A line of a table."""
    return "| " + " | ".join(cells) + " |"


def render_value(value: float, unit: str) -> str:
    """A value in its unit; a plain number where the unit is a count."""
    if unit in COUNTS:
        return f"{value:.0f}"
    return f"{value:.{DIGITS.get(unit, 2)}f} {unit}"


# --- builds


def render_tools(section: Section) -> list[str]:
    """The build table, where we are not first, and how each tool was run."""
    columns = list(section.remarks)
    lines = [
        "Medians, with lowest to highest; **bold** is the best of a row.",
        "",
        render_row(("", *columns)),
        "|---|" + "---|" * len(columns),
    ]
    for row, text in ROWS.items():
        best = best_of(section, row)
        cells = [render_cell(section.find(row, name), text.unit, best) for name in columns]
        lines.append(render_row((f"{text.what}, {text.unit}", *cells)))
    lines += ["", "Where imagebuilder is not first, and why:", "", *render_lost(section)]
    lines += ["", "What cells say besides:", "", *render_notes(section)]
    lines += ["", "How each tool is run:", ""]
    lines += [f"* {name} {section.remarks[name]}" for name in columns]
    lines += ["", "What a row measures:", ""]
    lines += [f"* {text.what}: {text.how}" for text in ROWS.values()]
    return [*lines, "", *FAIRNESS]


FAIRNESS = """\
Equal for all: the packages of one lock with their kernel, from a local archive on the same disk;
the files that the overlays place; one dracut with the same configuration, compression and words;
the state of the disk cache (what was written before is on disk, nothing is dropped); and that the
result has as many packages, the same kernel and an initrd of the same size, or the run does not
count. Tools take turns in rounds, each round begins with another tool, and a round of a tool is
cold, nothing changed, file changed, package more. Where imagebuilder does more than is asked for
(scripts of the overlays, store, verification, SBOM, proof), it does so in its time.""".splitlines()


def best_of(section: Section, row: str) -> float | None:
    """The best median of a row."""
    return min((median(f.values) for f in section.columns(row) if f.values), default=None)


def render_cell(figure: Figure | None, unit: str, best: float | None) -> str:
    """A cell: the median and its spread."""
    if figure is None or (not figure.values and not figure.fault):
        return ""
    if not figure.values:
        return "not measured"
    digits = 0 if unit in COUNTS else 1
    if unit == "s" and median(figure.values) < 10:
        digits = 2
    shown = f"{median(figure.values):.{digits}f}"
    shown = f"**{shown}**" if median(figure.values) == best else shown
    if len(figure.values) > 1:
        shown += f" ({min(figure.values):.{digits}f} to {max(figure.values):.{digits}f})"
    return f"{shown}, full rebuild" if figure.instead else shown


def render_lost(section: Section) -> list[str]:
    """Every row in which another tool is first."""
    lines = []
    for one in judgements({SectionName.TOOLS: section}):
        if one.goal.against != BEST or one.verdict is not Verdict.FAILED:
            continue
        row = Row(one.goal.row)
        lines.append(f"* {ROWS[row].what}: {one.subject} is first; {WHY[row]}")
    return lines or ["* nowhere in this run"]


def render_notes(section: Section) -> list[str]:
    """Faults, what differs, and why a tool builds all of it again."""
    lines = []
    for figure in section.figures:
        said = (figure.fault and f"could not be measured: {figure.fault}", figure.note)
        words = "; ".join(" ".join(text.split()) for text in (*said, figure.instead) if text)
        if words:
            lines.append(f"* {ROWS[Row(figure.row)].what}, {figure.column}: {words}")
    return lines or ["* nothing"]


# --- the others


def render_own(section: Section) -> list[str]:
    """What our own rows were computed from, and how they are measured."""
    return [*render_details(section), "", *render_how(SectionName.OWN)]


def render_nights(section: Section) -> list[str]:
    """The same of nights."""
    return [*render_details(section), "", *render_how(SectionName.NIGHTS)]


def render_details(section: Section) -> list[str]:
    """What figures were computed from, and what is to be said of them."""
    lines = ["Medians, with lowest to highest; verdicts are in the table of goals:", ""]
    units = {(goal.section, goal.row): goal.unit for goal in GOALS}
    unit_of = {row: unit for (_, row), unit in units.items()}
    for figure in section.figures:
        unit = unit_of.get(figure.row, "")
        said = [render_values(figure.values, unit)] if figure.values else []
        said += [f"{name} {render_part(v)}" for name, v in figure.parts.items() if v]
        said += [" ".join(text.split()) for text in (figure.note, figure.fault) if text]
        lines.append(f"* {figure.row}, `{figure.column}`: {'; '.join(said)}")
    return lines


def render_values(values: Sequence[float], unit: str) -> str:
    """The median with its unit, and the spread if there is one."""
    spread = ""
    if len(values) > 1:
        spread = f" ({render_value(min(values), unit)} to {render_value(max(values), unit)})"
    return render_value(median(values), unit) + spread


def render_part(values: Sequence[float]) -> str:
    """The median of a part, and the spread if there is one."""
    spread = f" ({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else ""
    return f"{median(values):.2f}{spread}"


def render_how(name: SectionName) -> list[str]:
    """How the rows of a section are measured."""
    goals = [goal for goal in GOALS if goal.section is name]
    return ["What a row measures:", "", *(f"* {goal.row}: {goal.how}" for goal in goals)]


def render_facts(section: Section) -> list[str]:
    """When and where a section was measured."""
    lines = [f"Measured {section.date} on:", ""]
    lines += [f"* {name}: {value}" for name, value in section.facts.items()]
    return lines + [f"* profile `{name}`: {value}" for name, value in section.subjects.items()]


TITLES: Mapping[SectionName, str] = {
    SectionName.TOOLS: "Builds, beside other tools",
    SectionName.NIGHTS: "Nights",
    SectionName.BOOT: "Power-on to ssh",
    SectionName.OWN: "imagebuilder alone",
}
RENDERERS: Mapping[SectionName, Callable[[Section], list[str]]] = {
    SectionName.TOOLS: render_tools,
    SectionName.NIGHTS: render_nights,
    SectionName.BOOT: render_boot,
    SectionName.OWN: render_own,
}
