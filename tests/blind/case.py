# SPDX-License-Identifier: Apache-2.0
"""A fault or an unusual image of the blind corpus, and what is found in a root with it.

`words` is a regular expression that a finding which names the cause fits; who measured wrote it.
`grants`, `listens` and `units` are what the overlay of a legitimate image declares.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ruamel.yaml import YAML

from imagebuilder.image.proof import Evidence, Finding, Level, Question
from imagebuilder.image.types import load_image
from imagebuilder.proof.prove import prove
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root
from tests.faults.catch import ENGINES, catch_static, evidence_of
from tests.faults.roots import NAMES, real
from tests.faults.roots.made import Answers
from tests.faults.site import Site, plant

CORPUS = Path(__file__).parent
# Corpora: their folders, and what their names begin with.
FURTHER = (
    "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh",
    "twelfth", "thirteenth", "fourteenth",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A fault, or (`is_legit`) an image in which nothing is wrong."""

    name: str
    image: str
    plant: tuple[Mapping[str, Any], ...]
    expect: str
    words: str = ""
    grants: Mapping[str, list[str]] = field(default_factory=dict)
    listens: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    requires: Mapping[str, str] = field(default_factory=dict)
    is_legit: bool = False


def load_cases(folder: str) -> list[Case]:
    """`faults` or `legit`, by name; after them those of each further corpus, named CORPUS-NAME."""
    first = [load_case(path) for path in sorted((CORPUS / folder).glob("*/fault.yaml"))]
    further = [
        replace(case, name=f"{corpus}-{case.name}")
        for corpus in FURTHER
        for case in map(load_case, sorted((CORPUS / corpus / folder).glob("*/fault.yaml")))
    ]
    return [*first, *further]


def load_case(path: Path) -> Case:
    value = YAML(typ="safe", pure=True).load(path)
    return Case(
        name=path.parent.name,
        image=value["image"],
        plant=tuple(value["plant"]),
        expect=value.get("expect", ""),
        words=value.get("words", ""),
        grants=value.get("grants", {}),
        listens=tuple(value.get("listens", ())),
        units=value.get("units", {}),
        requires=value.get("requires", {}),
        is_legit="why" in value,
    )


def plant_case(site: Site, case: Case) -> None:
    """Raises ValueError or OSError where the root has nothing of the kind."""
    for name, pattern in case.requires.items():
        if not re.search(pattern, site.path(name).read_text(), re.MULTILINE):
            raise ValueError(f"{name} has nothing like {pattern}")
    plant(site, case.plant)
    declare(site, case)
    if site.release.profile not in NAMES:
        site.settle()


def declare(site: Site, case: Case) -> None:
    """What the overlay of a legitimate image declares goes into the manifest."""
    manifest = json.loads((site.folder / "manifest.json").read_text())
    if case.grants:
        manifest["grants"] = {**manifest.get("grants", {}), "site": case.grants}
    layers = [layer for layer in manifest["layers"] if "units" in layer["inputs"]]
    for unit, verb in case.units.items():
        layers[-1]["inputs"]["units"][verb].append(unit)
    if case.listens:
        manifest["listens"] = sorted({*manifest.get("listens", []), *case.listens})
    site.write("release/manifest.json", json.dumps(manifest))


def find_all(site: Site, *, by_overlay: bool = False) -> list[Finding]:
    """Faults and warnings of the proof and of the checks; those of a check are without question."""
    if site.release.profile in NAMES:
        programs = Answers.of(site.folder, site.root)
        proofs = [prove(Subject(load_image(site.folder), Root(site.root), programs, ENGINES))]
    elif site.release.profile == real.BASE:
        proofs = [real.prove_site(site, by_overlay=by_overlay)]
    else:
        proofs = [real.prove_site(site, question) for question in real.ASKED]
    answers = [answer for proof in proofs for answer in proof.answers]
    found = [f for answer in answers for f in answer.findings if f.level is not Level.FACT]
    return [*found, *checks_of(site)] if site.release.profile == real.BASE else found


def checks_of(site: Site) -> list[Finding]:
    """What `check` says, as findings about the system."""
    with TemporaryDirectory(dir=site.tree.path) as work:
        found = catch_static(site, Path(work))
    where = tuple(map(Evidence, found.checks))
    return (
        [] if found.nothing else [Finding(Level.FAULT, found.said, where, question=Question.SYSTEM)]
    )


def said(finding: Finding) -> str:
    """All that a person reads of it."""
    return f"{finding.question} {finding.level}: {finding.what}\n{evidence_of(finding)}"


def without_evidence(finding: Finding) -> Finding:
    """What two proofs of one root say alike."""
    return replace(finding, evidence=())
