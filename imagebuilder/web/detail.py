# SPDX-License-Identifier: Apache-2.0
"""What a release's manifest says that a list of releases does not: its proof, and what changed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from imagebuilder.digest import Json
from imagebuilder.image.diff import ImageDiff, diff_images, diff_json, from_security
from imagebuilder.image.proof import Level, Proof, Result
from imagebuilder.image.types import find_image
from imagebuilder.tree import ReleaseName, Tree


@dataclass(frozen=True)
class PackageRow:
    """A package that differs; "" is absent, `grown` in bytes."""

    name: str
    old: str
    new: str
    grown: int
    security: bool


@dataclass(frozen=True)
class ReleaseDetail:
    """A release and the one of its profile that was published before it, if any.

    `proof` is None where the manifest is damaged or has none; only what weighs more than a fact is
    kept of its findings.
    """

    release: ReleaseName
    description: str = ""
    base: str = ""
    kernel: str = ""
    packages: int = 0
    proof: Proof | None = None
    previous: ReleaseName | None = None
    diff: ImageDiff | None = None
    security: frozenset[str] = frozenset()

    @property
    def proved(self) -> Result | None:
        """The proof in one word; None without one."""
        if self.proof is None:
            return None
        results = {answer.result for answer in self.proof.answers}
        order = (Result.FAILED, Result.WARNED, Result.PROVED)
        return next((each for each in order if each in results), Result.NOT_ASKED)

    @property
    def changes(self) -> tuple[PackageRow, ...]:
        """The packages that differ, those from a source of security updates first."""
        if self.diff is None:
            return ()
        grown = self.diff.grown
        rows = [
            PackageRow(name, old, new, grown[name], bool(new) and name in self.security)
            for name, old, new in self.diff.packages
        ]
        return tuple(sorted(rows, key=lambda row: not row.security))

    def as_json(self) -> dict[str, Json]:
        """For programs: a stable contract."""
        proof: dict[str, Json] = {}
        findings: list[Json] = []
        for answer in self.proof.answers if self.proof else ():
            proof[str(answer.question)] = answer.result.value
            findings += [
                {"question": str(one.question), "level": str(one.level), "what": one.what,
                 "hint": one.hint}
                for one in answer.findings
            ]  # fmt: skip
        security: list[Json] = [row.name for row in self.changes if row.security]
        return {
            "description": self.description,
            "base": self.base,
            "kernel": self.kernel,
            "packages": self.packages,
            "proof": proof,
            "findings": findings,
            "previous": str(self.previous) if self.previous else None,
            "security": security,
            "difference": diff_json(self.diff) if self.diff else None,
        }


def read_detail(tree: Tree, release: ReleaseName, previous: ReleaseName | None) -> ReleaseDetail:
    """The detail of a release; little is in it if its manifest is damaged."""
    image = find_image(tree.release(release))
    if image is None:
        return ReleaseDetail(release, previous=previous)
    before = find_image(tree.release(previous)) if previous else None
    return ReleaseDetail(
        release,
        description=image.description,
        base=image.base,
        kernel=image.kernel.release,
        packages=len(image.packages),
        proof=without_facts(image.proof) if image.proof else None,
        previous=previous,
        diff=diff_images(before, image) if before else None,
        security=from_security(image),
    )


def without_facts(proof: Proof) -> Proof:
    """A proof with what a person should read; an answer of facts alone keeps the first of them."""
    answers = []
    for answer in proof.answers:
        loud = tuple(one for one in answer.findings if one.level is not Level.FACT)
        answers.append(replace(answer, findings=loud or answer.findings[:1]))
    return replace(proof, answers=tuple(answers))
