# SPDX-License-Identifier: Apache-2.0
"""Reports in the tree: TREE/reports/PROFILE/VERSION/ID/, complete or absent.

    ID/report.json    the report; load_report() reads it
    ID/*.log          console-NODE.log, dnsmasq.log, ...
    .new-ID/          an unfinished report; a lock on the folder shows that its command still runs
    .old-ID/          a report that is being removed

A rename gives a report its name once it is complete on the disk, and takes the name away before its
files are removed.  Leftovers of a killed command begin with a dot; the next command removes them.
"""

from __future__ import annotations

import os
import shutil
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from imagebuilder.errors import Fault, InputError, WorkError
from imagebuilder.files import make_folder, move_away, move_in, sync_all
from imagebuilder.folders import folders_in
from imagebuilder.locks import file_lock, is_locked
from imagebuilder.plain import read_end
from imagebuilder.report.types import REPORT, Report
from imagebuilder.tree import ReleaseName, Tree
from imagebuilder.untrusted import clean_lines

FILE = "report.json"
NEW, OLD = ".new-", ".old-"
LOCK = ".lock"  # of the reports of a release
KEPT = 10
LOG_BYTES = 1 << 20  # of the end of each log are read


@contextmanager
def begin_report(tree: Tree, release: ReleaseName, id: str) -> Iterator[Path]:  # noqa: A002
    """A folder for the logs of an unfinished report, which readers ignore.

    save_report() turns it into a report; otherwise it is removed at the end.  Raises WorkError if a
    report with this id exists, and OSError.
    """
    if Path(id).name != id or id.startswith("."):
        raise InputError("is not a valid id", where=repr(id), hint="use letters and digits")
    top = tree.reports(release)
    make_folder(top)
    staged = top / f"{NEW}{id}"
    with ExitStack() as mine:
        with file_lock(top / LOCK):
            sweep(top)
            if staged.exists() or (top / id).exists():
                raise WorkError("a report with this id exists", where=os.fspath(top / id))
            staged.mkdir(mode=0o700)  # nobody else may lock it
            mine.enter_context(file_lock(staged / LOCK))
        try:
            yield staged
        finally:
            if staged.exists():
                shutil.rmtree(staged)


def sweep(top: Path) -> None:
    """Remove leftovers of killed commands; the caller holds the lock of `top`."""
    for path in top.iterdir():
        if path.name.startswith(OLD) or (path.name.startswith(NEW) and not is_locked(path / LOCK)):
            shutil.rmtree(path)


def save_report(tree: Tree, report: Report, staged: Path, *, sent: bool = False) -> Path:
    """Make `staged` the report's folder, and return it.

    Records which reports were there before, unless the report was `sent` by another machine.  Keeps
    the newest older reports and those that the gate needs, see find_kept().  Raises OSError; then
    no report was saved.
    """
    top = tree.reports(report.release)
    assert staged == top / f"{NEW}{report.id}", "begin_report() made another folder"
    if not sent:
        report = replace(report, after=tuple(folders_in(top)))
    (staged / FILE).write_text(REPORT.render(report), encoding="utf-8")
    files = [path for path in staged.iterdir() if path.name != LOCK]
    for path in files:
        path.chmod(0o644)
    place = top / report.id
    with file_lock(top / LOCK):
        (staged / LOCK).unlink()
        staged.chmod(0o755)
        sync_all((*files, staged))
        move_in(staged, place)
        prune(top)
    return place


def prune(top: Path) -> None:
    """Remove the unneeded reports of a release; the caller holds the lock of `top`.

    Keeps unreadable reports for a person to inspect.
    """
    reports = read_reports(top).reports
    kept = find_kept(reports)
    for report in reports:
        if report.id not in kept:
            move_away(top / report.id, top / f"{OLD}{report.id}")
            shutil.rmtree(top / f"{OLD}{report.id}")


def find_kept(reports: Sequence[Report]) -> set[str]:
    """The ids of the reports to keep; `reports` oldest first.

    They are the newest ten complete ones and the newest ten others, the newest complete one that
    passed, and those that find_standing() needs: for the same bytes, the newest complete one of
    each way to boot and of the static checks.  So many runs of one way, or with -k, never displace
    the failure of another way.
    """
    complete = [report for report in reports if report.complete]
    partial = [report for report in reports if not report.complete]
    kept = {report.id for report in (*complete[-KEPT:], *partial[-KEPT:])}
    kept |= {report.id for report in [r for r in complete if r.passed][-1:]}
    newest: dict[object, str] = {}
    for report in complete:
        bytes_ = tuple(sorted(report.digests.items()))
        for way in ("static", *(trial.way for trial in report.trials)):
            newest[way, bytes_] = report.id
    return kept | set(newest.values())


@dataclass(frozen=True)
class FoundReports:
    """The reports of a release, oldest first, and what is wrong with unreadable ones."""

    reports: tuple[Report, ...]
    faults: tuple[Fault, ...] = ()


def read_reports(top: Path) -> FoundReports:
    reports: list[Report] = []
    faults: list[Fault] = []
    for name in folders_in(top):
        try:
            reports.append(load_report(top / name))
        except InputError as error:
            if (top / name).is_dir():  # otherwise it was just removed
                faults.extend(error.faults)
    return FoundReports(in_order(reports), tuple(faults))


def in_order(reports: Iterable[Report]) -> tuple[Report, ...]:
    """These reports, oldest first: by their ids, which begin with the time.

    But a report is older than every report that its machine saved after it: the clock may have been
    wrong, so a report may be dated in the future.
    """
    by_key = {(report.id, report.version): report for report in reports}
    # How many reports were saved after it and are not placed yet.
    later = Counter((name, each.version) for each in by_key.values() for name in set(each.after))
    keys = sorted(by_key)
    free = [key for key in keys if not later[key]]
    newest_first: dict[tuple[str, str], Report] = {}
    while len(newest_first) < len(by_key):
        # Two that name each other were not saved by one machine: then the ids decide.
        key = free.pop() if free else next(k for k in reversed(keys) if k not in newest_first)
        if key in newest_first:
            continue
        newest_first[key] = by_key[key]
        for older in ((name, key[1]) for name in set(by_key[key].after)):
            later[older] -= 1
            if older in by_key and not later[older]:
                insort(free, older)
    return tuple(reversed(newest_first.values()))


def load_report(folder: Path) -> Report:
    """The report in a folder of the tree.

    Raises InputError if it is damaged, or is in the folder of another report.
    """
    path = folder / FILE
    report = REPORT.load(path)
    place = Path(report.profile, report.version, report.id)
    if folder.absolute().parts[-3:] != place.parts:
        raise InputError(f"belongs to report {place}", where=os.fspath(path), hint="move it there")
    return report


def find_reports(tree: Tree, release: ReleaseName) -> tuple[Report, ...]:
    """The readable reports of a release, oldest first."""
    return read_reports(tree.reports(release)).reports


def list_reports(tree: Tree, name: str) -> FoundReports:
    """The reports of PROFILE or PROFILE@VERSION (a unique part is enough), oldest first.

    Raises InputError that lists the versions with reports if this one has none.
    """
    profile, _, version = name.partition("@")
    top = tree.path / "reports"
    tested = {
        p: [v for v in folders_in(top / p) if folders_in(top / p / v)] for p in folders_in(top)
    }
    versions = tested.get(profile, [])
    fitting = [v for v in versions if v == version] or [v for v in versions if version in v]
    if not fitting or (version and len(fitting) > 1):
        there = versions or [p for p in tested if tested[p]]
        raise InputError(
            "matches more than one version" if fitting else "has no boot test report",
            where=name,
            hint=f"these have reports: {', '.join(there)}"
            if there
            else f"run imagebuilder test {profile} to make one",
        )
    found = [read_reports(tree.reports(ReleaseName(profile, v))) for v in fitting]
    return FoundReports(
        in_order(report for each in found for report in each.reports),
        tuple(fault for f in found for fault in f.faults),
    )


def find_report(tree: Tree, name: str, id: str = "") -> Report:  # noqa: A002
    """The newest report of PROFILE or PROFILE@VERSION, or the one whose id has `id` in it.

    Raises InputError that lists the reports, or says why none of them can be read.
    """
    found = list_reports(tree, name)
    fitting = [r for r in found.reports if r.id == id] or [r for r in found.reports if id in r.id]
    if not found.reports:
        raise InputError.of(found.faults)
    if not fitting or (id and len(fitting) > 1):
        raise InputError(
            f"{'more than one' if fitting else 'no'} report has the id {id!r}",
            where=name,
            hint=f"available: {', '.join(r.id for r in fitting or found.reports)}",
        )
    return fitting[-1]


def report_folder(tree: Tree, report: Report) -> Path:
    return tree.reports(report.release) / report.id


def read_logs(folder: Path) -> dict[str, str]:
    """The logs of a report by file name (the ends of long ones), without control characters.

    Leaves out unreadable logs, and does not follow links.
    """
    found = {path.name: read_log(path) for path in sorted(folder.glob("*.log"))}
    return {name: text for name, text in found.items() if text is not None}


def read_log(path: Path) -> str | None:
    """The end of a log without control characters; None if unreadable or a link."""
    try:
        return clean_lines(read_end(path, LOG_BYTES, follow=False).decode(errors="replace"))
    except OSError:
        return None
