# SPDX-License-Identifier: Apache-2.0
"""Boot tests that are sent with a release: `publish --to` sends those of the sender's own tree.

    reports/PROFILE/VERSION/*  ->  one JSON object a line, over ssh  ->  reports of the other tree

A report says which bytes were booted.  The receiver compares them with its own bytes, and keeps a
report only if they are the same.  So no report opens the gate for another release, whoever wrote
it.  What it says about these bytes is trusted, because only root can publish here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import IO, Annotated

from pydantic import AfterValidator

from imagebuilder.decode import FEW_VALUES, MAX_BYTES, decode_box, parse_object
from imagebuilder.errors import InputError
from imagebuilder.folders import folders_in
from imagebuilder.publish.channel.standing import judge
from imagebuilder.publish.find import changing, find_release
from imagebuilder.report.save import (
    begin_report,
    find_reports,
    read_logs,
    report_folder,
    save_report,
)
from imagebuilder.report.standing import State
from imagebuilder.report.types import REPORT, Report
from imagebuilder.rootkind import KINDS
from imagebuilder.tree import ReleaseName, Tree
from imagebuilder.ui import Ui
from imagebuilder.untrusted import fit

# As `test` names them, when it begins: the name begins with the time, by which they are ordered.
ID = re.compile(r"(?P<begun>\d{8}T\d{6}Z)(-\d{1,10})?")
BEGUN = "%Y%m%dT%H%M%SZ"
AHEAD = timedelta(days=1)  # that the clock of a sender may be wrong
MOST_LINE = MAX_BYTES // 2  # it may get longer as it is saved
MOST_SENT = 4 * MAX_BYTES
MOST_LOGS = 16 << 20  # bytes; of each log the sender reads the end alone (read_logs())
MOST_REPORTS = 100  # of a release
LOG_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z+._-]{0,63}\.log")
# The states that are about exactly these bytes.
TELLING = (State.PASSED, State.FAILED, State.OTHER_ROOT)


@dataclass(frozen=True)
class Carried:
    """A report in transit: the report as JSON, and its logs by file name."""

    report: dict[str, object]
    logs: dict[str, str]


# Words of another machine.
Line = Annotated[str, AfterValidator(fit)]


@dataclass(frozen=True)
class KeptReports:
    """The ids of the reports that were kept, and why others were not."""

    kept: tuple[Line, ...]
    refused: tuple[Line, ...]


def list_ids(tree: Tree, release: ReleaseName) -> tuple[str, ...] | None:
    """The ids of a tree's reports of a release; None if it does not have the release."""
    if not tree.release(release).is_dir():
        return None
    return tuple(folders_in(tree.reports(release)))


def find_carried(tree: Tree, release: ReleaseName, known: Collection[str]) -> list[Report]:
    """A tree's complete reports of a release that the other side lacks."""
    found = find_reports(tree, release)
    return [report for report in found if report.complete and report.id not in known]


def pack_reports(tree: Tree, reports: Sequence[Report]) -> bytes:
    """The lines that take_reports() reads."""
    carried = (
        {"report": REPORT.encode(report), "logs": read_logs(report_folder(tree, report))}
        for report in reports
    )
    return "".join(f"{json.dumps(one)}\n" for one in carried).encode()


def take_reports(tree: Tree, name: str, stream: IO[bytes], ui: Ui) -> KeptReports:
    """Keep the reports in `stream` that are about the bytes of `profile@version` in this tree.

    Raises InputError if the release does not exist, or for lines that are no reports.
    """
    kept: list[str] = []
    refused: list[str] = []
    lines = read_lines(stream)  # a sender that is slow keeps nobody from changing the tree
    with changing(tree, ui):
        release = find_release(tree, name)
        for line in lines:
            told = parse_object(line, "report", most=FEW_VALUES)
            carried = decode_box(Carried, told, "report")
            report = REPORT.decode(carried.report, "report")
            if why := find_objection(tree, release, report, carried.logs):
                refused.append(f"rejected boot test {report.id!r}: {why}")
            elif keep(tree, report, carried.logs):
                kept.append(report.id)
    return KeptReports(tuple(kept), tuple(refused))


def read_lines(stream: IO[bytes]) -> list[bytes]:
    """Raises InputError if there is too much to be held in memory."""
    lines: list[bytes] = []
    size = 0
    hint = "remove reports with long logs from the sender's tree, and publish again"
    while line := stream.readline(MOST_LINE + 1):
        size += len(line)
        if len(line) > MOST_LINE:
            what = f"is longer than {MOST_LINE >> 20} MiB"
            raise InputError(what, where=f"report {len(lines) + 1}", hint=hint)
        if size > MOST_SENT:
            what = f"are longer than {MOST_SENT >> 20} MiB together"
            raise InputError(what, where="reports", hint=hint)
        lines.append(line)
    return lines


def find_objection(
    tree: Tree, release: ReleaseName, report: Report, logs: Mapping[str, str]
) -> str:
    """Why a report must not be kept for this release; empty if it may."""
    if not is_id(report.id) or not all(map(LOG_NAME.fullmatch, logs)):
        return "imagebuilder test gives neither reports nor logs such a name"
    if sum(map(len, logs.values())) > MOST_LOGS:
        return f"its logs are longer than {MOST_LOGS >> 20} MiB"
    if unknown := {trial.root for trial in report.trials} - set(KINDS):
        return f"there is no root of the kind {min(unknown)!r}"
    if len(folders_in(tree.reports(release))) >= MOST_REPORTS:
        return f"this tree has {MOST_REPORTS} reports of the release"
    if (report.profile, report.version) != (release.profile, release.version):
        return f"it is about {report.name!r}"
    standing = judge(tree, release, [report])
    return "" if standing.state in TELLING else standing.why


def is_id(text: str) -> bool:
    """Whether `test` may have given a report this name; AHEAD is for its clock."""
    match = ID.fullmatch(text)
    try:
        begun = datetime.strptime(match["begun"], BEGUN).replace(tzinfo=UTC) if match else None
    except ValueError:
        return False
    return begun is not None and begun < datetime.now(UTC) + AHEAD


def keep(tree: Tree, report: Report, logs: dict[str, str]) -> bool:
    """Save a report with its logs; whether it was not there yet."""
    if (tree.reports(report.release) / report.id).exists():
        return False
    with begin_report(tree, report.release, report.id) as staged:
        for log, text in logs.items():
            (staged / log).write_text(text, encoding="utf-8")
        save_report(tree, report, staged, sent=True)
    return True
