# SPDX-License-Identifier: Apache-2.0
"""State and health beside one another: good is only what is both."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from imagebuilder.fleet.health import Health, Verdict
from imagebuilder.fleet.overview import NodeView
from imagebuilder.fleet.state import Condition, NodeState

AT = datetime(2026, 11, 23, tzinfo=UTC)
READY = NodeState("n1", Condition.READY, "answers to ssh", "gpu@1", "gpu@1", ())
OK = Health("n1", Verdict.OK, "3 checks passed", AT, "gpu@1", "b")


@pytest.mark.parametrize("verdict", Verdict)
def test_a_node_is_good_if_it_is_ready_and_healthy(verdict: Verdict) -> None:
    view = NodeView(READY, replace(OK, verdict=verdict))
    assert view.good is (verdict is Verdict.OK)
    assert NodeView(READY, None).good
    assert not NodeView(replace(READY, condition=Condition.SILENT), OK).good


def test_a_row_shows_the_words_that_matter() -> None:
    now = AT + timedelta(minutes=4)
    assert NodeView(READY, OK).row(now) == (
        "n1", "ready", "ok", "4 min ago", "gpu@1", "the same", "answers to ssh",
    )  # fmt: skip
    ill = replace(OK, verdict=Verdict.WRONG, words="ROCm0: MUL_MAT differs")
    assert NodeView(READY, ill).row(now)[2::4] == ("wrong results", "ROCm0: MUL_MAT differs")
    assert NodeView(READY, None).row(now)[2:4] == ("-", "-")
    assert NodeView(replace(READY, release="", next=""), None).row(now)[5] == "nothing"
    assert NodeView(READY, None).as_json()["health"] is None
