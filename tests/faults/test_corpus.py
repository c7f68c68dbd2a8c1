# SPDX-License-Identifier: Apache-2.0
"""Every fault of the corpus is caught, where and as it says; nothing is found in good images."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from imagebuilder.boot.acceleration import Acceleration
from imagebuilder.image.proof import Level, Question
from imagebuilder.report.types import Stage
from tests.faults.catch import (
    CAUGHT,
    Found,
    catch,
    catch_boot,
    catch_prove,
    catch_static,
    judge,
)
from tests.faults.conftest import ROW, Ground, chosen, ground_of, is_chosen
from tests.faults.fault import PROVE, Boot, Fault, load_faults
from tests.faults.roots import NAMES, real
from tests.faults.site import plant
from tests.faults.table import GOOD, Row

pytestmark = pytest.mark.root

Recorder = Callable[[str, object], None]  # pytest's record_property

FAULTS = load_faults()
# To its last boot check, in the way that most faults are booted.
GOOD_BOOT = Fault(
    "good-boot", "Nothing is wrong.", "", "tree", "test", None, "",
    boot=Boot(way="bios+nfs", until=Stage.CHECKS),
)  # fmt: skip


def parameter(fault: Fault) -> object:
    """A fault with its name, and what it needs."""
    marks = [pytest.mark.boot] if fault.boots else []
    marks += [pytest.mark.accelerator] if fault.image in NAMES else []
    return pytest.param(fault, id=fault.name, marks=marks)


@pytest.mark.parametrize("fault", [parameter(f) for f in FAULTS if is_chosen(f)])
def test_fault_is_caught(
    fault: Fault, request: pytest.FixtureRequest, record_property: Recorder
) -> None:
    ground = ground_of(fault, request)
    if fault.image not in ground.releases:
        pytest.skip(f"no image of {fault.image} is at hand")
    acceleration = request.getfixturevalue("acceleration") if fault.boots else None
    work = ground.place / fault.name
    work.mkdir()
    started = time.monotonic()
    outcome, said = "NOT LOOKED FOR", ""
    try:
        found = look(fault, ground, acceleration, work)
        outcome, said = judge(fault, found), found.said
    finally:
        stage, seconds = fault.stage or fault.question or "-", time.monotonic() - started
        row = Row(fault.name, fault.kind, stage, fault.caught.split()[0], seconds, outcome)
        record_property(ROW, json.dumps(asdict(row)))
    assert outcome == CAUGHT, said


def look(fault: Fault, ground: Ground, acceleration: Acceleration | None, work: Path) -> Found:
    """Plant a fault into a copy of the good release, and let its command look."""
    # Other commands read the repository, and a proof compares a real root with what it holds.
    reads = fault.kind == "image" and fault.question in real.COMPARED
    repo = fault.stage is None and (fault.caught != PROVE or reads)
    release = ground.releases[fault.image]
    with ground.copies.of(ground.tree, release, with_repo=repo) as site:
        plant(site, fault.plant)
        if planting := getattr(fault.code, "plant", None):
            planting(site)
        if fault.stage is not None:
            site.settle()
        return catch(fault, site, acceleration, work, quick=chosen() == "some")


@pytest.mark.parametrize("profile", ["generic", "rx7600xt"])
def test_good_image_raises_no_alarm(
    profile: str, ground: Ground, record_property: Recorder
) -> None:
    if profile not in ground.releases:
        pytest.skip(f"no image of {profile} is at hand")
    work = ground.place / f"good-{profile}"
    work.mkdir()
    started = time.monotonic()
    with ground.copies.of(ground.tree, ground.releases[profile], with_repo=False) as site:
        found = catch_static(site, work)
    report_good(record_property, profile, "static", "check", started, found)


@pytest.mark.accelerator
@pytest.mark.parametrize("name", NAMES)
def test_good_small_root_is_proved(name: str, made: Ground, record_property: Recorder) -> None:
    started = time.monotonic()
    with made.copies.of(made.tree, made.releases[name], with_repo=False) as site:
        found = catch_prove(site, (Level.FAULT, Level.WARNING))
    report_good(record_property, name, "proof", "prove", started, found)


@pytest.mark.parametrize("question", real.ASKED)
@pytest.mark.parametrize("name", [real.BASE, *real.NAMES])
def test_good_real_root_is_proved(
    name: str, question: Question, request: pytest.FixtureRequest, record_property: Recorder
) -> None:
    ground = request.getfixturevalue("ground" if name == real.BASE else "real_ground")
    started = time.monotonic()
    with ground.copies.of(ground.tree, ground.releases[name], with_repo=False) as site:
        found = catch_prove(site, (Level.FAULT, Level.WARNING), question)
    report_good(record_property, name, str(question), "prove", started, found)


@pytest.mark.boot
@pytest.mark.skipif(chosen() != "all", reason="`make faults` boots it")
def test_good_image_boots_without_alarm(
    ground: Ground, acceleration: Acceleration, record_property: Recorder
) -> None:
    work = ground.place / "good-boot"
    work.mkdir()
    started = time.monotonic()
    with ground.copies.of(ground.tree, ground.releases["generic"], with_repo=False) as site:
        found = catch_boot(GOOD_BOOT, site, acceleration, work)
    report_good(record_property, "generic", GOOD_BOOT.boot.way, "test", started, found)


def report_good(
    record: Recorder, profile: str, stage: str, by: str, started: float, found: Found
) -> None:
    """A row for a good image; fails when something was found."""
    outcome = "quiet" if found.nothing else f"FALSE ALARM: {', '.join(found.checks) or found.said}"
    row = Row(GOOD, profile, stage, by, time.monotonic() - started, outcome)
    record(ROW, json.dumps(asdict(row)))
    assert found.nothing, found.said
