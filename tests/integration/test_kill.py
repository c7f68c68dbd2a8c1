# SPDX-License-Identifier: Apache-2.0
"""Builds that are stopped: by Ctrl-C they clean up, by kill -9 they leave nothing that hurts.

IMAGEBUILDER_KILLS is how often test_kill_at_random_moments kills, IMAGEBUILDER_KILLS_SEED repeats
a run of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.integration.changes import change_overlay, leftovers, linked, make_quick, refs
from tests.integration.started import (
    PATIENCE,
    Started,
    find_descendants,
    host_state,
    orphans_are_ours,
    start,
    wait_until,
)
from tests.sampling import times
from tests.workshop import Workshop

pytestmark = pytest.mark.root

KILLS = times(3, 12)
LAST_KEPT = "packages compute-node"
PACKAGES, INITRD = "packages-llama-cpp", "initrd"
ENDED = re.compile(r"^(.+): (?:done in|failed after|interrupted after) ", re.MULTILINE)
SEPARATORS = re.compile("[ /]+")
BUILD = ("build", "generic", "--locked")


@dataclass(frozen=True)
class Rebuild:
    """A build of `generic` from its last packages upwards and of its initrd, again and again.

    `kept` are the layers below; `root` is the commit it must always end with; `seconds` is how
    long it takes.
    """

    shop: Workshop
    kept: frozenset[str]
    root: str
    seconds: float

    def forget(self) -> None:
        """Have the next build make all of it again."""
        top = self.shop.state / "store/refs/heads"
        for ref in refs(self.shop.state).keys() - self.kept:
            (top / ref).unlink()

    def start(self, folder: Path) -> Started:
        """A build under way."""
        return start(self.shop.argv(*BUILD), self.shop.env(), folder)

    def is_at(self, step: str) -> bool:
        """Whether that step is under way."""
        return self.step_under_way() == step

    def step_under_way(self) -> str:
        """The step that wrote a log last, such as `packages-llama-cpp`."""
        logs = sorted(self.shop.state.glob("logs/*/*.log"), key=lambda p: p.stat().st_mtime_ns)
        return logs[-1].stem.partition("-")[2] if logs else ""

    def steps_under_way(self, said: str) -> str:
        """The steps that have a log and whose end is not `said`, such as `initrd, finalise`."""
        ended = {SEPARATORS.sub("-", title) for title in ENDED.findall(said)}
        logs = sorted(self.shop.state.glob("logs/*/*.log"))
        names = [log.stem.partition("-")[2] for log in logs]
        if not names:
            return "(before the first step)"
        return " and ".join(name for name in names if name not in ended) or "(committing)"

    def clear_logs(self) -> None:
        """Drop all logs, so that those of the next build are the only ones."""
        for log in self.shop.state.glob("logs/*/*.log"):
            log.unlink()


def root_of(shop: Workshop) -> str:
    """The commit of the newest image's root."""
    return str(json.loads(shop("show", "generic", "--json").stdout)["root"]["commit"])


@pytest.fixture(scope="module")
def rebuild(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Rebuild:
    """A package more, and an initrd that is made in seconds."""
    shop = linked(workshop, tmp_path_factory.mktemp("kills"))
    make_quick(shop.project)
    change_overlay(shop.project, "llama-cpp", packages=["tree"])
    shop("lock", "generic")
    began = time.monotonic()
    shop(*BUILD)  # it makes what every rebuild makes
    seconds = time.monotonic() - began
    layers = json.loads(shop("show", "generic", "--json").stdout)["layers"]
    titles = [layer["title"] for layer in layers]
    below = [x for x in layers[: titles.index(LAST_KEPT) + 1] if x["title"] != INITRD]
    kept = frozenset(f"layer/{layer['digest']}" for layer in below)
    return Rebuild(shop, kept, root_of(shop), seconds)


@pytest.fixture(autouse=True)
def _nothing_runs_on() -> Iterator[None]:
    """No process of a build outlives it for more than fifteen seconds; the host is as before."""
    before = host_state()
    with orphans_are_ours():
        yield
        wait_until(lambda: not find_descendants(), "processes of a stopped build are left")
    assert host_state() == before


STOPS = (
    (PACKAGES, signal.SIGINT, True),
    (PACKAGES, signal.SIGINT, False),
    (PACKAGES, signal.SIGTERM, False),
    (PACKAGES, signal.SIGHUP, False),
    (INITRD, signal.SIGINT, False),
)


def test_interrupted_build_cleans_up(rebuild: Rebuild, tmp_path: Path) -> None:
    shop = rebuild.shop
    for number, (step, stop, group) in enumerate(STOPS):
        rebuild.forget()
        rebuild.clear_logs()
        running = rebuild.start(tmp_path / str(number))
        wait_until(partial(rebuild.is_at, step), f"{step} did not start")
        time.sleep(0.3)
        running.send(stop, group=group)
        assert running.wait(PATIENCE) == 130, running.stderr
        assert running.stderr.endswith("\ninterrupted\n")
        assert "Traceback" not in running.stderr
        assert running.stdout == ""
        assert leftovers(shop.state, store=False) == []
        assert rebuild.kept <= refs(shop.state).keys()
        wait_until(lambda: not find_descendants(), "processes of an interrupted build are left")
    shop(*BUILD)
    assert leftovers(shop.state) == []
    assert root_of(shop) == rebuild.root


def test_killed_shell_leaves_nothing_running(rebuild: Rebuild, tmp_path: Path) -> None:
    shop = rebuild.shop
    shop(*BUILD)
    words = shop.argv("shell", "generic", "-c", "echo ready; (setsid sleep 1000 &); sleep 1000")
    running = start(words, shop.env(), tmp_path)
    wait_until(lambda: running.stdout == "ready\n", "the shell did not start")
    running.send(signal.SIGKILL)
    assert running.wait(PATIENCE) == -signal.SIGKILL
    wait_until(lambda: not find_descendants(), "the shell runs on")
    assert shop("shell", "generic", "-c", "exit 3", check=False).status == 3
    assert leftovers(shop.state) == []


def test_kill_at_random_moments(
    rebuild: Rebuild, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("IMAGEBUILDER_KILLS_SEED") or time.time())
    count = int(os.environ.get("IMAGEBUILDER_KILLS") or KILLS)
    dice = random.Random(seed)
    before = host_state()
    steps: Counter[str] = Counter()
    for number in range(count):
        rebuild.forget()
        rebuild.clear_logs()
        running = rebuild.start(tmp_path / str(number))
        time.sleep(dice.uniform(0, rebuild.seconds))
        if not killed(running, number, max(PATIENCE, 5 * rebuild.seconds)):
            steps["(it had ended)"] += 1
            continue
        wait_until(lambda: not find_descendants(), f"processes are left of kill {number}")
        assert host_state() == before
        steps[rebuild.steps_under_way(running.stderr)] += 1
    told = ", ".join(f"{step} {times}" for step, times in steps.most_common())
    with capsys.disabled():
        print(f"\n{count - steps['(it had ended)']} of {count} killed mid-run, seed {seed}: {told}")

    shop = rebuild.shop
    rebuild.forget()
    assert "intact: " in shop("fsck").stdout
    shop(*BUILD)
    assert root_of(shop) == rebuild.root
    assert leftovers(shop.state) == []
    assert "intact: 1 image," in shop("fsck").stdout


def killed(running: Started, number: int, seconds: float) -> bool:
    """Kill a build in one of three ways: it alone, its whole group, or one program it runs.

    False if it had ended, which it may do until it is killed.  `seconds` are enough for all of it.
    """
    way = ("alone", "group", "a program")[number % 3]
    programs = find_descendants(running.pid)
    if way == "a program" and programs:
        # As the kernel does when memory is short; the build must see it and end by itself, or goes
        # on to its end if that program was not needed any more.
        with contextlib.suppress(ProcessLookupError):
            os.kill(min(programs), signal.SIGKILL)
        assert running.wait(seconds) in (0, 1), running.stderr
        assert "Traceback" not in running.stderr
        return True
    if running.find_end() is None:
        running.send(signal.SIGKILL, group=way == "group")
        assert running.wait(PATIENCE) in (0, -signal.SIGKILL), running.stderr
    return running.find_end() == -signal.SIGKILL
