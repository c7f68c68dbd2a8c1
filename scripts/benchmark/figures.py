# SPDX-License-Identifier: Apache-2.0
"""What a figure is, and how figures become JSON and come back.  Pure.

A report has sections, each measured at a time of its own: a run of one leaves the others as they
are.  A section is a table: figures by row and column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum

from imagebuilder.digest import Json

SCHEMA = 2


class SectionName(StrEnum):
    """The tables, in the order of the page."""

    TOOLS = "tools"  # builds, by tool
    NIGHTS = "nights"  # what a night costs
    BOOT = "boot"  # power-on to ssh, by kind of root and number of nodes
    OWN = "own"  # what only imagebuilder is measured by


@dataclass(frozen=True)
class Figure:
    """What was measured of `row` for `column`: every value, in the unit of the row.

    `parts` are more values of the same runs, by name (`cpu, s`).  `note` is for the reader.  With
    `instead` a tool cannot do this, and the values are those of what it does instead.  With a
    `fault` it could not be measured, or only in part.
    """

    row: str
    column: str
    values: tuple[float, ...] = ()
    parts: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    note: str = ""
    instead: str = ""
    fault: str = ""


@dataclass(frozen=True)
class Section:
    """One table: when and where it was measured, and on what.

    `facts` are of the host and the programs, `subjects` of the profiles, `remarks` by column.
    """

    date: str
    facts: Mapping[str, str]
    subjects: Mapping[str, str]
    figures: tuple[Figure, ...] = ()
    remarks: Mapping[str, str] = field(default_factory=dict)

    def find(self, row: str, column: str) -> Figure | None:
        """The figure in a cell, if there is one."""
        for figure in self.figures:
            if (figure.row, figure.column) == (row, column):
                return figure
        return None

    def columns(self, row: str) -> tuple[Figure, ...]:
        """Every figure of a row."""
        return tuple(figure for figure in self.figures if figure.row == row)

    def having(self, figures: Sequence[Figure]) -> Section:
        """The same with some cells filled, or filled anew."""
        cells = {(f.row, f.column): f for f in (*self.figures, *figures)}
        return replace(self, figures=tuple(cells.values()))


Report = Mapping[SectionName, Section]


def ratios(values: Sequence[float], others: Sequence[float]) -> tuple[float, ...]:
    """Each of `values` against that of `others` of the same round; drift cancels out."""
    return tuple(value / other for value, other in zip(values, others, strict=True) if other)


def report_json(report: Report) -> str:
    """A report as JSON text, every single run in it."""
    value: dict[str, Json] = {
        "schema": SCHEMA,
        "sections": {str(name): asdict(report[name]) for name in SectionName if name in report},
    }
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def parse_report(text: str) -> Report:
    """The report that report_json() wrote.  Raises KeyError or ValueError for anything else."""
    given = json.loads(text)
    if given["schema"] != SCHEMA:
        raise ValueError(f"its schema is {given['schema']}, this program reads {SCHEMA}")
    return {
        SectionName(name): Section(
            date=one["date"],
            facts=one["facts"],
            subjects=one["subjects"],
            figures=tuple(
                Figure(
                    row=f["row"],
                    column=f["column"],
                    values=tuple(f["values"]),
                    parts={name: tuple(values) for name, values in f["parts"].items()},
                    note=f["note"],
                    instead=f["instead"],
                    fault=f["fault"],
                )
                for f in one["figures"]
            ),
            remarks=one["remarks"],
        )
        for name, one in given["sections"].items()
    }
