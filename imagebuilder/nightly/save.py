# SPDX-License-Identifier: Apache-2.0
"""The folder of nights: what each found, and pages for people, each file complete or absent.

    FOLDER/index.html               the history, newest night first
    FOLDER/latest.json              the night that was saved last, as nights/ID.json has it
    FOLDER/month-2026-11.html       a month
    FOLDER/nights/ID.json           what as_json.py writes; the record, and all else follows from it
    FOLDER/nights/ID.html           its page
    FOLDER/nights/ID.boot-N.html    the boot test of its profile number N

A night is saved when it begins, after each profile and at its end.  One that is not finished and
not the one being saved was cut off: its page says so from the beginning of the next.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from imagebuilder.errors import HostError, InputError
from imagebuilder.files import make_folder, place_file
from imagebuilder.nightly.history import (
    NIGHTS,
    SUFFIX,
    find_ids,
    is_id,
    month_of,
    read_nights,
)
from imagebuilder.nightly.page import (
    boot_page_of,
    month_page_of,
    page_of,
    render_index,
    render_month,
    render_night_page,
)
from imagebuilder.nightly.types import NIGHTLY_RUN, NightlyRun
from imagebuilder.report.page import render_page
from imagebuilder.report.save import find_report, read_end, read_logs, report_folder
from imagebuilder.tree import Tree

INDEX, LATEST = "index.html", "latest.json"
SHOWN = 60  # nights are in the history; months have the others
KEPT = 400  # nights are kept


def save_night(night: NightlyRun, folder: Path, tree: Tree | None = None) -> Path:
    """Write the night, its page and the history; returns its page.

    With `tree`, the pages of its boot tests are kept too.  One night is saved at a time: the caller
    holds the lock of nights.  Raises InputError for an id that is none, HostError when it cannot be
    written.
    """
    if not is_id(night.id):
        raise InputError("cannot name a night", where=repr(night.id))
    try:
        return save_all(night, folder, tree)
    except OSError as error:
        where = os.fspath(error.filename or folder)
        raise HostError(f"cannot be written: {error.strerror}", where=where) from error


def save_all(night: NightlyRun, folder: Path, tree: Tree | None) -> Path:
    """The same.  Raises OSError."""
    make_folder(folder / NIGHTS)
    record = folder / NIGHTS / f"{night.id}{SUFFIX}"
    begins = not record.exists()
    if begins:
        sweep(folder)
    # 1. The record, from which everything else can be made again.
    text = NIGHTLY_RUN.render(night)
    place(record, text)
    place(folder / LATEST, text)
    # 2. Its page, with the boot tests that it leads to.
    if tree:
        save_boot_tests(night, folder, tree)
    page = save_page(night, folder, runs=not night.finished)
    # 3. The history.
    ids = [each for each in find_ids(folder) if each != night.id]
    found = read_nights(folder, ids[1 - SHOWN :])
    nights = (night, *reversed(found.nights))
    if begins:
        save_cut_off(nights[1:], folder)
    months = sorted({month_of(each) for each in ids[: 1 - SHOWN]}, reverse=True)
    save_months(night, ids, folder, months)
    runs = not night.finished
    place(
        folder / INDEX,
        render_index(nights, faults=found.faults, months=months, runs=runs),
    )
    return page


def place(path: Path, text: str) -> None:
    """Put a file in its place, for all to read, and wait until it is on the disk."""
    place_file(path, text.encode(errors="replace"))


def sweep(folder: Path) -> None:
    """Remove what killed commands left, and the nights that are too old."""
    for path in (*folder.glob(".*.new"), *(folder / NIGHTS).glob(".*.new")):
        path.unlink()
    ids = find_ids(folder)
    gone = ids[: 1 - KEPT]
    for each in gone:
        for path in (folder / NIGHTS).glob(f"{each}.*"):
            path.unlink()
        (folder / month_page_of(month_of(each))).unlink(missing_ok=True)


def save_page(night: NightlyRun, folder: Path, *, runs: bool) -> Path:
    logs = {number: text for number, text in read_logs_of(night)}
    boots = {
        number: name
        for number in range(len(night.profiles))
        if (folder / NIGHTS / (name := boot_page_of(night.id, number))).is_file()
    }
    page = folder / NIGHTS / page_of(night.id)
    place(page, render_night_page(night, runs=runs, logs=logs, boots=boots))
    return page


def read_logs_of(night: NightlyRun) -> Iterator[tuple[int, str]]:
    """The ends of the logs that are still there, by the place of their profile."""
    for number, done in enumerate(night.profiles):
        if done.log and Path(done.log).is_file() and (text := read_end(Path(done.log))):
            yield number, text


def save_boot_tests(night: NightlyRun, folder: Path, tree: Tree) -> None:
    """The pages of the boot tests that are not there yet; those that cannot be read have none."""
    for number, done in enumerate(night.profiles):
        path = folder / NIGHTS / boot_page_of(night.id, number)
        if not done.report or not done.version or path.exists():
            continue
        try:
            report = find_report(tree, f"{done.profile}@{done.version}", done.report)
        except InputError:
            continue
        place(path, render_page(report, read_logs(report_folder(tree, report))))


def save_cut_off(nights: Sequence[NightlyRun], folder: Path) -> None:
    """The pages of nights that are not finished and are over, and their months."""
    cut = [night for night in nights if not night.finished]
    for night in cut:
        save_page(night, folder, runs=False)
    for month in {month_of(night.id) for night in cut}:
        (folder / month_page_of(month)).unlink(missing_ok=True)


def save_months(night: NightlyRun, ids: Sequence[str], folder: Path, months: Sequence[str]) -> None:
    """The pages of `months` that are not there, and that of the night's own once it is over."""
    own = month_of(night.id)
    wanted = [month for month in months if not (folder / month_page_of(month)).is_file()]
    if night.finished and own not in wanted:
        wanted.append(own)
    for month in wanted:
        found = read_nights(folder, [each for each in ids if month_of(each) == month])
        nights = [*reversed(found.nights)]
        if month == own and night.finished:
            nights.insert(0, night)
        if nights:
            place(folder / month_page_of(month), render_month(month, nights))
