# SPDX-License-Identifier: Apache-2.0
"""A state follows from evidence and its age, and from nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from imagebuilder.fleet.state import (
    Condition,
    Observation,
    SshEvidence,
    derive_state,
)
from imagebuilder.nodes.evidence.seen import Seen

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
BANNER = Observation("ssh", NOW, "answers to ssh: SSH-2.0-OpenSSH_10.0")


def seen(stage: str, ago: timedelta) -> Seen:
    last = (NOW - ago).isoformat()
    return Seen("52:54:00:00:00:01", "n", "gpu", "1", "10.0.0.1", stage, "nfs", last, last)


@pytest.mark.parametrize(
    ("stage", "ago", "probe", "condition", "words"),
    [
        ("switch-root", timedelta(days=3), BANNER, Condition.READY, "answers to ssh: SSH-2.0-Open"),
        (
            "network",
            timedelta(minutes=2),
            None,
            Condition.BOOTING,
            "reached stage network 2 min ago",
        ),
        ("switch-root", timedelta(seconds=9), None, Condition.BOOTING, "left the initrd 9 s ago"),
        ("failed", timedelta(minutes=3), None, Condition.FAILED, "its boot failed 3 min ago"),
        ("root", timedelta(hours=5), None, Condition.SILENT, "last sign 5 h ago, stage root"),
        ("switch-root", timedelta(days=9), None, Condition.SILENT, "last sign 9 days ago"),
        # A clock that runs ahead is no evidence of the future.
        ("network", -timedelta(hours=1), None, Condition.BOOTING, "reached stage network 0 s ago"),
        (
            "switch-root",
            -timedelta(days=400),
            None,
            Condition.SILENT,
            "dated 400 days in the future",
        ),
    ],
)
def test_a_condition_has_a_reason(
    stage: str, ago: timedelta, probe: Observation | None, condition: Condition, words: str
) -> None:
    state = derive_state("n", seen(stage, ago), SshEvidence(probe, NOW), "gpu@2", NOW)
    assert state.condition is condition
    assert words in state.words
    assert (state.release, state.next) == ("gpu@1", "gpu@2")
    assert [each.source for each in state.evidence] == (["ssh", "report"] if probe else ["report"])


def test_nothing_is_said_of_an_ssh_server_that_was_not_asked() -> None:
    for stage, ago in (("root", timedelta(hours=5)), ("switch-root", timedelta(seconds=9))):
        words = derive_state("n", seen(stage, ago), SshEvidence(), "gpu@2", NOW).words
        assert "answer" not in words
        assert "its ssh server was not asked" in words
    state = derive_state("n", None, SshEvidence(), "", NOW)
    assert "answer" not in state.words


def test_a_node_that_was_ready_in_this_boot_is_not_booting() -> None:
    left = seen("switch-root", timedelta(minutes=2))
    ready = NOW - timedelta(minutes=1)
    off = derive_state("n", left, SshEvidence(None, NOW, ready), "gpu@2", NOW)
    assert off.condition is Condition.SILENT
    assert off.words == "does not answer to ssh any more; booted 2 min ago"
    assert derive_state("n", left, SshEvidence(BANNER, NOW, ready), "gpu@2", NOW).ready
    quiet = derive_state("n", left, SshEvidence(ready_since=ready), "gpu@2", NOW)
    assert quiet.condition is Condition.BOOTING


def test_an_answer_from_the_future_is_none() -> None:
    """The clock was set back, and the node has been off since."""
    ahead = NOW + timedelta(days=400)
    ssh = SshEvidence(None, NOW, ahead)
    assert derive_state("n", seen("switch-root", NOW - ahead), ssh, "", NOW).condition is (
        Condition.SILENT
    )
    assert not derive_state("n", seen("switch-root", timedelta(minutes=2)), ssh, "", NOW).ready


def test_an_older_answer_says_nothing_of_a_newer_boot() -> None:
    """The web page asks once a minute, and a node may have rebooted since."""
    before = Observation("ssh", NOW - timedelta(seconds=50), "answers to ssh")
    booting = seen("network", timedelta(seconds=5))
    state = derive_state("n", booting, SshEvidence(before, before.at, before.at), "gpu@2", NOW)
    assert (state.condition, state.words) == (Condition.BOOTING, "reached stage network 5 s ago")
    left = seen("switch-root", timedelta(seconds=5))
    again = SshEvidence(before, before.at, NOW - timedelta(seconds=1))
    assert derive_state("n", left, again, "gpu@2", NOW).ready
    # A report from the future is no newer.
    ahead = seen("network", -timedelta(hours=1))
    assert derive_state("n", ahead, SshEvidence(BANNER, NOW), "gpu@2", NOW).ready
    # Nobody asked since it left its initrd.
    silent = SshEvidence(None, before.at)
    assert "was not asked" in derive_state("n", left, silent, "gpu@2", NOW).words


def test_silence_from_the_start_is_unknown() -> None:
    state = derive_state("n", None, SshEvidence(None, NOW), "", NOW)
    assert (state.condition, state.release, state.evidence) == (Condition.UNKNOWN, "", ())
