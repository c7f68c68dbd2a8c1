# SPDX-License-Identifier: Apache-2.0
"""A report in words: its headline, and text of machines made fit to be shown."""

from __future__ import annotations

import re

from imagebuilder.report.types import CPU, Check, Inference, Outcome, Report, Trial

# ECMA-48: control sequences, strings up to their terminator (titles, links), other escapes.
ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|\x1b[ -/]*[0-~]"
)
# What no text for people contains: controls, marks that turn the direction of writing, and what XML
# has no place for.
UNFIT = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def plain(text: str) -> str:
    """`text` from a console or a log without what would act on a terminal, a page or a parser."""
    return UNFIT.sub("", ESCAPES.sub("", text.replace("\r\n", "\n")))


def headline(report: Report) -> str:
    """The verdict in one line, `PASSED` or `FAILED in stage root: ...`."""
    if failure := report.failure:
        stage = f" in stage {failure.stage}" if failure.stage else ""
        return plain(f"FAILED{stage}: {failure.what}").replace("\n", " ")
    if not report.trials:
        return "NOT TESTED: nothing was booted"
    words = [degradation(report), f"only checks that fit -k {report.selection!r}"]
    found = ", ".join(filter(None, (words[0], words[1] if report.selection else "")))
    name = "PASSED, degraded" if report.degraded else "PASSED"
    return plain(f"{name}: {found}" if found else name)


def degradation(report: Report) -> str:
    """On what less than the profile is for it computed; empty when it did not."""
    less = next((t.inference for t in report.trials if t.inference and t.inference.degraded), None)
    if less is None:
        return ""
    return f"computed on {backend(less.used)}, the profile is for {backend(less.expected)}"


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
    """The boot checks of all machines of a trial."""
    return tuple(check for machine in trial.machines for check in machine.checks)
