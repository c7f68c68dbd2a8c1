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
from dataclasses import asdict, replace

import pytest

from imagebuilder.image.proof import Finding, Level, Question
from imagebuilder.tree import ReleaseName
from tests.blind.case import Case, find_all, load_cases, plant_case, said, without_evidence
from tests.blind.conftest import RECIPES
from tests.faults.catch import CAUGHT, MISSED
from tests.faults.conftest import ROW, Ground
from tests.faults.roots import real
from tests.faults.table import GOOD, Row

pytestmark = pytest.mark.root

ONLY_PROVENANCE = "only by provenance"
Recorder = Callable[[str, object], None]
Known = dict[str, set[Finding]]


@pytest.fixture(scope="session")
def known() -> Known:
    """What is said of each root before anything is planted, by profile."""
    return {}


@pytest.mark.parametrize("case", load_cases("faults"), ids=lambda case: case.name)
def test_fault_is_named(
    case: Case, request: pytest.FixtureRequest, known: Known, record_property: Recorder
) -> None:
    started = time.monotonic()
    found = [f for each in grounds_of(case, request) for f in look(case, *each, known)]
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
    found = [f for each in grounds_of(case, request) for f in look(case, *each, known)]
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


def look(case: Case, ground: Ground, profile: str, known: Known) -> list[Finding]:
    """What is said of a root with the case, and not without; nothing where it cannot be planted."""
    release = ground.releases[profile]
    if profile not in known:
        good = findings(replace(case, plant=()), ground, release) or ()
        known[profile] = set(map(without_evidence, good))
    found = findings(case, ground, release)
    return [f for f in found or () if without_evidence(f) not in known[profile]]


def findings(case: Case, ground: Ground, release: ReleaseName) -> list[Finding] | None:
    has_layers = ground.tree.repo.is_dir()
    try:
        with ground.copies.of(ground.tree, release, with_repo=has_layers) as site:
            plant_case(site, case)
            return find_all(site, by_overlay=case.is_legit)
    except (ValueError, OSError):
        # The small roots lack much that the real one has, and the other way round.
        if case.image == release.profile:
            raise
        return None
