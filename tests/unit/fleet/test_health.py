# SPDX-License-Identifier: Apache-2.0
"""A verdict counts if it is whole, fresh and of the boot that runs; all else is unknown."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from imagebuilder.fleet.health import FILE, Health, Verdict, parse_health
from imagebuilder.fleet.ssh import Said

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
BOOT = "0c1f6a3e-5f9e-4d3c-8b67-5a2f7d1c9e10"


def answer(uptime: object = 1000.0, **changes: object) -> str:
    """What a node says `uptime` seconds after its boot."""
    value = {
        "schema": 1, "verdict": "ok", "words": "2 checks passed", "release": "gpu@1",
        "boot-id": BOOT, "uptime": 940.0,
        "checks": [{"name": "pci", "stage": "present", "verdict": "ok", "words": "", "seconds": 0}],
    } | changes  # fmt: skip
    return f"{BOOT}\n{uptime} 3000.00\n{json.dumps(value)}"


def health(output: str, status: int | None = 0) -> Health:
    return parse_health(Said("n1", status, output), NOW)


def test_a_verdict_has_its_words_age_release_and_boot() -> None:
    at = NOW - timedelta(seconds=60)
    assert health(answer()) == Health("n1", Verdict.OK, "2 checks passed", at, "gpu@1", BOOT)
    missing = health(answer(verdict="missing device", words="no 1002:7480"))
    assert (missing.verdict, missing.words) == (Verdict.MISSING, "no 1002:7480")


def test_a_greeting_before_the_verdict_does_not_damage_it() -> None:
    assert health(f"Welcome to node1\n{answer()}").verdict is Verdict.OK


@pytest.mark.parametrize(
    ("output", "status", "words"),
    [
        ("", None, "did not say how it is in time"),
        ("Host key verification failed.", 255, "could not be asked over ssh: Host key verif"),
        ("", 255, "could not be asked over ssh: exit status 255"),
        (f"{BOOT}\n9 9\ncat: {FILE}: No such file or directory", 1, "has no verdict"),
        (answer()[:200], 0, "its verdict is damaged"),
        (answer(verdict="splendid"), 0, "its verdict is damaged: verdict"),
        (answer(uptime="soon"), 0, "its verdict is damaged: uptime"),
        (answer(schema=2), 0, "its verdict is of schema 2"),
        (answer(**{"boot-id": "another"}), 0, "its verdict is of another boot"),
        (answer(uptime=99_999.0), 0, "its last verdict is too old: 1650 min"),
        (answer(words="x" * 70_000), 0, "its verdict is damaged"),
    ],
)
def test_everything_else_is_unknown_and_says_why(
    output: str, status: int | None, words: str
) -> None:
    found = health(output, status)
    assert found.verdict is Verdict.UNKNOWN
    assert words in found.words


def test_words_of_a_node_move_no_cursor() -> None:
    found = health(answer(words="fine\x1b[2J\nnode2 ready", release="gpu@1\x1b[0m"))
    assert "\x1b" not in found.words + found.release
    assert "\n" not in found.words
    assert "\x1b" not in health("\x1b[2Jhello", 255).words
