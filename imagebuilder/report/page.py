# SPDX-License-Identifier: Apache-2.0
"""A report as one self-contained HTML page, without scripts, fonts or network access.

It shows output of machines under test, so nothing is trusted: the template escapes every value,
control characters are removed, and the page's content security policy forbids scripts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.report.timeline import Span, find_timeline, ssh_after
from imagebuilder.report.types import (
    ORDER,
    REPORT,
    Check,
    Inference,
    MachineReport,
    Outcome,
    Report,
    Stage,
    Trial,
    TrialVerdict,
)
from imagebuilder.report.words import (
    counted,
    degradation,
    headline,
    place_of,
    speed,
    trial_checks,
)
from imagebuilder.templates import templates
from imagebuilder.ui import format_duration, format_size, format_time
from imagebuilder.untrusted import clean_lines

TEMPLATE = "page.html.j2"
LINES = 2000  # of the end of each log are shown
WIDTH = 2000  # characters of a line are shown
MARKS = {Outcome.PASSED: "✓", Outcome.FAILED: "✗", Outcome.SKIPPED: "–"}  # noqa: RUF001
# Stages are coloured by phase; these are the last stages of the phases.
PHASES = (
    ("firmware", Stage.RELEASE),
    ("kernel", Stage.SWITCH_ROOT),
    ("system", Stage.SSH),
    ("proof", Stage.REBOOT),
)


@dataclass(frozen=True)
class StageRow:
    """A stage of the timeline; `left` and `width` of its bar are percentages of the whole."""

    span: Span
    phase: str
    left: float
    width: float


@dataclass(frozen=True)
class MachinePage:
    """A machine with its timeline; `ssh` in seconds after power-on."""

    name: str
    mac: str
    address: str
    rows: tuple[StageRow, ...]
    ssh: float | None


@dataclass(frozen=True)
class ShownTrial:
    name: str
    verdict: TrialVerdict
    seconds: float
    machines: tuple[MachinePage, ...]


@dataclass(frozen=True)
class LogEnd:
    """The end of a log: `shown` of its `lines`."""

    anchor: str
    text: str
    lines: int
    shown: int

    @property
    def cut(self) -> bool:
        return self.shown < self.lines


@dataclass(frozen=True)
class PagePart:
    """A part of the page about a trial or machine, with its name."""

    name: str
    verdict: TrialVerdict | None = None
    checks: tuple[Check, ...] = ()
    inference: Inference | None = None

    @property
    def speed(self) -> str:
        return speed(self.inference) if self.inference else ""


@dataclass(frozen=True)
class Tile:
    name: str
    value: str


def render_page(report: Report, logs: Mapping[str, str]) -> str:
    """The page; `logs` are texts by file name, as read_logs() gives them."""
    text, _, _ = headline(report).partition(":")
    page = templates(Path(__file__).parent, html=True).get_template(TEMPLATE)
    return page.render(
        report=report,
        schema=REPORT.schema,
        headline=headline(report),
        short=text,
        tone=tone(report),
        started=format_time(report.started),
        failures=list(find_failures(report)),
        degradation=degradation(report),
        tiles=list(tiles(report)),
        trials=[show_trial(trial) for trial in report.trials],
        checked=list(machine_checks(report)),
        counted=counted(all_checks(report)),
        inferences=[PagePart(t.name, inference=t.inference) for t in report.trials if t.inference],
        facts=facts(report),
        files=list(files(report)),
        logs=show_logs(logs),
        marks=MARKS,
    )


def tone(report: Report) -> str:
    if not report.passed:
        return "failed"
    return "degraded" if report.degraded or not report.complete else "passed"


def find_failures(report: Report) -> Iterator[PagePart]:
    """What failed, with its name: the static checks, then ways to boot."""
    if report.failure and report.failure.stage is Stage.TREE:
        yield PagePart("The tree", report.failure)
    for trial in report.trials:
        if not trial.verdict.passed:
            yield PagePart(trial.name, trial.verdict)


def tiles(report: Report) -> Iterator[Tile]:
    for trial in report.trials:
        times = [ssh_after(machine) for machine in trial.machines]
        there = [time for time in times if time is not None]
        late = f"{max(there):.1f} s" if there and len(there) == len(times) else "no ssh"
        yield Tile(f"to ssh, {trial.name}", late)
    checks = all_checks(report)
    passed = sum(check.outcome is Outcome.PASSED for check in checks)
    ran = sum(check.outcome is not Outcome.SKIPPED for check in checks)
    yield Tile("checks passed", f"{passed} of {ran}")
    answers = [trial.inference for trial in report.trials if trial.inference]
    if answers:
        slowest = min(answers, key=lambda answer: answer.tokens / (answer.seconds or 1))
        yield Tile(f"tokens/s on {slowest.used}", speed(slowest).removesuffix(" tokens/s"))
    if "root" in report.sizes:
        yield Tile("root", format_size(report.sizes["root"]))


def all_checks(report: Report) -> tuple[Check, ...]:
    return (*report.static, *(c for trial in report.trials for c in trial_checks(trial)))


def machine_checks(report: Report) -> Iterator[PagePart]:
    for trial in report.trials:
        for machine in trial.machines:
            if machine.checks:
                name = f"{machine.name}, {trial.firmware}+{trial.root}, over ssh"
                yield PagePart(name, checks=machine.checks)


def show_trial(trial: Trial) -> ShownTrial:
    """A way to boot with a timeline for each machine, all on the same scale."""
    timelines = [find_timeline(trial, machine) for machine in trial.machines]
    whole = max((span.end for spans in timelines for span in spans), default=0.0)
    machines = (
        show_machine(machine, spans, whole)
        for machine, spans in zip(trial.machines, timelines, strict=True)
    )
    return ShownTrial(trial.name, trial.verdict, trial.seconds, tuple(machines))


def show_machine(machine: MachineReport, spans: tuple[Span, ...], whole: float) -> MachinePage:
    rows = tuple(show_span(span, whole) for span in spans)
    return MachinePage(machine.name, machine.mac, machine.address, rows, ssh_after(machine))


def show_span(span: Span, whole: float) -> StageRow:
    scale = 100 / whole if whole else 0.0
    return StageRow(
        span, phase(span.stage), round(span.start * scale, 2), round(span.seconds * scale, 2)
    )


def phase(stage: Stage) -> str:
    number = ORDER.index(stage)
    return next(name for name, last in PHASES if number <= ORDER.index(last))


def facts(report: Report) -> list[tuple[str, str]]:
    """Name and value of further facts."""
    found = [
        ("Profile", report.profile),
        ("Version", report.version),
        ("Started", format_time(report.started, to_second=True)),
        ("Took", format_duration(report.seconds)),
        (
            "Acceleration",
            f"{report.acceleration}: {report.why}" if report.why else report.acceleration,
        ),
        ("Host", place_of(report)),
        ("Ways", "; ".join(trial.name for trial in report.trials) or "none"),
        ("Tool", f"imagebuilder {report.tool}"),
    ]
    return [*found, ("Selection", f"-k {report.selection}")] if report.selection else found


def files(report: Report) -> Iterator[tuple[str, str, str]]:
    """What was booted: name, size, digest."""
    for name in dict.fromkeys([*report.sizes, *report.digests]):
        size = format_size(report.sizes[name]) if name in report.sizes else ""
        yield name, size, report.digests.get(name, "")


def show_logs(logs: Mapping[str, str]) -> dict[str, LogEnd]:
    """The ends of logs, by name; anchors are numbers, because machines choose the names."""
    return {
        name: show_log(f"log-{number}", clean_lines(text).splitlines())
        for number, (name, text) in enumerate(sorted(logs.items()))
    }


def show_log(anchor: str, lines: list[str], most: int = LINES) -> LogEnd:
    shown = [line[:WIDTH] for line in lines[-most:]]
    return LogEnd(anchor, "\n".join(shown), len(lines), len(shown))
