# SPDX-License-Identifier: Apache-2.0
"""A proof for people: a line per question with its findings, worst first."""

from __future__ import annotations

from collections.abc import Iterator

from imagebuilder.image.proof import Answer, Evidence, Finding, Level, Proof, Question, Result
from imagebuilder.ui import GREEN, RED, YELLOW, format_count, paint

SHADES = {Result.PROVED: GREEN, Result.WARNED: YELLOW, Result.FAILED: RED}
# The word in a cell of the matrix.
MARKS = {Result.PROVED: "proved", Result.WARNED: "warned", Result.FAILED: "FAILED"}
ORDER = {Level.FAULT: RED, Level.WARNING: YELLOW, Level.FACT: ""}
WIDTH = max(len(question) for question in Question)
MOST_EVIDENCE = 6


def render_proof(proof: Proof, *, colour: bool, evidence: bool = False) -> str:
    """The whole proof; with `evidence` all evidence, including that of facts."""
    lines = [f"{proof.image}: {headline(proof)}", ""]
    for answer in proof.answers:
        lines.extend(answer_lines(answer, colour=colour, evidence=evidence))
    return "\n".join(lines)


def headline(proof: Proof) -> str:
    warnings = sum(f.level is Level.WARNING for a in proof.answers for f in a.findings)
    checks = sum(answer.result is not Result.NOT_ASKED for answer in proof.answers)
    if proof.faults:
        return f"NOT PROVED: {format_count(len(proof.faults), 'fault')}"
    more = f", {format_count(warnings, 'warning')}" if warnings else ""
    return f"proved, {format_count(checks, 'check')}{more}"


def answer_lines(answer: Answer, *, colour: bool, evidence: bool) -> Iterator[str]:
    result = "does not apply" if answer.result is Result.NOT_ASKED else str(answer.result)
    shade = SHADES.get(answer.result, "") if colour else ""
    took = f"  {answer.seconds:.1f} s" if answer.seconds >= 0.05 else ""
    yield f"{answer.question:<{WIDTH}}  {paint(result, shade)}{took}"
    for level in ORDER:
        for finding in answer.findings:
            if finding.level is level:
                yield from finding_lines(finding, colour=colour, evidence=evidence)


def finding_lines(finding: Finding, *, colour: bool, evidence: bool) -> Iterator[str]:
    shade = ORDER[finding.level] if colour else ""
    word = "" if finding.level is Level.FACT else f"{finding.level}: "
    yield f"  {paint(word, shade)}{finding.what}"
    if finding.level is Level.FACT and not evidence:
        return
    shown = finding.evidence if evidence else finding.evidence[:MOST_EVIDENCE]
    yield from (f"    {evidence_text(each)}" for each in shown)
    if len(shown) < len(finding.evidence):
        yield f"    and {len(finding.evidence) - len(shown)} more: --evidence shows all"
    if finding.hint:
        yield f"    hint: {finding.hint}"


def evidence_text(evidence: Evidence) -> str:
    """`path section symbol: text`."""
    place = " ".join(part for part in (evidence.path, evidence.section, evidence.symbol) if part)
    return f"{place}: {evidence.said}" if evidence.said else place


def matrix_row(profile: str, version: str, proof: Proof | None) -> tuple[str, ...]:
    if proof is None:
        return (profile, version or "not built", *("" for _ in Question))
    results = {answer.question: answer.result for answer in proof.answers}
    marks = (MARKS.get(results.get(question, Result.NOT_ASKED), "-") for question in Question)
    return (profile, version, *marks)


MATRIX_HEAD = ("profile", "image", *(str(question) for question in Question))


def find_summary(proof: Proof) -> str:
    """How many paths of an image come from where; "" if its proof is older than this question."""
    answers = (a for a in proof.answers if a.question is Question.PROVENANCE)
    facts = (f.what for a in answers for f in a.findings if f.level is Level.FACT)
    return next(facts, "")
