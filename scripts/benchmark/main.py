# SPDX-License-Identifier: Apache-2.0
"""The command line of the benchmark: which rows, where, and what comes out."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from imagebuilder.build import check_root
from imagebuilder.errors import ImagebuilderError, InputError, WorkError
from imagebuilder.lock.storage import make_folder
from imagebuilder.store.workplace import remove_tree
from imagebuilder.ui import Ui
from scripts.benchmark.bed import CHECKOUT, Asked, Bed, check_space
from scripts.benchmark.facts import host_facts
from scripts.benchmark.figures import (
    GOALS,
    Figure,
    Report,
    all_met,
    parse_report,
    render_report,
    report_json,
)
from scripts.benchmark.rows import LARGE, PLAIN, ROWS, SMALL, clean, measure_cold

NAMES = tuple(goal.row for goal in GOALS)
# What the rows of one profile, and of both, need at most at one time, in bytes.
SPACE_SMALL, SPACE_BOTH = 8 * 10**9, 30 * 10**9
DEFAULT_OUTPUT = CHECKOUT / "build/bench"


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measure imagebuilder against its goals; needs root, and 30 GB of disk.",
        epilog="ends with 0 when every goal is reached, 1 when one is not, 3 on an unfit host",
    )
    parser.add_argument("--rows", default=",".join(NAMES), help=f"of {', '.join(NAMES)}")
    parser.add_argument("--runs", type=int, default=3, help="of what takes long (3)")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, help="folder for the result")
    parser.add_argument("--small", action="store_true", help=f"leave {LARGE} out: 8 GB are enough")
    parser.add_argument("--pool", type=Path, help="a filled pool (debs/, wheels/) to begin with")
    parser.add_argument("--work", type=Path, help="where to work; stays, with its pool")
    parser.add_argument(
        "--render",
        type=Path,
        help="only write the page of this JSON, or of the goals if there is no such file",
    )
    return parser.parse_args(argv)


def parse_rows(text: str) -> tuple[str, ...]:
    """The rows to measure.  Raises InputError for one there is not, or for none."""
    wanted = tuple(name.strip() for name in text.split(","))
    if unknown := [name for name in wanted if name not in NAMES]:
        raise InputError(f"no row {', '.join(unknown)!r}", hint=f"rows are {', '.join(NAMES)}")
    return wanted


@contextmanager
def workbench(given: Path | None) -> Iterator[Path]:
    """The folder to work in: the person's, or one that is gone at the end."""
    if given:
        given.mkdir(parents=True, exist_ok=True)
        yield given.resolve()
        return
    # /tmp is often in memory; an overlayfs and hard links of gigabytes belong on a disk.
    top = Path(tempfile.mkdtemp(prefix="imagebuilder-bench-", dir="/var/tmp"))
    # apt reads archives as a user of its own.
    top.chmod(0o755)
    try:
        yield top
    finally:
        remove_tree(top)


def measure(bed: Bed, asked: Asked, names: Sequence[str]) -> Iterator[Figure]:
    """Every row of `names`; one that fails does not keep the others from being measured."""
    engines = [name for name in PLAIN if name in names]
    if engines:
        try:
            yield from measure_cold(bed, asked, engines)
        except WorkError as error:
            yield from (Figure(engine, SMALL, fault=str(error)) for engine in engines)
    for name, row in ROWS.items():
        if name not in names:
            continue
        try:
            yield from row(bed, asked)
        except WorkError as error:
            yield Figure(name, asked.largest, fault=str(error))
        finally:
            clean(bed, name)


def write(report: Report | None, folder: Path) -> None:
    """The JSON and its page, for the owner of the folder; the page alone while there is none."""
    make_folder(folder)
    owner = folder.stat()
    texts = {"benchmarks.md": render_report(report)}
    if report:
        texts["benchmarks.json"] = report_json(report)
    for name, text in texts.items():
        path = folder / name
        path.write_text(text)
        os.chown(path, owner.st_uid, owner.st_gid)


def find_report(path: Path) -> Report | None:
    """The report at `path`, None when nothing has been measured.  Raises InputError."""
    try:
        return parse_report(path.read_text()) if path.exists() else None
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"not a report: {error}", where=os.fspath(path)) from error


def run_all(given: argparse.Namespace, names: Sequence[str]) -> Report:
    """Measure and write; what is measured is written after every row, so that it is not lost."""
    ui = Ui.for_stream(sys.stderr, os.environ)
    profiles = (SMALL,) if given.small else (SMALL, LARGE)
    uses_large = not given.small and not {"file", "memory", "same"}.isdisjoint(names)
    with workbench(given.work) as top:
        bed = Bed(top, ui)
        check_space(top, SPACE_BOTH if uses_large else SPACE_SMALL)
        facts = host_facts(top)
        bed.prepare(profiles if uses_large else profiles[:1], given.pool)
        date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        figures: tuple[Figure, ...] = ()
        for figure in measure(bed, Asked(given.runs, profiles), names):
            figures = (*figures, figure)
            report = Report(date, facts, bed.facts(), figures)
            write(report, given.output)
    return report


def main() -> int:
    """Parse, measure, print the page."""
    given = parse_arguments(sys.argv[1:])
    try:
        if given.render:
            write(find_report(given.render), given.output)
            return 0
        names = parse_rows(given.rows)
        if given.runs < 1:
            raise InputError("--runs must be 1 or more")
        check_root()
        report = run_all(given, names)
    except ImagebuilderError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    print(render_report(report))
    print(f"written to {given.output}", file=sys.stderr)
    return 0 if all_met(report.figures) else 1
