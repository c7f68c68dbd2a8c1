# SPDX-License-Identifier: Apache-2.0
"""What a person reads in the morning."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from imagebuilder.errors import Fault
from imagebuilder.lock.changes import PackageChange
from imagebuilder.nightly.message import render_lines
from imagebuilder.nightly.types import Ending, NightlyRun, NightlyStage, ProfileRun, Pruned

GOOD = ProfileRun(
    "rx", Ending.PROMOTED, NightlyStage.PROMOTE, {NightlyStage.BUILD: 61.0},
    version="2", previous="1",
    changes=(PackageChange("a", "1", "2", security=True), PackageChange("b", "1", "2")),
    published=12_000_000,
)  # fmt: skip
BAD = ProfileRun(
    "l40s", Ending.FAILED, NightlyStage.TEST, version="3",
    fault=Fault("l40s@3", "did not boot\nmore", "look at the console"),
)  # fmt: skip
NIGHT = NightlyRun(
    "20261122T023000Z-1", "2026-11-22T02:30:00+00:00", "here", "0", 70.0, finished=True
)


def said(night: NightlyRun) -> list[str]:
    text = render_lines(night, Path("/nights/index.html"), colour=False)
    return [" ".join(line.split()) for line in text.splitlines()]


def test_a_line_a_profile_and_what_needs_a_person() -> None:
    night = replace(
        NIGHT, profiles=(GOOD, BAD), committed="abc",
        pruned=Pruned(("rx@0",), ("rx@0", "rx@00"), 5_000_000),
    )  # fmt: skip
    assert said(night) == [
        "profile ending from to packages published time",
        "rx promoted 1 2 2, 1 security 12 MB 1 min 1 s",
        "l40s FAILED in test nothing 3 - - 0.0 s",
        "l40s: l40s@3: did not boot",
        "hint: look at the console",
        "removed 2 releases and 1 image, freed 5.0 MB",
        "rx@0",
        "rx@00",
        "committed the locks: abc",
        "report: /nights/index.html",
    ]


def test_a_night_without_news() -> None:
    same = ProfileRun("rx", Ending.UNCHANGED, NightlyStage.PLAN, version="2", previous="2")
    assert said(replace(NIGHT, profiles=(same,)))[1:3] == [
        "rx unchanged 2 - - 0.0 s",
        "nothing changed upstream or in the recipes: 1 min 10 s",
    ]


def test_colours_are_around_whole_lines() -> None:
    text = render_lines(replace(NIGHT, profiles=(GOOD, BAD)), Path("/x"), colour=True)
    plain = render_lines(replace(NIGHT, profiles=(GOOD, BAD)), Path("/x"), colour=False)
    assert text != plain
    assert [line.startswith("\x1b[") for line in text.splitlines()[:3]] == [False, True, True]
