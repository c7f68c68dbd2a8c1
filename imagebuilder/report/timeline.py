# SPDX-License-Identifier: Apache-2.0
"""The time of each stage of a boot, and its share of the time to ssh."""

from __future__ import annotations

from dataclasses import dataclass, replace

from imagebuilder.report.types import MachineReport, Stage, Trial


@dataclass(frozen=True)
class Span:
    """The time of a stage: from `start`, for `seconds`.

    `share` is of the time from power-on to ssh, between 0 and 1; None after ssh, or if ssh was
    never reached.  The stage that failed is not `reached`; its time ends with the trial.
    """

    stage: Stage
    start: float
    seconds: float
    share: float | None = None
    reached: bool = True

    @property
    def end(self) -> float:
        """Seconds after power-on."""
        return self.start + self.seconds


def ssh_after(machine: MachineReport) -> float | None:
    """Seconds from power-on until ssh answered; None if it never did."""
    found = (reached.seconds for reached in machine.stages if reached.stage is Stage.SSH)
    return next(found, None)


def find_spans(machine: MachineReport) -> tuple[Span, ...]:
    """The stages that a machine passed.

    Stages are detected in several logs, so one may be detected a moment before its predecessor:
    such a stage has no time.
    """
    total, now = ssh_after(machine), 0.0
    spans: list[Span] = []
    for reached in machine.stages:
        seconds = max(0.0, reached.seconds - now)
        counts = bool(total) and now < (total or 0.0) and reached.seconds <= (total or 0.0)
        spans.append(
            Span(reached.stage, now, seconds, seconds / total if total and counts else None)
        )
        now += seconds
    return tuple(spans)


def find_timeline(trial: Trial, machine: MachineReport) -> tuple[Span, ...]:
    """The stages that a machine passed, and the one that failed.

    The failed stage ends with the trial, or before it if other stages followed (failed checks).
    """
    spans, bad = find_spans(machine), trial.verdict.stage
    if bad is None or machine not in find_failed(trial):
        return spans
    if any(span.stage is bad for span in spans):
        return tuple(replace(s, reached=False) if s.stage is bad else s for s in spans)
    now = spans[-1].end if spans else 0.0
    return (*spans, Span(bad, now, max(0.0, trial.seconds - now), reached=False))


def find_failed(trial: Trial) -> tuple[MachineReport, ...]:
    """The machines that a failed verdict is about: the one whose console it cites, or those that
    did not reach the stage, or all."""
    verdict = trial.verdict
    if verdict.passed:
        return ()
    cited = tuple(m for m in trial.machines if m.console and m.console == verdict.log)
    short = tuple(
        m for m in trial.machines if verdict.stage not in {reached.stage for reached in m.stages}
    )
    return cited or short or trial.machines
