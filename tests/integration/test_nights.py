# SPDX-License-Identifier: Apache-2.0
"""Nights of a tiny distribution with faults, and a build that has its lock and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from imagebuilder.process import run
from tests.fixtures.aptrepo import WITHOUT_PROXY, keyring, make_key
from tests.nights.plans import TIMES, Kind
from tests.nights.world import World
from tests.sampling import times
from tests.workshop import CHECKOUT, Workshop

pytestmark = pytest.mark.root

SEED = 6
NIGHTS = times(12, 30)


@pytest.mark.slow
def test_nights_with_faults() -> None:
    """All but one end with the newest of everything, and `stable` is valid after each of them.

    `python -m tests.nights --seed N` runs others.
    """
    command = [sys.executable, "-m", "tests.nights", "--seed", f"{SEED}", "--nights", f"{NIGHTS}"]
    done = run(command, env={"PYTHONPATH": os.fspath(CHECKOUT)}, check=False)
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    wrong = {row["plan"]["number"]: row["wrong"] for row in told["rows"] if row["wrong"]}
    assert wrong == {}, done.stderr
    assert told["nights"] == NIGHTS
    assert told["fresh"] >= NIGHTS - 1, done.stderr
    often = {kind: count for kind, count in told["met"].items() if kind != Kind.BROKEN}
    assert min(often.values()) >= min(TIMES, NIGHTS // 10), told["met"]
    assert done.status == 0


def test_a_build_with_a_lock_needs_no_network(tmp_path: Path) -> None:
    """The mirror is gone, and so is what was ever asked of it: the pool is enough."""
    with keyring() as home:
        world = World(tmp_path / "world", make_key(home, "Archive"), nights=1)
        places = world.places
        shop = Workshop(
            places.project, places.state, places.top / "site.yaml", places.disk / "cache"
        )
        near = WITHOUT_PROXY["no_proxy"]
        first = json.loads(shop("build", "alpha", "--json", no_proxy=near).stdout)
        world.close()
    shutil.rmtree(places.disk / "cache")
    for name in ("store", "layers"):
        shutil.rmtree(places.state / name)
    argv = ["unshare", "--net", *shop.argv("build", "alpha", "--locked", "--json")]
    again = json.loads(run(argv, env=shop.env()).stdout)
    assert again["new"]
    assert again["image"] == first["image"]
