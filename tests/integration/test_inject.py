# SPDX-License-Identifier: Apache-2.0
"""Commands whose every change of the file system may fail: the whole is `make inject`."""

from __future__ import annotations

import json
import sys

import pytest

from imagebuilder.process import run
from tests.inject.cases import BUILDING, PUBLISHING
from tests.sampling import ALL, times

pytestmark = pytest.mark.root
SAMPLE, SEED = 8, 20261122
# A build takes seconds: even test-all takes a sample of its points.
BUILDS, BUILT = times(2, 150), tuple(BUILDING) if ALL else ("lock", "build")


def test_spoiled_anywhere_the_state_is_old_or_new_and_the_next_command_works() -> None:
    words = [] if ALL else [f"--sample={SAMPLE}", f"--seed={SEED}"]
    cases = [f"--case={name}" for name in PUBLISHING]
    done = run([sys.executable, "-m", "tests.inject", *cases, *words], check=False)
    told = json.loads(done.stdout)
    assert done.status == 0, done.stderr
    assert told["violations"] == 0
    assert told["runs"] == (told["of"] if ALL else SAMPLE)
    assert told["points"].keys() == PUBLISHING.keys()
    assert min(told["points"].values()) > 5, "calls are no longer counted"


def test_spoiled_anywhere_a_lock_and_a_build_end_in_the_same_image() -> None:
    cases = [f"--case={name}" for name in BUILT]
    words = [f"--sample={BUILDS}", f"--seed={SEED}"]
    done = run([sys.executable, "-m", "tests.inject", *cases, *words], check=False)
    told = json.loads(done.stdout)
    assert done.status == 0, done.stderr
    assert (told["violations"], told["runs"]) == (0, BUILDS)
    assert min(told["points"].values()) > 20, "calls are no longer counted"


@pytest.mark.parametrize(
    ("case", "point", "fault"),
    [
        ("promote", 0, "channels: (('candidate', '20260103000000-00000003'), ('stable', ''))"),
        ("lock", -5, "alpha.lock:"),
    ],
)
def test_what_is_not_moved_in_one_step_is_found(case: str, point: int, fault: str) -> None:
    """A channel that moves in two steps, and a lock that is written in its place."""
    words = ["--plant", f"--case={case}", "--mode=KILL", f"--point={point}"]
    done = run([sys.executable, "-m", "tests.inject", *words], check=False)
    assert done.status == 1, done.stderr
    assert json.loads(done.stdout)["violations"] == 1
    assert fault in done.stderr
