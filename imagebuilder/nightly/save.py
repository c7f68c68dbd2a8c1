# SPDX-License-Identifier: Apache-2.0
"""The folder of nightly runs: their records, and pages for people, each file complete or absent.

    FOLDER/index.html               the history, newest run first
    FOLDER/latest.json              a copy of the nights/ID.json that was saved last
    FOLDER/month-2026-11.html       a month
    FOLDER/nights/ID.json           the record of a run, from which everything else is made
    FOLDER/nights/ID.html           its page
    FOLDER/nights/ID.boot-N.html    the boot test of its profile number N

A run is saved when it begins, after each profile and at its end.  A run that is neither finished
nor being saved was cut off: its page says so once the next run has begun.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from imagebuilder.errors import HostError, InputError
from imagebuilder.files import make_folder, place_file
from imagebuilder.nightly.history import (
    LATEST,
    RUNS_FOLDER,
    SUFFIX,
    find_ids,
    is_id,
    month_of,
    read_runs,
)
from imagebuilder.nightly.page import (
    boot_page_of,
    month_page_of,
    page_of,
    render_index,
    render_month,
    render_run_page,
)
from imagebuilder.nightly.types import NIGHTLY_RUN, NightlyRun
from imagebuilder.report.page import render_page
from imagebuilder.report.save import find_report, read_log, read_logs, report_folder
from imagebuilder.tree import Tree

INDEX = "index.html"
SHOWN = 60  # runs in the history; months show the others
KEPT = 400  # runs


def save_run(run: NightlyRun, folder: Path, tree: Tree | None = None) -> Path:
    """Write the run, its page and the history; returns its page.

    With `tree`, the pages of its boot tests are kept too.  The caller holds the lock of
    single_run().  Raises InputError for an invalid id, HostError if a file cannot be written.
    """
    if not is_id(run.id):
        raise InputError("is not a valid id of a run", where=repr(run.id))
    try:
        return save_all(run, folder, tree)
    except OSError as error:
        where = os.fspath(error.filename or folder)
        raise HostError(f"cannot be written: {error.strerror}", where=where) from error


def save_all(run: NightlyRun, folder: Path, tree: Tree | None) -> Path:
    """Write the same files.  Raises OSError."""
    make_folder(folder / RUNS_FOLDER)
    record = folder / RUNS_FOLDER / f"{run.id}{SUFFIX}"
    begins = not record.exists()
    if begins:
        sweep(folder)
    # 1. The record, from which everything else can be rebuilt.
    text = NIGHTLY_RUN.render(run)
    place(record, text)
    place(folder / LATEST, text)
    # 2. Its page, with the boot tests that it links to.
    if tree:
        save_boot_tests(run, folder, tree)
    page = save_page(run, folder, running=not run.finished)
    # 3. The history.
    ids = [each for each in find_ids(folder) if each != run.id]
    found = read_runs(folder, ids[1 - SHOWN :])
    runs = (run, *reversed(found.runs))
    if begins:
        save_cut_off(runs[1:], folder)
    months = sorted({month_of(each) for each in ids[: 1 - SHOWN]}, reverse=True)
    save_months(run, ids, folder, months)
    running = not run.finished
    place(folder / INDEX, render_index(runs, faults=found.faults, months=months, running=running))
    return page


def place(path: Path, text: str) -> None:
    """Write a file that every user may read, and sync it."""
    place_file(path, text.encode(errors="replace"))


def sweep(folder: Path) -> None:
    """Remove what killed commands left, and old runs."""
    for path in (*folder.glob(".*.new"), *(folder / RUNS_FOLDER).glob(".*.new")):
        path.unlink()
    ids = find_ids(folder)
    gone = ids[: 1 - KEPT]
    for each in gone:
        for path in (folder / RUNS_FOLDER).glob(f"{each}.*"):
            path.unlink()
        (folder / month_page_of(month_of(each))).unlink(missing_ok=True)


def save_page(run: NightlyRun, folder: Path, *, running: bool) -> Path:
    logs = {
        number: text
        for number, done in enumerate(run.profiles)
        if done.log and Path(done.log).is_file() and (text := read_log(Path(done.log)))
    }
    boots = {
        number: name
        for number in range(len(run.profiles))
        if (folder / RUNS_FOLDER / (name := boot_page_of(run.id, number))).is_file()
    }
    page = folder / RUNS_FOLDER / page_of(run.id)
    place(page, render_run_page(run, running=running, logs=logs, boots=boots))
    return page


def save_boot_tests(run: NightlyRun, folder: Path, tree: Tree) -> None:
    """Write missing pages of the boot tests; unreadable reports get none."""
    for number, done in enumerate(run.profiles):
        path = folder / RUNS_FOLDER / boot_page_of(run.id, number)
        if not done.report or not done.version or path.exists():
            continue
        try:
            report = find_report(tree, f"{done.profile}@{done.version}", done.report)
        except InputError:
            continue
        place(path, render_page(report, read_logs(report_folder(tree, report))))


def save_cut_off(runs: Sequence[NightlyRun], folder: Path) -> None:
    """Write the pages of runs that were cut off, and their months."""
    cut = [run for run in runs if not run.finished]
    for run in cut:
        save_page(run, folder, running=False)
    for month in {month_of(run.id) for run in cut}:
        (folder / month_page_of(month)).unlink(missing_ok=True)


def save_months(run: NightlyRun, ids: Sequence[str], folder: Path, months: Sequence[str]) -> None:
    """Write missing pages of `months`, and that of the run's own month once it is over."""
    this_month = month_of(run.id)
    wanted = [month for month in months if not (folder / month_page_of(month)).is_file()]
    if run.finished and this_month not in wanted:
        wanted.append(this_month)
    for month in wanted:
        found = read_runs(folder, [each for each in ids if month_of(each) == month])
        runs = [*reversed(found.runs)]
        if month == this_month and run.finished:
            runs.insert(0, run)
        if runs:
            place(folder / month_page_of(month), render_month(month, runs))
