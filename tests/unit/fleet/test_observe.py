# SPDX-License-Identifier: Apache-2.0
"""What a node answers becomes a sight; an answer that was cut off is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from imagebuilder.fleet.health import Health, Verdict
from imagebuilder.fleet.rollout.observe import parse_answer, with_health
from imagebuilder.fleet.rollout.types import Sight
from imagebuilder.fleet.ssh import Said
from imagebuilder.ssh import SSH_FAILED

BOOT = "0c1f6a3e-5f9e-4d3c-8b67-5a2f7d1c9e10"
RELEASE = "NAME=Debian\nIMAGE_ID=minimal\nIMAGE_VERSION=20260101000000-abcdef01\n"


def test_whole_answer_names_boot_and_release() -> None:
    said = Said("node1", 0, f"welcome\n{BOOT}\n{RELEASE}")
    assert parse_answer(said) == Sight(BOOT, "minimal@20260101000000-abcdef01")


def test_root_of_somebody_else_has_a_boot_and_no_release() -> None:
    assert parse_answer(Said("node1", 0, f"{BOOT}\nNAME=Debian\n")) == Sight(BOOT)
    assert parse_answer(Said("node1", 1, f"{BOOT}\n", "cat: /etc/os-release: none")) == Sight(BOOT)


@pytest.mark.parametrize("long", ["A" * 129, "A" * 900_000])
def test_a_name_of_any_length_is_none(long: str) -> None:
    said = Said("node1", 0, f"{BOOT}\nIMAGE_ID=minimal\nIMAGE_VERSION={long}\n")
    assert parse_answer(said) == Sight(BOOT)


@pytest.mark.parametrize(
    ("status", "problem"),
    [(None, "the time ran out"), (SSH_FAILED, "Connection reset"), (137, "Connection reset")],
)
def test_answer_that_was_cut_off_is_none(status: int | None, problem: str) -> None:
    cut = Said("node1", status, f"{BOOT}\nNAME=Deb", "Connection reset")
    assert parse_answer(cut) == Sight(problem=problem)
    assert not parse_answer(cut).answers


SEEN = Sight(BOOT, "minimal@2")


def test_a_verdict_counts_for_the_boot_and_the_release_that_were_seen() -> None:
    """A node that fell back between two questions is well, and does not run the release."""
    of = Health("node1", Verdict.OK, "fine", None, "minimal@2", BOOT)
    assert with_health(SEEN, of) == Sight(BOOT, "minimal@2", verdict=Verdict.OK, words="fine")
    for other, words in (
        (replace(of, boot_id=BOOT.replace("0", "1")), "its verdict is of another boot"),
        (replace(of, release="minimal@1"), "its verdict is of minimal@1"),
        (replace(of, release=""), "its verdict is of no release"),
    ):
        assert with_health(SEEN, other) == replace(SEEN, words=words)
    silent = Health("node1", Verdict.UNKNOWN, "has no verdict", None, "", BOOT)
    assert with_health(SEEN, silent).words == "has no verdict"
