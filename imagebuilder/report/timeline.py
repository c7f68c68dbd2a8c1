# SPDX-License-Identifier: Apache-2.0
"""How long each stage of a boot took, and which share of the time to ssh that is."""

from __future__ import annotations

from dataclasses import dataclass, replace

from imagebuilder.report.types import MachineReport, Stage, Trial


@dataclass(frozen=True)
class Span:
    """The way to a stage: from `start`, for `seconds`.

    `share` is of the time from power-on to ssh, between 0 and 1; None after ssh, and where ssh was
    never reached.  The stage that failed is not `reached`; its seconds go on to the end of the
    trial.
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
    """Seconds from power-on until somebody could log in; None if nobody could."""
    found = (reached.seconds for reached in machine.stages if reached.stage is Stage.SSH)
    return next(found, None)


def find_spans(machine: MachineReport) -> tuple[Span, ...]:
    """The stages a machine passed.

    Stages are seen in several logs, so one may be noticed a moment before the one that led to it:
    such a stage took no time.
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
    """The stages a machine passed and the one that failed on it.

    That one ends with the trial, or, where things went on after it (checks that fail), when it did.
    """
    spans, bad = find_spans(machine), trial.verdict.stage
    if bad is None or machine not in find_failed(trial):
        return spans
    if any(span.stage is bad for span in spans):
        return tuple(replace(s, reached=False) if s.stage is bad else s for s in spans)
    now = spans[-1].end if spans else 0.0
    return (*spans, Span(bad, now, max(0.0, trial.seconds - now), reached=False))


def find_failed(trial: Trial) -> tuple[MachineReport, ...]:
    """The machines that a failed verdict is about: the one whose console it cites, else those that
    did not reach the stage, else all."""
    verdict = trial.verdict
    if verdict.passed:
        return ()
    cited = tuple(m for m in trial.machines if m.console and m.console == verdict.log)
    short = tuple(
        m for m in trial.machines if verdict.stage not in {reached.stage for reached in m.stages}
    )
    return cited or short or trial.machines
