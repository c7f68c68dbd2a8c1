# SPDX-License-Identifier: Apache-2.0
"""Releases rolled out to three machines that boot for real: `make rollouts` (an hour emulated).

The tests follow one another: what one leaves, the next begins with.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from imagebuilder.nodes.references import find_version
from imagebuilder.tree import STABLE, Tree
from tests.rollout.releases import BROKEN, PROFILE, UNTESTED
from tests.rollout.world import NAMES, World

# An emulated node reboots in one to two minutes, and falls back by itself after three boots.
TIMEOUT = ("--timeout", "240")
CANARIES = {name: NAMES[number % len(NAMES)] for number, name in enumerate(BROKEN)}


def note(kept: Path, what: str, seconds: float, log: str = "") -> None:
    """Keep how long something took, and its log."""
    path = kept / "figures.json"
    figures = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**figures, what: round(seconds)}, indent=2))
    (kept / f"{what.replace(' ', '-')}.log").write_text(log)
    print(f"## {what}: {seconds:.0f} s\n{log}", flush=True)


def stable(world: World) -> str:
    """The version of that channel."""
    return find_version(Tree(world.server.tree), PROFILE, STABLE)


def test_nodes_boot_the_old_release(three: World, kept: Path) -> None:
    old = dict.fromkeys(NAMES, three.releases.old)
    took = three.await_that(lambda: three.versions() == old, "not every node came up")
    took += three.await_that(lambda: three.type("status").status == 0, "not every node is healthy")
    note(kept, "first boot", took, three.type("status").stdout)


def test_nodes_are_shut_down_and_switched_on_each_in_its_own_way(three: World, kept: Path) -> None:
    before = three.running()
    started = time.monotonic()
    down = three.type("down", "@all", "--yes")
    stands = {name: m.command("info status") for name, m in three.machines.items()}
    states = three.type("status").stdout
    up = three.type("up", "@all")
    log = down.stdout + down.stderr + states + up.stdout + up.stderr
    note(kept, "down and up", time.monotonic() - started, log)
    assert (down.status, up.status) == (0, 0)
    assert set(stands.values()) == {"VM status: paused (shutdown)"}
    after = three.running()
    assert {name: version for name, (version, _) in after.items()} == dict.fromkeys(
        NAMES, three.releases.old
    )
    assert not {boot for _, boot in before.values()} & {boot for _, boot in after.values()}


def test_good_release_reaches_every_node_and_becomes_stable(three: World, kept: Path) -> None:
    new = three.releases.new
    started = time.monotonic()
    done = three.type("rollout", f"{PROFILE}@{new}", *UNTESTED, *TIMEOUT)
    note(kept, "good release", time.monotonic() - started, done.stdout + done.stderr)
    assert done.status == 0
    assert three.versions() == dict.fromkeys(NAMES, new)
    assert stable(three) == new
    assert "version:" not in (three.server.tree / "nodes.yaml").read_text()


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_release_stops_at_its_canary_and_all_nodes_end_on_the_good_one(
    three: World, kept: Path, fault: str
) -> None:
    canary, broken = CANARIES[fault], three.releases.broken[fault]
    before = three.running()
    started = time.monotonic()
    done = three.type("rollout", f"{PROFILE}@{broken}", "--canary", canary, *UNTESTED, *TIMEOUT)
    told = three.type("rollout", "status", PROFILE)
    log = done.stdout + done.stderr + told.stdout
    note(kept, f"release that {fault}", time.monotonic() - started, log)
    assert (done.status, told.status) == (1, 1)
    assert re.search(rf"{canary}: .*({BROKEN[fault].says})", told.stdout)
    assert stable(three) == three.releases.new
    good = dict.fromkeys(NAMES, three.releases.new)
    three.await_that(
        lambda: three.versions() == good, f"not every node runs the good release: {log}"
    )
    after = three.running()
    assert {name for name in NAMES if before[name] != after[name]} == {canary}


def test_node_falls_back_by_itself_from_a_release_that_never_boots(
    three: World, kept: Path
) -> None:
    good, broken = three.releases.new, three.releases.broken["panics"]
    assert three.type("rollout", "abort", PROFILE).status == 0
    before = three.running()
    three.type("promote", f"{PROFILE}@{broken}", *UNTESTED)
    assert stable(three) == broken
    started = time.monotonic()
    three.machines["node3"].power_cycle()

    def fell_back() -> bool:
        now = three.running()
        return len(now) == len(NAMES) and now["node3"] != before["node3"]

    three.await_that(fell_back, "node3 did not come back")
    after, told = three.running(), three.type("status")
    note(kept, "fallback", time.monotonic() - started, told.stdout)
    assert {name: version for name, (version, _) in after.items()} == dict.fromkeys(NAMES, good)
    assert {name for name in NAMES if before[name] != after[name]} == {"node3"}
    assert f"fell back from {broken}" in told.stdout
    three.type("rollback", PROFILE)
    assert stable(three) == good
