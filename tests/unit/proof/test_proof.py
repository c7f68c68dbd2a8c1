# SPDX-License-Identifier: Apache-2.0
"""The Proof box: what findings add up to, as JSON and back, as text, as a row of the matrix."""

from __future__ import annotations

from dataclasses import replace

import pytest

from imagebuilder.errors import WorkError
from imagebuilder.image.proof import (
    Answer,
    Evidence,
    Finding,
    Level,
    Proof,
    Question,
    Result,
    check_proved,
    proof_json,
)
from imagebuilder.image.types import decode_image, encode_image
from imagebuilder.proof.terminal import MATRIX_HEAD, matrix_row, render_proof
from tests.images import IMAGE

FACT = Finding(
    Level.FACT,
    "one kernel",
    (Evidence("/usr/lib/modules/6.12", said="6.12"),),
    question=Question.KERNEL,
)
WARNING = Finding(Level.WARNING, "PTX only", hint="wait at the first start", question=Question.CODE)
FAULT = Finding(
    Level.FAULT,
    "no code for gfx1151",
    tuple(Evidence(f"/lib/{n}.so", ".hip_fatbin", said="gfx1102") for n in range(8)),
    "use Vulkan",
    question=Question.CODE,
)
GOOD = Proof("p@1", (Answer(Question.KERNEL, (FACT,), 1.5), Answer(Question.CODE, (WARNING,))))
BAD = Proof("p@1", (Answer(Question.KERNEL, (FACT,)), Answer(Question.CODE, (WARNING, FAULT))))


@pytest.mark.parametrize(
    ("findings", "result"),
    [
        ((), Result.NOT_ASKED),
        ((FACT,), Result.PROVED),
        ((FACT, WARNING), Result.WARNED),
        ((FAULT, WARNING, FACT), Result.FAILED),
    ],
)
def test_the_worst_finding_is_the_answer(findings: tuple[Finding, ...], result: Result) -> None:
    assert Answer(Question.CODE, findings).result is result


def test_one_fault_and_the_image_is_not_proved() -> None:
    assert GOOD.ok
    check_proved(GOOD)
    assert BAD.faults == (FAULT,)
    with pytest.raises(WorkError, match=r"p@1: code objects: no code for gfx1151\n.*use Vulkan"):
        check_proved(BAD)


@pytest.mark.parametrize("proof", [GOOD, BAD])
def test_a_manifest_gives_back_what_was_proved(proof: Proof) -> None:
    text = encode_image(replace(IMAGE, proof=proof))
    assert "seconds" not in text
    again = decode_image(text, "p@1").proof
    assert again is not None
    assert again.faults == proof.faults
    assert proof_json(again, timed=False) == proof_json(proof, timed=False)


def test_a_manifest_from_before_has_no_proof() -> None:
    assert decode_image(encode_image(IMAGE), "p@1").proof is None


def test_text_has_the_fault_first_with_evidence_and_hint() -> None:
    text = render_proof(BAD, colour=False)
    lines = text.splitlines()
    assert lines[0] == "p@1: NOT PROVED: 1 fault"
    code = lines[next(n for n, line in enumerate(lines) if line.startswith("code objects")) :]
    assert code[1] == "  fault: no code for gfx1151"
    assert code[2] == "    /lib/0.so .hip_fatbin: gfx1102"
    assert "    and 2 more: --evidence shows all" in code
    assert "    hint: use Vulkan" in code
    assert "/usr/lib/modules" not in text
    assert "/usr/lib/modules/6.12: 6.12" in render_proof(BAD, colour=False, evidence=True)
    assert "\x1b" not in text
    assert "\x1b" in render_proof(BAD, colour=True)


def test_the_matrix_has_a_mark_for_each_question() -> None:
    row = matrix_row("p", "1", BAD)
    assert len(row) == len(MATRIX_HEAD)
    assert row[:5] == ("p", "1", "proved", "-", "FAILED")
    assert matrix_row("p", "", None)[1] == "not built"
