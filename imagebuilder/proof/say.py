# SPDX-License-Identifier: Apache-2.0
"""Short constructors for the findings of one question."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence, Finding, Level, Question

MOST_NAMES = 3


@dataclass(frozen=True)
class Say:
    question: Question

    def fault(self, what: str, *evidence: Evidence, hint: str) -> Finding:
        """A problem that keeps the accelerator from working, and what to change."""
        return Finding(self.question, Level.FAULT, what, evidence, hint)

    def warning(self, what: str, *evidence: Evidence, hint: str) -> Finding:
        """A problem with which the accelerator works worse than expected."""
        return Finding(self.question, Level.WARNING, what, evidence, hint)

    def fact(self, what: str, *evidence: Evidence) -> Finding:
        """A condition that holds, or that a person should know."""
        return Finding(self.question, Level.FACT, what, evidence)


def some(names: Iterable[str]) -> str:
    """The first few of many names in a text: `a, b, c and 4 more`."""
    listed: Sequence[str] = list(names)
    more = len(listed) - MOST_NAMES
    shown = ", ".join(listed[:MOST_NAMES])
    return f"{shown} and {more} more" if more > 0 else shown
