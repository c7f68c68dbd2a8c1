# SPDX-License-Identifier: Apache-2.0
"""A report for a terminal: the verdict first, then where the time went and what failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from imagebuilder.digest import Json
from imagebuilder.report.timeline import Span, find_failed, find_spans, ssh_after
from imagebuilder.report.types import (
    ORDER,
    Check,
    Inference,
    MachineReport,
    Outcome,
    Report,
    Stage,
    Trial,
    TrialVerdict,
)
from imagebuilder.report.words import backend, counted, headline, place_of, speed, trial_checks
from imagebuilder.ui import (
    GREEN,
    RED,
    YELLOW,
    format_duration,
    format_size,
    format_time,
    paint,
    table,
)
from imagebuilder.untrusted import MOST_LONG, clean, clean_lines

BAR = 30  # characters for the time to ssh
SHORT = 12  # characters of a digest
HEADERS = ("report", "release", "started", "took", "ways", "result")


def render_report(report: Report, *, colour: bool, place: Path | None = None) -> str:
    """The whole report; `place` is the folder with the report and its logs."""
    blocks = [
        [paint(line_of(headline(report)), shade(report) if colour else ""), *facts(report)],
        list(failures(report)),
        [*ways(report), "", *stages(report)] if report.trials else [],
        list(check_lines(report)),
        list(inferences(report)),
        list(sizes(report)),
        [f"report  {place}"] if place else [],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def shade(report: Report) -> str:
    if not report.passed:
        return RED
    return YELLOW if report.degraded or not report.complete else GREEN


def facts(report: Report) -> list[str]:
    """What was tested, when, where and how."""
    when = format_time(report.started, to_second=True)
    how = f"{report.acceleration} ({report.why})" if report.why else report.acceleration
    return [
        line_of(f"{report.name}, {when}, took {format_duration(report.seconds)}"),
        line_of(f"{how} on {place_of(report)}, imagebuilder {report.tool}"),
    ]


def line_of(text: str) -> str:
    """Words of a report, which may come from another machine, as one line."""
    return clean(text, MOST_LONG)


def failures(report: Report) -> Iterator[str]:
    """Evidence and hint of everything that failed, except checks."""
    if report.failure and report.failure.stage is Stage.TREE:
        yield from failure("static checks", TrialVerdict(passed=False, hint=report.failure.hint))
    for trial in report.trials:
        if not trial.verdict.passed:
            yield from failure(trial.name, trial.verdict)


def failure(name: str, verdict: TrialVerdict) -> Iterator[str]:
    stage = f" in stage {verdict.stage}" if verdict.stage else ""
    what = f": {verdict.what}" if verdict.what else ""
    yield line_of(f"{name} failed{stage}{what}")
    yield from (
        f"  | {line}" for text in verdict.evidence for line in clean_lines(text).splitlines()
    )
    if verdict.hint:
        yield clean_lines(f"  hint: {verdict.hint}").replace("\n", "\n    ")
    if verdict.log:
        yield line_of(f"  log: {verdict.log}")


def ways(report: Report) -> list[str]:
    rows = [
        (
            line_of(trial.name),
            result(trial.verdict),
            *(f"ssh after {after}" if after else "no ssh" for after in [ssh_times(trial)]),
            f"checks: {counted(trial_checks(trial))}",
            f"took {format_duration(trial.seconds)}",
        )
        for trial in report.trials
    ]
    return table(rows).splitlines()


def result(verdict: TrialVerdict) -> str:
    """`passed`, or the stage that failed."""
    if verdict.passed:
        return "passed"
    return f"FAILED in {verdict.stage}" if verdict.stage else "FAILED"


def ssh_times(trial: Trial) -> str:
    """The time to ssh of each machine; empty if one never got there."""
    times = [ssh_after(machine) for machine in trial.machines]
    return ", ".join(format_duration(time) for time in times if time is not None)


def stages(report: Report) -> list[str]:
    """A table: the time of each stage on each machine, and its share of the time to ssh.

    With a single machine, each stage has a bar.
    """
    machines = [(trial, machine) for trial in report.trials for machine in trial.machines]
    spans = [{span.stage: span for span in find_spans(machine)} for _, machine in machines]
    failed = [t.verdict.stage if machine in find_failed(t) else None for t, machine in machines]
    there = {stage for by_stage in spans for stage in by_stage} | {
        stage for stage in failed if stage
    }
    if not there:
        return []
    single = len(machines) == 1
    rows = []
    for stage in (stage for stage in ORDER if stage in there):
        cells = [stage.value]
        for by_stage, bad in zip(spans, failed, strict=True):
            cells += stage_cells(by_stage.get(stage), failed=stage is bad)
        rows.append((*cells, bar(spans[0].get(stage)) if single else ""))
    heads = [text for trial, machine in machines for text in (title(trial, machine), "share")]
    return table(rows, ("stage", *heads, "")).splitlines()


def title(trial: Trial, machine: MachineReport) -> str:
    way = f"{trial.firmware}+{trial.root}"
    return line_of(f"{way} {machine.name}" if len(trial.machines) > 1 else way)


def stage_cells(span: Span | None, *, failed: bool) -> tuple[str, str]:
    if failed:
        return "FAILED", ""
    if span is None:
        return "", ""
    return f"{span.seconds:7.1f} s", "" if span.share is None else f"{span.share:5.0%}"


def bar(span: Span | None) -> str:
    """A bar for a stage, on a scale of the time to ssh."""
    if span is None or not span.share:
        return ""
    before = round(span.start / span.seconds * span.share * BAR)
    return " " * before + "#" * max(1, round(span.share * BAR))


def check_lines(report: Report) -> Iterator[str]:
    """The number of passed checks, and the others."""
    if report.static:
        yield f"static checks: {counted(report.static)}"
    yield from unhappy(report.static)
    for trial in report.trials:
        for machine in trial.machines:
            if machine.checks:
                yield f"boot checks on {title(trial, machine)}: {counted(machine.checks)}"
            yield from unhappy(machine.checks)


def unhappy(checks: Sequence[Check]) -> Iterator[str]:
    for check in (check for check in checks if check.outcome is Outcome.FAILED):
        yield line_of(f"  FAILED  {check.title}")
        yield from (f"  | {line}" for line in clean_lines(check.message).splitlines())
    for check in (check for check in checks if check.outcome is Outcome.SKIPPED):
        first = clean_lines(check.message).partition("\n")[0]
        yield line_of(f"  skipped {check.title}") + (f": {first}" if first else "")


def inferences(report: Report) -> Iterator[str]:
    for trial in report.trials:
        if trial.inference:
            yield line_of(f"inference, {trial.name}: {told(trial.inference)}")
            if trial.inference.placed:
                yield line_of(f"  layers: {trial.inference.placed}")


def told(inference: Inference) -> str:
    over = f" of {', '.join(inference.over)}" if len(inference.over) > 1 else ""
    less = f" (degraded: the profile expects {inference.expected})" if inference.degraded else ""
    much = f"{inference.tokens} tokens in {format_duration(inference.seconds)}"
    lone = "; the profile's service does not support this processor" if inference.refused else ""
    return f"on {backend(inference.used)}{over}{less}, {much} ({speed(inference)}){lone}"


def sizes(report: Report) -> Iterator[str]:
    names = dict.fromkeys([*report.sizes, *report.digests])
    digests = {name: line_of(report.digests.get(name, "")[:SHORT]) for name in names}
    rows = [(line_of(name), size_of(report.sizes, name), digests[name]) for name in names]
    yield from clean_lines(table(rows)).splitlines()


def size_of(found: Mapping[str, int], name: str) -> str:
    return f"{format_size(found[name]) if name in found else '':>8}"


def report_row(report: Report) -> tuple[str, ...]:
    return (
        report.id,
        report.name,
        format_time(report.started),
        format_duration(report.seconds),
        line_of("; ".join(trial.name for trial in report.trials)) or "none",
        line_of(headline(report)),
    )


def report_summary(report: Report) -> dict[str, Json]:
    return {
        "id": report.id,
        "profile": report.profile,
        "version": report.version,
        "started": report.started,
        "machine": report.machine or None,
        "seconds": report.seconds,
        "complete": report.complete,
        "passed": report.passed,
        "degraded": report.degraded,
        "stage": report.failure.stage if report.failure else None,
        "ways": [trial.name for trial in report.trials],
        "headline": headline(report),
    }
