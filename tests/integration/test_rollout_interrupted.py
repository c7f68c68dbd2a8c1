# SPDX-License-Identifier: Apache-2.0
"""A roll-out whose process is killed: receivers are told once, by whoever finds out first."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.errors import WorkError
from imagebuilder.fleet.rollout.journal import (
    find_live,
    find_live_rollouts,
    rolling_out,
    save_rollout,
)
from imagebuilder.fleet.rollout.types import Rollout, RolloutStatus
from imagebuilder.locks import file_lock
from imagebuilder.process import Completed, run
from imagebuilder.recipe.cards import shipped_cards
from imagebuilder.recipe.model_notify import NotifyModel
from imagebuilder.tree import make_tree
from imagebuilder.web.notify import FleetReporter
from imagebuilder.web.notify_record import FOLDER
from imagebuilder.web.snapshot import SnapshotMaker
from tests.integration.started import PATIENCE
from tests.unit.fleet.rollout_world import UNTESTED, make_world
from tests.unit.notify.servers import until
from tests.workshop import CHECKOUT

PROGRAM = (sys.executable, "-m", "imagebuilder.cli.main")
TEXT = (
    "imagebuilder: roll-out of demo@20260102-ab to 2 nodes interrupted: 1 waiting, 1 draining; "
    "run imagebuilder rollout resume demo to continue it, or rollout abort demo to take its nodes "
    "back"
)


class Watched:
    """A roll-out that waits for work to end, a receiver, and what may tell it."""

    def __init__(self, top: Path) -> None:
        self.top, self.world = top, make_world(top / "world", ("n1", "n2"))
        self.state, self.got = top / "state", top / "got"
        (self.state / FOLDER).mkdir(parents=True)
        receiver = {"exec": ["sh", "-c", f"cat >> {self.got}"], "kinds": ["rollout-interrupted"]}
        self.site = NotifyModel.model_validate({"to": {"r": receiver}})
        (top / "site.yaml").write_text(json.dumps({"notify": {"to": {"r": receiver}}}))
        (self.world.sim / "nodes/n1/jobs").write_text("a job\n" * 6000)

    @property
    def env(self) -> dict[str, str]:
        path = f"{self.world.sim}/path:{os.environ['PATH']}"
        site, tree = self.top / "site.yaml", self.world.tree.path
        return {"PATH": path, "IMAGEBUILDER_SITE": str(site), "IMAGEBUILDER_TREE": str(tree)}

    @contextmanager
    def beside(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """A process of `rollout`, which does not outlive this."""
        argv = [*PROGRAM, "--state", str(self.state), "rollout", *words]
        env = {**os.environ, **self.env}
        with subprocess.Popen(argv, cwd=CHECKOUT, env=env, stderr=subprocess.PIPE) as running:
            try:
                yield running
            finally:
                running.kill()

    @contextmanager
    def rolling_out(self) -> Iterator[subprocess.Popen[bytes]]:
        """The process of a roll-out, once a node is drained."""
        words = ["demo", "--drain", str(self.world.sim / "scheduler"), "--untested", UNTESTED]
        with self.beside(*words) as running:
            assert running.stderr
            assert b"n1: draining\n" in iter(running.stderr.readline, b"")
            yield running

    def kill(self) -> None:
        with self.rolling_out() as running:
            running.kill()

    def type(self, *words: str) -> Completed:
        argv = [*PROGRAM, "--state", str(self.state), "rollout", *words]
        return run(argv, env=self.env, cwd=CHECKOUT, check=False)

    def serve(self) -> None:
        """What a web server does from its start to its end."""
        reporter = FleetReporter(
            self.world.tree, self.state / FOLDER, self.site, pytest.fail, env={}
        )
        maker = SnapshotMaker(self.world.tree, self.top / "reports", shipped_cards())
        try:
            reporter.update(maker.take())
            reporter.update(maker.take())
            until(lambda: not any(lane.messages for lane in reporter.notifier.lanes.values()))
        finally:
            reporter.close()

    @property
    def told(self) -> list[str]:
        lines = self.got.read_text().splitlines() if self.got.exists() else []
        return [str(json.loads(line)["text"]) for line in lines]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_the_web_server_tells_once_whatever_is_started_later(watched: Watched) -> None:
    with watched.rolling_out() as running:
        watched.serve()
        assert watched.told == [], "it runs"
        running.kill()
    watched.serve()
    assert watched.told == [TEXT]
    body = json.loads(watched.got.read_text())
    assert body["kinds"] == ["rollout-interrupted"]
    rollout = body["rollout"]
    assert (rollout["status"], rollout["interrupted"]) == ("running", True)
    assert rollout["counts"] == {"waiting": 1, "draining": 1}
    watched.serve()
    assert watched.type("none").status == 2
    assert watched.told == [TEXT]


def test_the_next_command_tells_once_and_the_web_server_is_silent_then(watched: Watched) -> None:
    watched.kill()
    assert watched.type("none").status == 2
    assert watched.told == [TEXT]
    assert watched.type("none").status == 2
    watched.serve()
    assert watched.told == [TEXT]


def test_a_web_server_without_a_receiver_leaves_it_to_a_command(watched: Watched) -> None:
    watched.kill()
    wanted = watched.site
    watched.site = NotifyModel.model_validate({"to": {"r": {"exec": ["x"], "kinds": ["node-ill"]}}})
    watched.serve()
    assert watched.type("none").status == 2
    assert watched.told == [TEXT]
    watched.site = wanted
    watched.serve()
    assert watched.told == [TEXT]


def test_the_next_nightly_run_tells_once(watched: Watched) -> None:
    """Before it does anything else: here another one is in progress."""
    watched.kill()
    argv = [*PROGRAM, "--state", str(watched.state), "nightly", "minimal"]
    env = {**watched.env, "IMAGEBUILDER_SUDO": "never"}
    with file_lock(watched.state / "locks/nightly"):
        for _ in range(2):
            assert run(argv, env=env, cwd=CHECKOUT, check=False).status == 3
            assert watched.told == [TEXT]
    watched.serve()
    assert watched.told == [TEXT]


def test_status_says_so(watched: Watched) -> None:
    watched.kill()
    status = watched.type("status", "demo")
    assert status.status == 1
    assert "\ninterrupted while running\n" in status.stdout
    assert "run by" not in status.stdout
    assert status.stdout.endswith(f"\n\n{TEXT.rpartition('; ')[2]}\n")
    assert json.loads(watched.type("status", "--json").stdout)[0]["interrupted"] is True
    assert watched.told == [], "who only looks tells nobody"


def test_one_that_is_interrupted_twice_is_told_of_twice(watched: Watched) -> None:
    watched.kill()
    watched.serve()
    with watched.beside("resume", "demo") as running:
        until(lambda: find_live_rollouts(watched.world.tree)[0].runs)
        until(lambda: str(running.pid) in find_live_rollouts(watched.world.tree)[0].process)
        running.kill()
    watched.serve()
    assert watched.told == [TEXT, TEXT]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_process_that_is_asked_to_end_tells_it_itself(
    watched: Watched, number: signal.Signals
) -> None:
    with watched.rolling_out() as running:
        running.send_signal(number)
        assert running.wait(PATIENCE) == 130
    assert watched.told == [TEXT]
    watched.serve()
    assert watched.type("none").status == 2
    assert watched.told == [TEXT]


def test_what_is_paused_or_over_is_not_interrupted(watched: Watched) -> None:
    with watched.rolling_out() as running:
        assert watched.type("pause", "demo").status == 0
        (watched.world.sim / "nodes/n1/idle").touch()
        running.wait(PATIENCE)
    assert find_live_rollouts(watched.world.tree)[0].rollout.status == "paused"
    watched.serve()
    assert watched.type("resume", "demo").status == 0
    watched.serve()
    assert watched.told == []
    assert not find_live_rollouts(watched.world.tree)[0].interrupted


def test_one_that_ends_while_it_is_read_is_not_interrupted(tmp_path: Path) -> None:
    """Its journal was read before its end, and its lock after it."""
    tree = make_tree(tmp_path / "tree")
    running = Rollout("demo", "1", "2", "ada", "2026-11-23T02:00:00+00:00", ())
    done = replace(running, status=RolloutStatus.DONE)
    save_rollout(tree, done)
    live = find_live(tree, running)
    assert (live.rollout, live.interrupted) == (done, False)


def test_who_checks_whether_it_runs_keeps_nobody_from_running_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imagebuilder.fleet.rollout.journal.MOMENT", 2.0)
    tree = make_tree(tmp_path / "tree")
    begun, never = threading.Event(), threading.Event()

    def check() -> None:
        with file_lock(tree.lock("rollout-demo")):
            begun.set()
            never.wait(0.2)

    thread = threading.Thread(target=check)
    thread.start()
    assert begun.wait(PATIENCE)
    with rolling_out(tree, "demo"):
        thread.join()
        with pytest.raises(WorkError, match="in progress"), rolling_out(tree, "demo"):
            pass
