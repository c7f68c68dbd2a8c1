# SPDX-License-Identifier: Apache-2.0
"""Of the faults that were written blind, which does a question name?  Run by `make blind`.

A fault of an accelerator is planted into the small root and into the real one in that profile's
clothes: what one of them lacks, the other has.  What a good root already says does not count.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict

import pytest

from imagebuilder.image.proof import Finding, Level, Question
from imagebuilder.tree import ReleaseName
from tests.blind.case import Case, find_all, load_cases, plant_case, said, without_evidence
from tests.blind.conftest import RECIPES, UNPLANTED
from tests.faults.catch import CAUGHT, MISSED
from tests.faults.conftest import ROW, Ground
from tests.faults.roots import real
from tests.faults.table import GOOD, Row

pytestmark = pytest.mark.root

ONLY_PROVENANCE = "only by provenance"
Recorder = Callable[[str, object], None]
Known = dict[tuple[str, bool], set[Finding]]


class UnplantedError(ValueError):
    """The root has nothing of what the case changes."""


@pytest.fixture(scope="session")
def known() -> Known:
    """What is said of each root before anything is planted, by profile and by who is asked."""
    return {}


@pytest.mark.parametrize("case", load_cases("faults"), ids=lambda case: case.name)
def test_fault_is_named(
    case: Case, request: pytest.FixtureRequest, known: Known, record_property: Recorder
) -> None:
    started = time.monotonic()
    found = [
        f for each in grounds_of(case, request) for f in look(case, *each, known, record_property)
    ]
    told = [said(f) for f in found if f.question is not Question.PROVENANCE]
    named = [text for text in told if case.words and re.search(case.words, text)]
    outcome = CAUGHT if named else ONLY_PROVENANCE if len(told) < len(found) else MISSED
    by = (named or told or ["-"])[0].partition(":")[0]
    row = Row(case.name, case.image, "proof", by, time.monotonic() - started, outcome)
    record_property(ROW, json.dumps(asdict(row)))
    assert named, "\n".join([f"expected: {case.expect}", *told])


@pytest.mark.parametrize("case", load_cases("legit"), ids=lambda case: case.name)
def test_unusual_image_is_not_refused(
    case: Case, request: pytest.FixtureRequest, known: Known, record_property: Recorder
) -> None:
    started = time.monotonic()
    found = [
        f for each in grounds_of(case, request) for f in look(case, *each, known, record_property)
    ]
    faults = [f for f in found if f.level is Level.FAULT]
    outcome = f"REFUSED: {faults[0].what}" if faults else "quiet"
    seconds = time.monotonic() - started
    row = Row(GOOD, case.name, "proof", "prove", seconds, outcome)
    record_property(ROW, json.dumps(asdict(row)))
    assert not faults, "\n".join(map(said, found))


def grounds_of(case: Case, request: pytest.FixtureRequest) -> Iterator[tuple[Ground, str]]:
    """The roots a case is planted into."""
    if case.image not in RECIPES:
        yield request.getfixturevalue("ground"), case.image
        return
    yield request.getfixturevalue("made"), case.image
    yield request.getfixturevalue("clothed"), f"{real.PREFIX}{RECIPES[case.image]}"


def look(case: Case, ground: Ground, profile: str, known: Known, record: Recorder) -> list[Finding]:
    """What is said of a root with the case, and not without.

    The small roots lack much that the real one has, and the other way round: where a case cannot be
    planted, the summary of the run says so.  Raises ValueError or OSError if that is the case's own
    root.
    """
    release = ground.releases[profile]
    root = (profile, case.is_legit)
    if root not in known:
        nothing = Case("good", case.image, (), "", is_legit=case.is_legit)
        known[root] = set(map(without_evidence, findings(nothing, ground, release)))
    try:
        found = findings(case, ground, release)
    except UnplantedError as error:
        if case.image == profile:
            raise
        record(UNPLANTED, f"{case.name} is not planted into {profile}: {error}")
        return []
    return [f for f in found if without_evidence(f) not in known[root]]


def findings(case: Case, ground: Ground, release: ReleaseName) -> list[Finding]:
    """What is said of a root with the case.  Raises UnplantedError."""
    has_layers = ground.tree.repo.is_dir()
    with ground.copies.of(ground.tree, release, with_repo=has_layers) as site:
        try:
            plant_case(site, case)
        except (ValueError, OSError) as error:
            raise UnplantedError(str(error)) from error
        return find_all(site, by_overlay=case.is_legit)
