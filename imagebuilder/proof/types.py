# SPDX-License-Identifier: Apache-2.0
"""The Proof box: what static inspection established about an image, question by question."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from imagebuilder.errors import Fault, WorkError


class Question(StrEnum):
    """What is asked of an image, in this order."""

    KERNEL = "kernel"
    FIRMWARE = "firmware"
    CODE = "code objects"
    LIBRARIES = "libraries"
    PYTHON = "python"
    ACCESS = "access"
    FALLBACK = "silent fallback"


class Level(StrEnum):
    """How much a finding weighs.

    A FAULT: the accelerator cannot work, or nobody would notice that it does not.  A WARNING: it
    works, but worse than a person would expect.  A FACT: evidence that something is as it must be.
    """

    FAULT = "fault"
    WARNING = "warning"
    FACT = "fact"


class Result(StrEnum):
    """The answer to a question.  NOT_ASKED: nothing in the profile raises it."""

    PROVED = "proved"
    WARNED = "warned"
    FAILED = "failed"
    NOT_ASKED = "not asked"


@dataclass(frozen=True)
class Evidence:
    """Where in the image it can be seen: a path (absolute in the root), and in that file a section
    and a symbol; `said` is what is there.
    """

    path: str
    section: str = ""
    symbol: str = ""
    said: str = ""


@dataclass(frozen=True)
class Finding:
    """One thing that was established.  A fault has a hint: what to change."""

    question: Question
    level: Level
    what: str
    evidence: tuple[Evidence, ...] = ()
    hint: str = ""


@dataclass(frozen=True)
class Answer:
    """All findings of one question, and how long it took (seconds)."""

    question: Question
    findings: tuple[Finding, ...]
    seconds: float = 0.0

    @property
    def result(self) -> Result:
        """The answer in one word: that of the finding that weighs most."""
        levels = {finding.level for finding in self.findings}
        if Level.FAULT in levels:
            return Result.FAILED
        if Level.WARNING in levels:
            return Result.WARNED
        return Result.PROVED if levels else Result.NOT_ASKED


@dataclass(frozen=True)
class Proof:
    """What is known of the image `profile@version` without its hardware."""

    profile: str
    version: str
    answers: tuple[Answer, ...]

    @property
    def name(self) -> str:
        """`profile@version`."""
        return f"{self.profile}@{self.version}"

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.faults

    @property
    def faults(self) -> tuple[Finding, ...]:
        """Every fault, in the order of the questions."""
        return tuple(f for a in self.answers for f in a.findings if f.level is Level.FAULT)


def check_proved(proof: Proof) -> None:
    """Raise WorkError with every fault of the proof."""
    if proof.faults:
        raise WorkError.of(
            Fault(f"{proof.name}: {fault.question}", fault.what, fault.hint)
            for fault in proof.faults
        )
