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


def health(output: str, status: int | None = 0, errors: str = "") -> Health:
    return parse_health(Said("n1", status, output, errors), NOW)


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
        ("", 255, "could not be asked over ssh: exit status 255"),
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


@pytest.mark.parametrize(
    ("output", "errors", "status", "words"),
    [
        ("", "Host key verification failed.", 255, "could not be asked over ssh: Host key verif"),
        (f"{BOOT}\n9 9\n", f"cat: {FILE}: No such file or directory", 1, "has no verdict"),
        (answer()[:200], "client_loop: send disconnect: Broken pipe\r\n", 255, "ssh: client_loop"),
        (answer()[:200], "", 255, "could not be asked over ssh: exit status 255"),
        (f"{BOOT}\n9 9\nerror: all is well", "", 137, "asked over ssh: exit status 137"),
        (f"cat: {FILE}: No such file", "", 1, "could not be asked over ssh: exit status 1"),
        ("", "Connection reset\n\x1b[2J\x1b[0m\n \n" + "\n" * 70_000, 255, "ssh: Connection reset"),
    ],
)
def test_what_ssh_says_is_the_reason_and_never_what_the_node_said_before(
    output: str, errors: str, status: int, words: str
) -> None:
    found = health(output, status, errors)
    assert (found.verdict, words in found.words) == (Verdict.UNKNOWN, True), found.words


def test_words_of_a_node_move_no_cursor() -> None:
    found = health(answer(words="fine\x1b[2J\nnode2 ready", release="gpu@1\x1b[0m"))
    assert "\x1b" not in found.words + found.release
    assert "\n" not in found.words
    said = health("", 255, "\x1b[2Jhello\x1b]0;me\x07" + "x" * 500_000).words
    assert said.startswith("could not be asked over ssh: ")
    assert "\x1b" not in said
    assert len(said) < 300
