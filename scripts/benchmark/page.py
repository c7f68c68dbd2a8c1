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
        "imagebuilder also writes every file into its store, verifies each package, runs the "
        "overlays' scripts, and makes the manifest, the SBOM and the proof"
    ),
    Row.NOOP: "the plan reads every input and compares digests, not time stamps",
    Row.LAST: "imagebuilder commits the new root to its store and proves it again",
    Row.MIDDLE: (
        "imagebuilder builds all layers above the changed one again, so that the result equals "
        "that of a cold build"
    ),
    Row.SIZE: (
        "the image also has the results of the overlays' scripts, Python bytecode, manifest and "
        "SBOM, and keeps apt's records of installed packages"
    ),
    Row.MEMORY: (
        "the peak is dpkg-deb, which decompresses the kernel's modules in several threads, while "
        "mmdebstrap and imagebuilder itself also run"
    ),
    Row.SAME: "see the paths below the table",
}
INTRODUCTION = """\
# Benchmarks

This page shows how long builds and network boots take, and how imagebuilder compares with other
tools that do the same work on the same machine. `scripts/bench` measured every number and wrote
this page and the JSON beside it, which contains every single run. Do not change them by hand.

To repeat the measurements, run in a clone, on a machine that does nothing else:

    imagebuilder setup --build --boot       # installs what builds and boot tests need
    sudo scripts/bench --output build/bench # measures all; --estimate prints how long it takes

`--sections tools`, `nights`, `boot` or `own` measures one table and keeps the others. `--resume`
with the same `--work` folder continues an interrupted run. mkosi (24 or newer) and
diskimage-builder (`pip install diskimage-builder`) are measured if `mkosi` and `disk-image-create`
are on PATH. The benchmark works on copies, so your store, pool and recipes do not change."""


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
        "The verdict depends on the median. A ratio compares runs of the same round. The best tool "
        f"has the\nbest median; a tool with at most {EQUAL:g} times that value counts as equal.",
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
        "The cells have the median, the lowest and the highest value; the best median is **bold**.",
        "",
        render_row(("", *columns)),
        "|---|" + "---|" * len(columns),
    ]
    for row, text in ROWS.items():
        best = best_of(section, row)
        cells = [render_cell(section.find(row, name), text.unit, best) for name in columns]
        lines.append(render_row((f"{text.what}, {text.unit}", *cells)))
    lines += ["", "Where another tool is the best, and why:", "", *render_lost(section)]
    lines += ["", "Notes about cells:", "", *render_notes(section)]
    lines += ["", "How each tool runs:", ""]
    lines += [f"* {name} {section.remarks[name]}" for name in columns]
    lines += ["", "What a row measures:", ""]
    lines += [f"* {text.what}: {text.how}" for text in ROWS.values()]
    return [*lines, "", *FAIRNESS]


FAIRNESS = """\
All tools get the same packages and kernel from one lock, from a local archive on the same disk.
They get the same files of overlays, and the same dracut with the same configuration. A run counts
only if the result has as many packages, the same kernel and an initrd of the same size.

Tools take turns in rounds, and each round begins with another tool. A round is a cold build, then
nothing changed, a changed file, and an added package. imagebuilder's times include its additional
work: scripts of the overlays, store, verification, SBOM and proof.""".splitlines()


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
        lines.append(f"* {ROWS[row].what}: {one.subject} is the best; {WHY[row]}")
    return lines or ["* none"]


def render_notes(section: Section) -> list[str]:
    """Faults, what differs, and why a tool builds all of it again."""
    lines = []
    for figure in section.figures:
        said = (figure.fault and f"could not be measured: {figure.fault}", figure.note)
        words = "; ".join(" ".join(text.split()) for text in (*said, figure.instead) if text)
        if words:
            lines.append(f"* {ROWS[Row(figure.row)].what}, {figure.column}: {words}")
    return lines or ["* none"]


# --- the others


def render_own(section: Section) -> list[str]:
    """What our own rows were computed from, and how they are measured."""
    return [*render_details(section), "", *render_how(SectionName.OWN)]


def render_nights(section: Section) -> list[str]:
    """The same of nights."""
    return [*render_details(section), "", *render_how(SectionName.NIGHTS)]


def render_details(section: Section) -> list[str]:
    """What figures were computed from, and what is to be said of them."""
    lines = [
        "Medians, with the lowest and the highest value. The verdicts are in the table of goals:",
        "",
    ]
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
    SectionName.TOOLS: "Builds compared with other tools",
    SectionName.NIGHTS: "Nightly runs",
    SectionName.BOOT: "Power-on to ssh",
    SectionName.OWN: "imagebuilder alone",
}
RENDERERS: Mapping[SectionName, Callable[[Section], list[str]]] = {
    SectionName.TOOLS: render_tools,
    SectionName.NIGHTS: render_nights,
    SectionName.BOOT: render_boot,
    SectionName.OWN: render_own,
}
