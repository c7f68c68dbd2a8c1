# SPDX-License-Identifier: Apache-2.0
"""Subject -> Proof: the questions in a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic

from imagebuilder.proof.access.prove import prove_access
from imagebuilder.proof.code.prove import prove_code
from imagebuilder.proof.fallback.prove import prove_fallback
from imagebuilder.proof.firmware import prove_firmware
from imagebuilder.proof.kernel.prove import prove_kernel
from imagebuilder.proof.libraries.prove import prove_libraries
from imagebuilder.proof.python.prove import prove_python
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.types import Answer, Finding, Proof, Question

QUESTIONS: tuple[tuple[Question, Callable[[Subject], Iterable[Finding]]], ...] = (
    (Question.KERNEL, prove_kernel),
    (Question.FIRMWARE, prove_firmware),
    (Question.CODE, prove_code),
    (Question.LIBRARIES, prove_libraries),
    (Question.PYTHON, prove_python),
    (Question.ACCESS, prove_access),
    (Question.FALLBACK, prove_fallback),
)


def hear_nothing(_: Answer) -> None:
    """Answers for nobody."""


def prove(subject: Subject, on_answer: Callable[[Answer], None] = hear_nothing) -> Proof:
    """Ask every question; `on_answer` hears of each answer as it comes.  Raises WorkError."""
    answers = []
    for question, ask in QUESTIONS:
        start = monotonic()
        findings = tuple(ask(subject))
        answers.append(Answer(question, findings, round(monotonic() - start, 2)))
        on_answer(answers[-1])
    return Proof(subject.profile, subject.version, tuple(answers))
