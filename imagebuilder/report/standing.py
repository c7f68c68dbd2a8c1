# SPDX-License-Identifier: Apache-2.0
"""Whether a release has booted, for the gate: a pure function of reports and digests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from imagebuilder.bootfiles import BOOT_FILES, EARLY
from imagebuilder.report.types import Outcome, Report, Stage, Trial, TrialVerdict
from imagebuilder.report.words import degradation
from imagebuilder.rootkind import KINDS, packed_file
from imagebuilder.untrusted import clean, clean_lines

# The files that a boot with each kind of root uses.
BOOTED = {kind: (*BOOT_FILES, "boot.ipxe", packed_file(kind) or "root") for kind in KINDS}
# Releases without it are tested without it.
OPTIONAL = frozenset((EARLY,))
CHECKED = ("root",)  # what the static checks read


class State(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    UNTESTED = "untested"
    OTHER_BYTES = "other bytes"  # other files were tested than those of the release
    OTHER_ROOT = "other root"  # it booted, but with another kind of root than its nodes


@dataclass(frozen=True)
class Standing:
    """The answer: `why` is a sentence, `report` the id of the report it is based on, if any.

    `machine` ran that test, at `time` (ISO 8601, UTC).
    """

    state: State
    why: str
    report: str = ""
    verdict: TrialVerdict | None = None
    machine: str = ""
    time: str = ""

    @property
    def tested(self) -> bool | None:
        """Whether it passed; None if unknown."""
        return {State.PASSED: True, State.FAILED: False}.get(self.state)


@dataclass(frozen=True)
class BootResult:
    """The newest complete result of one way to boot, or of the static checks."""

    report: Report
    verdict: TrialVerdict
    trial: Trial | None = None

    @property
    def name(self) -> str:
        return self.trial.name if self.trial else "the static checks"


def find_standing(reports: Sequence[Report], digests: Mapping[str, str], root: str) -> Standing:
    """Whether a release may become stable.

    `reports` are those of the release, oldest first; `digests` those of its bytes now, by the names
    of Report.digests; `root` is the kind of root of its nodes.  For each way to boot, and for the
    static checks, the newest complete report of exactly these bytes counts.  A missing digest, in
    the report or the release, never matches.
    """
    complete = [report for report in reports if report.complete]
    newest = find_newest(complete, digests)
    # 1. One failure is enough.
    for result in newest.values():
        if not result.verdict.passed:
            return failed(result)
    # 2. It must have booted with the root of its nodes.
    passed = [result for result in newest.values() if result.trial]
    same = [result for result in passed if result.trial and result.trial.root == root]
    if same:
        last = max(same, key=lambda result: complete.index(result.report))
        return rest_on(last, State.PASSED, passed_how(same, last))
    if passed:
        last = max(passed, key=lambda result: complete.index(result.report))
        roots = sorted({r.trial.root for r in passed if r.trial})
        why = f"it was tested with its root over {' and '.join(roots)}, but its nodes use {root}"
        return rest_on(last, State.OTHER_ROOT, why)
    # 3. No report counts; describe the closest one.
    if booted := [report for report in complete if report.trials]:
        what = ", ".join(find_others(booted[-1], digests, root))
        why = f"the newest report, {booted[-1].id}, is about other bytes: {what}"
        return Standing(State.OTHER_BYTES, why, booted[-1].id)
    if reports:
        return Standing(State.UNTESTED, unfinished(reports[-1]), reports[-1].id)
    return Standing(State.UNTESTED, "it has no boot test report")


def find_newest(reports: Sequence[Report], digests: Mapping[str, str]) -> dict[object, BootResult]:
    """The newest result for these bytes, by way to boot; None is the key of the static checks."""
    newest: dict[object, BootResult] = {}
    for report in reports:
        if same_bytes(report, digests, CHECKED):
            newest[None] = BootResult(report, tree_verdict(report))
        for trial in report.trials:
            if trial.root in BOOTED and same_bytes(report, digests, BOOTED[trial.root]):
                newest[trial.way] = BootResult(report, trial.verdict, trial)
    return newest


def same_bytes(report: Report, digests: Mapping[str, str], needed: Sequence[str]) -> bool:
    """Whether the report and the release have the same digests of all that is `needed`."""
    return not any(find_differing(report, digests, needed))


def find_differing(
    report: Report, digests: Mapping[str, str], needed: Iterable[str]
) -> Iterator[str]:
    """The names of `needed` whose digests in the report and in the release differ, or lack."""
    for name in needed:
        lacks = name not in digests and name not in OPTIONAL
        if lacks or report.digests.get(name) != digests.get(name):
            yield name


def find_others(report: Report, digests: Mapping[str, str], root: str) -> Iterator[str]:
    """The files on which a report and the release differ, in words."""
    kinds = [root, *(trial.root for trial in report.trials)]
    needed = dict.fromkeys(name for kind in kinds for name in BOOTED.get(kind, ()))
    for name in find_differing(report, digests, needed):
        yield f"{name} differs" if name in digests else f"the release has no {name}"


def tree_verdict(report: Report) -> TrialVerdict:
    if any(check.outcome is Outcome.FAILED for check in report.static):
        assert report.failure is not None  # failed static checks come first
        return report.failure
    return TrialVerdict(passed=True, stage=Stage.TREE)


def rest_on(result: BootResult, state: State, why: str) -> Standing:
    report = result.report
    return Standing(state, why, report.id, result.verdict, clean(report.machine), report.started)


def failed(result: BootResult) -> Standing:
    """The standing after a result that did not pass."""
    verdict = result.verdict
    where = f" in stage {verdict.stage}" if verdict.stage and result.trial else ""
    what = clean_lines(verdict.what).replace("\n", " ")
    why = f"{result.name} failed{where}: {what} (report {result.report.id})"
    return rest_on(result, State.FAILED, why)


def passed_how(results: Sequence[BootResult], last: BootResult) -> str:
    ways = ", ".join(result.name for result in results)
    less = degradation(last.report)
    return f"{ways} passed (report {last.report.id})" + (f"; degraded: {less}" if less else "")


def unfinished(report: Report) -> str:
    """Why a report does not open the gate although it may have passed."""
    if not report.complete:
        return f"the newest report, {report.id}, ran only checks that match -k {report.selection!r}"
    return f"the newest report, {report.id}, did not boot anything"
