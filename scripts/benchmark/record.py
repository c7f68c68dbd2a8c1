# SPDX-License-Identifier: Apache-2.0
"""Figures on disk as soon as they are measured: JSON and page, so that nothing measured is lost."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from imagebuilder.errors import InputError
from imagebuilder.lock.storage import make_folder
from scripts.benchmark.figures import (
    Figure,
    Report,
    Section,
    SectionName,
    parse_report,
    report_json,
)
from scripts.benchmark.page import render_report

JSON, PAGE = "benchmarks.json", "benchmarks.md"


def find_report(path: Path) -> Report:
    """The report at `path`, empty when nothing has been measured.  Raises InputError."""
    try:
        return parse_report(path.read_text()) if path.exists() else {}
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"not a report: {error}", where=os.fspath(path)) from error


def write(report: Report, folder: Path) -> None:
    """The JSON and its page, for the owner of the folder; the page alone while there is none."""
    make_folder(folder)
    owner = folder.stat()
    texts = {PAGE: render_report(report)}
    if report:
        texts[JSON] = report_json(report)
    for name, text in texts.items():
        path, new = folder / name, folder / f".{name}.new"
        new.write_text(text)
        os.chown(new, owner.st_uid, owner.st_gid)
        new.replace(path)


class Recorder:
    """One section that is being measured, in the report in `folder`; other sections stay."""

    def __init__(self, folder: Path, name: SectionName, section: Section) -> None:
        self.folder, self.name, self.section = folder, name, section

    def save(self) -> None:
        """Write what there is."""
        report = {**find_report(self.folder / JSON), self.name: self.section}
        write(report, self.folder)

    def put(self, *figures: Figure) -> None:
        """Fill cells, and write."""
        self.section = self.section.having(figures)
        self.save()

    def cell(self, row: str, column: str) -> Figure:
        """What is in a cell."""
        return self.section.find(row, column) or Figure(row, column)

    def count(self, row: str, column: str) -> int:
        """How many values a cell has."""
        return len(self.cell(row, column).values)

    def broken(self, row: str, column: str) -> bool:
        """Whether a cell could not be measured."""
        return bool(self.cell(row, column).fault)

    def add(
        self, row: str, column: str, value: float, parts: Mapping[str, float], note: str = ""
    ) -> None:
        """One more value of a cell; save() writes it."""
        cell = self.cell(row, column)
        more = {name: (*cell.parts.get(name, ()), part) for name, part in parts.items()}
        new = replace(cell, values=(*cell.values, value), parts={**cell.parts, **more}, note=note)
        self.section = self.section.having([new])

    def fault(self, row: str, column: str, why: str) -> None:
        """A cell cannot be measured."""
        self.put(replace(self.cell(row, column), fault=why))

    def instead(self, row: str, other: str, column: str, why: str) -> None:
        """A cell has the values of another row, for the tool does that instead."""
        like = self.cell(other, column)
        self.section = self.section.having(
            [Figure(row, column, like.values, instead=why, fault=like.fault)]
        )

    def remark(self, column: str, text: str) -> None:
        """What is to be known of a column."""
        self.section = replace(self.section, remarks={**self.section.remarks, column: text})
