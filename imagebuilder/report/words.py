# SPDX-License-Identifier: Apache-2.0
"""Describe a report: its headline, what it computed on, its checks."""

from __future__ import annotations

from imagebuilder.report.types import CPU, Check, Inference, Outcome, Report, Trial
from imagebuilder.untrusted import clean_lines


def headline(report: Report) -> str:
    """The verdict in one line, `PASSED` or `FAILED in stage root: ...`."""
    if failure := report.failure:
        stage = f" in stage {failure.stage}" if failure.stage else ""
        return clean_lines(f"FAILED{stage}: {failure.what}").replace("\n", " ")
    if not report.trials:
        return "NOT TESTED: nothing was booted"
    words = [degradation(report), f"only checks that match -k {report.selection!r}"]
    found = ", ".join(filter(None, (words[0], words[1] if report.selection else "")))
    name = "PASSED, degraded" if report.degraded else "PASSED"
    return clean_lines(f"{name}: {found}" if found else name)


def degradation(report: Report) -> str:
    """What it computed on if that is less than the profile expects; otherwise empty."""
    less = next((t.inference for t in report.trials if t.inference and t.inference.degraded), None)
    if less is None:
        return ""
    return f"computed on {backend(less.used)}, but the profile expects {backend(less.expected)}"


def backend(name: str) -> str:
    """What it computes on: `the cpu`, `rocm`."""
    return f"the {name}" if name == CPU else name


def speed(inference: Inference) -> str:
    """Tokens a second: `12.5 tokens/s`."""
    rate = inference.tokens / inference.seconds if inference.seconds else 0.0
    return f"{rate:.1f} tokens/s"


def counted(checks: tuple[Check, ...]) -> str:
    """How many checks passed, failed and were skipped: `18 passed, 1 failed`."""
    numbers = {outcome: sum(c.outcome is outcome for c in checks) for outcome in Outcome}
    told = [f"{number} {outcome}" for outcome, number in numbers.items() if number]
    return ", ".join(told) or "none ran"


def trial_checks(trial: Trial) -> tuple[Check, ...]:
    return tuple(check for machine in trial.machines for check in machine.checks)


def place_of(report: Report) -> str:
    return f"{report.machine} ({report.host})" if report.machine else report.host
