# SPDX-License-Identifier: Apache-2.0
"""A proof as JSON: for `prove --json`, and in the manifest of its image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from imagebuilder.decode import reading
from imagebuilder.digest import Json
from imagebuilder.image.types import Image
from imagebuilder.proof.types import Answer, Evidence, Finding, Level, Proof, Question


def proof_json(proof: Proof, *, timed: bool = True) -> dict[str, Json]:
    """The whole proof; without `timed` nothing in it differs between two equal images."""
    return {
        "image": proof.name,
        "ok": proof.ok,
        "answers": [answer_json(answer, timed=timed) for answer in proof.answers],
    }


def answer_json(answer: Answer, *, timed: bool) -> dict[str, Json]:
    return {
        "question": str(answer.question),
        "result": str(answer.result),
        **({"seconds": answer.seconds} if timed else {}),
        "findings": [
            {
                "level": str(finding.level),
                "what": finding.what,
                "hint": finding.hint,
                "evidence": [{**asdict(evidence)} for evidence in finding.evidence],
            }
            for finding in answer.findings
        ],
    }


def parse_proof(image: Image) -> Proof | None:
    """The proof of an image; None of one from before images were proved."""
    given: Mapping[str, Any] | None = image.proof
    if given is None:
        return None
    with reading(f"{image.name}: proof", "build the image again"):
        answers = tuple(
            Answer(
                Question(answer["question"]),
                tuple(parse_finding(Question(answer["question"]), f) for f in answer["findings"]),
            )
            for answer in given["answers"]
        )
    return Proof(image.profile, image.version, answers)


def parse_finding(question: Question, given: Mapping[str, Any]) -> Finding:
    return Finding(
        question,
        Level(given["level"]),
        given["what"],
        tuple(Evidence(**evidence) for evidence in given["evidence"]),
        given["hint"],
    )
