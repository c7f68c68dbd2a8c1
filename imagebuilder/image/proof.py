# SPDX-License-Identifier: Apache-2.0
"""The Proof box: what static inspection established about an image, question by question."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, ValidationError

from imagebuilder.decode import describe, encode_box, validate
from imagebuilder.digest import Json
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
    SERVICES = "services"
    SYSTEM = "system"
    PROVENANCE = "provenance"
    PRIVILEGES = "privileges"
    SECRETS = "secrets"


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
    """One thing that was established.  A fault has a hint: what to change.

    `question` is that of its answer, None before there is one.
    """

    level: Level
    what: str
    evidence: tuple[Evidence, ...] = ()
    hint: str = ""
    question: Question | None = None


def fault(what: str, *evidence: Evidence, hint: str) -> Finding:
    """A problem that keeps the accelerator from working, and what to change."""
    return Finding(Level.FAULT, what, evidence, hint)


def warning(what: str, *evidence: Evidence, hint: str) -> Finding:
    """A problem with which the accelerator works worse than expected."""
    return Finding(Level.WARNING, what, evidence, hint)


def fact(what: str, *evidence: Evidence) -> Finding:
    """A condition that holds, or that a person should know."""
    return Finding(Level.FACT, what, evidence)


# What a rule of the proof gives, one after the other.
Findings = Iterator[Finding]


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
    """What is known of an image (`profile@version`) without its hardware."""

    image: str
    answers: tuple[Answer, ...]

    @property
    def ok(self) -> bool:
        return not self.faults

    @property
    def faults(self) -> tuple[Finding, ...]:
        """Every fault, in the order of the questions."""
        return tuple(f for a in self.answers for f in a.findings if f.level is Level.FAULT)


def check_proved(proof: Proof) -> None:
    """Raise WorkError with every fault of the proof."""
    if proof.faults:
        raise WorkError.of(
            Fault(f"{proof.image}: {each.question}", each.what, each.hint) for each in proof.faults
        )


def proof_json(proof: Proof, *, timed: bool = True) -> dict[str, Json]:
    """The whole proof; without `timed` nothing in it differs between two equal images."""
    return {
        "image": proof.image,
        "ok": proof.ok,
        "answers": [answer_json(answer, timed=timed) for answer in proof.answers],
    }


def answer_json(answer: Answer, *, timed: bool) -> dict[str, Json]:
    findings = [encode_box(finding) for finding in answer.findings]
    return {
        "question": str(answer.question),
        "result": str(answer.result),
        **({"seconds": answer.seconds} if timed else {}),
        "findings": [{k: v for k, v in one.items() if k != "question"} for one in findings],
    }


def parse_proof(value: Any) -> Proof:  # noqa: ANN401 - whatever a manifest has in its place
    """A proof as proof_json() has it, every finding with the question of its answer.

    Raises ValueError.
    """
    with contextlib.suppress(LookupError, TypeError):  # the box says what is wrong
        answers = [
            answer
            | {"findings": [f | {"question": answer["question"]} for f in answer["findings"]]}
            for answer in value["answers"]
        ]
        value = {**value, "answers": answers}
    try:
        return validate(Proof, value)
    except ValidationError as error:
        raise ValueError(describe(error)[1]) from error


# As it lies in a manifest.
ManifestProof = Annotated[
    Proof,
    PlainValidator(parse_proof),
    PlainSerializer(lambda proof: proof_json(proof, timed=False)),
]
