# SPDX-License-Identifier: Apache-2.0
"""`imagebuilder web` tells of nodes, over restarts, and never more slowly shows its pages."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import requests

from imagebuilder.fleet.rollout.journal import find_rollout, rolling_out, save_rollout
from imagebuilder.fleet.rollout.types import RolloutStage, RolloutStatus
from imagebuilder.fleet.state import Observation
from imagebuilder.notify.types import SendPatience
from imagebuilder.recipe.model_notify import NotifyModel
from imagebuilder.ui import Ui
from imagebuilder.web.notify import FleetReporter, find_sights, fleet_reporter, state_of
from imagebuilder.web.notify_record import FILE, FOLDER
from imagebuilder.web.site import WebSite
from tests.fleet_world import BANNER, OLD, FleetWorld, make_site, name_of, serving
from tests.unit.notify.servers import until, web_server

JUST = timedelta(seconds=1)
SOON = SendPatience(answer=20.0, pauses=(0.2,))


class ReceiverWorld:
    """A receiver that appends to a file, and the server's part that tells it."""

    def __init__(self, world: FleetWorld, top: Path) -> None:
        self.world, self.got = world, top / "got"
        self.state = top / FOLDER
        self.state.mkdir()
        self.site = NotifyModel.model_validate(
            {"gather": 0, "silent-after": 0,
             "to": {"r": {"exec": ["sh", "-c", f"cat >> {self.got}"]}}}
        )  # fmt: skip
        self.number = 0

    @contextmanager
    def running(self) -> Iterator[FleetReporter]:
        """From start to end of a server."""
        self.number = 0
        reporter = FleetReporter(
            self.world.tree, self.state, self.site, pytest.fail, env={}, patience=SOON
        )
        try:
            yield reporter
            until(lambda: not any(lane.messages for lane in reporter.notifier.lanes.values()))
        finally:
            reporter.close()

    def update(self, reporter: FleetReporter) -> None:
        self.number += 1
        snapshot = make_site(self.world).watcher.snapshot
        reporter.update(replace(snapshot, number=self.number, probed=datetime.now(UTC)))

    @property
    def told(self) -> list[str]:
        lines = self.got.read_text().splitlines() if self.got.exists() else []
        return [json.loads(line)["text"].removeprefix("imagebuilder: ") for line in lines]


@pytest.fixture
def receiver(world: FleetWorld, tmp_path: Path) -> ReceiverWorld:
    return ReceiverWorld(world, tmp_path)


def break_node(world: FleetWorld, index: int) -> None:
    world.answers.pop(name_of(index), None)
    world.report(index, "failed", OLD, JUST)


def repair(world: FleetWorld, index: int) -> None:
    world.report(index, "switch-root", OLD, JUST, "ok")
    world.answers[name_of(index)] = Observation("ssh", datetime.now(UTC), BANNER)


def test_the_past_is_not_news_and_the_present_is(receiver: ReceiverWorld) -> None:
    with receiver.running() as reporter:
        receiver.update(reporter)  # some nodes are failed, ill and silent
        break_node(receiver.world, 2)
        receiver.update(reporter)
        repair(receiver.world, 2)
        receiver.update(reporter)
    assert len(receiver.told) == 2
    assert receiver.told[0].startswith("1 node failed to boot: node002 (its boot failed")
    assert receiver.told[1].startswith("1 node is ready again: node002")
    assert (receiver.state / FILE).stat().st_mode & 0o777 == 0o600


def test_a_restart_tells_nothing_twice_and_loses_nothing(receiver: ReceiverWorld) -> None:
    with receiver.running() as reporter:
        receiver.update(reporter)
        break_node(receiver.world, 2)
        receiver.update(reporter)
    break_node(receiver.world, 4)  # while no server runs
    with receiver.running() as reporter:
        receiver.update(reporter)
    with receiver.running() as reporter:
        receiver.update(reporter)
    assert [text.partition(" (")[0] for text in receiver.told] == [
        "1 node failed to boot: node002", "1 node failed to boot: node004",
    ]  # fmt: skip


def test_what_was_not_sent_is_sent_by_the_next_server(
    world: FleetWorld, receiver: ReceiverWorld
) -> None:
    with web_server(500) as server:
        receiver.site = NotifyModel.model_validate(
            {"gather": 0, "to": {"hook": {"webhook": server.address}}}
        )
        reporter = FleetReporter(world.tree, receiver.state, receiver.site, pytest.fail, env={})
        receiver.update(reporter)
        break_node(world, 2)
        receiver.update(reporter)
        until(lambda: len(server.requests) == 1)
        reporter.close()
        server.statuses[:] = [200]
        with receiver.running() as reporter:
            until(lambda: len(server.requests) == 2)
            receiver.update(reporter)
        first, second = (body for _, body in server.requests)
        assert first == second, "also its id, by which a receiver knows it again"
        with receiver.running() as reporter:
            receiver.update(reporter)
        assert len(server.requests) == 2


def test_nothing_is_told_before_nodes_were_asked(site: WebSite, receiver: ReceiverWorld) -> None:
    with receiver.running() as reporter:
        receiver.update(reporter)
        nobody = replace(site.watcher.snapshot, probed=None, rows=(), number=9)
        receiver.number = 9
        reporter.update(nobody)
        receiver.update(reporter)
    assert receiver.told == []


def test_nodes_that_a_roll_out_has_in_hand_are_its_to_report(world: FleetWorld) -> None:
    world.plant_history()
    rollout = find_rollout(world.tree, "rx7600xt")
    assert rollout
    nodes = (replace(rollout.nodes[0], stage=RolloutStage.REBOOTING), *rollout.nodes[1:])
    save_rollout(world.tree, replace(rollout, status=RolloutStatus.RUNNING, nodes=nodes))
    assert find_sights(make_site(world).watcher.snapshot)[0].state is not None, "nobody runs it"
    with rolling_out(world.tree, "rx7600xt"):
        assert find_sights(make_site(world).watcher.snapshot)[0].state is None
        assert find_sights(make_site(world).watcher.snapshot)[1].state is not None


def test_states_of_nodes(world: FleetWorld) -> None:
    found = {str(state_of(row)) for row in make_site(world).watcher.snapshot.rows}
    assert found == {"failed", "ill", "silent", "ready", "None"}
    row = next(r for r in make_site(world).watcher.snapshot.rows if state_of(r) == "ready")
    view = replace(row.view, state=replace(row.view.state, fell_back=True))
    assert state_of(replace(row, view=view)) == "fell-back"


def test_a_damaged_file_or_one_of_another_tree_begins_anew(receiver: ReceiverWorld) -> None:
    warnings: list[str] = []
    (receiver.state / FILE).write_text("{")
    reporter = FleetReporter(
        receiver.world.tree, receiver.state, receiver.site, warnings.append, env={}
    )
    receiver.update(reporter)
    reporter.close()
    assert "starting over" in warnings[0]
    text = (receiver.state / FILE).read_text().replace(str(receiver.world.tree.path), "/elsewhere")
    (receiver.state / FILE).write_text(text)
    with receiver.running() as reporter:
        receiver.update(reporter)
    assert receiver.told == []


def test_a_second_server_says_that_it_cannot_tell_and_serves(receiver: ReceiverWorld) -> None:
    tree, top, site = receiver.world.tree, receiver.state.parent, receiver.site
    first_says, second_says = io.StringIO(), io.StringIO()
    with (
        fleet_reporter(tree, top, site, 60.0, Ui(first_says)) as first,
        fleet_reporter(tree, top, site, 60.0, Ui(second_says)) as second,
    ):
        assert first is not None
        assert second is None
    assert first_says.getvalue() == ""
    assert "another imagebuilder web" in second_says.getvalue()


@pytest.mark.parametrize(
    ("kind", "warning"), [("node-failed", "with --ask 0 nobody knows"), ("rollout-interrupted", "")]
)
def test_who_asks_no_node_tells_of_roll_outs_alone(
    receiver: ReceiverWorld, kind: str, warning: str
) -> None:
    site = NotifyModel.model_validate({"to": {"r": {"exec": ["x"], "kinds": [kind]}}})
    said = io.StringIO()
    tree, top = receiver.world.tree, receiver.state.parent
    with fleet_reporter(tree, top, site, 0.0, Ui(said)) as reporter:
        assert reporter is not None
    assert warning in said.getvalue()
    assert bool(said.getvalue()) is bool(warning)


def test_without_a_receiver_of_its_kinds_a_server_keeps_nothing(receiver: ReceiverWorld) -> None:
    site = NotifyModel.model_validate({"to": {"r": {"exec": ["x"], "kinds": ["nightly-failed"]}}})
    tree, top = receiver.world.tree, receiver.state.parent
    with fleet_reporter(tree, top, site, 60.0, Ui(io.StringIO())) as none:
        assert none is None


def test_metrics_and_pages_of_a_server_whose_receiver_hangs(receiver: ReceiverWorld) -> None:
    receiver.site = NotifyModel.model_validate(
        {"gather": 0, "to": {"bad": {"exec": ["sleep", "600"]}}}
    )
    reporter = FleetReporter(
        receiver.world.tree, receiver.state, receiver.site, lambda _: None, env={}
    )
    site = make_site(receiver.world)
    site.watcher.reporter = reporter
    try:
        with serving(site) as address:
            until(lambda: (receiver.state / FILE).exists())
            break_node(receiver.world, 2)
            until(lambda: bool(reporter.notifier.lanes["bad"].messages))
            begun = time.monotonic()
            page = requests.get(address, timeout=10)
            assert page.ok
            assert time.monotonic() - begun < 5
            until(lambda: 'waiting{receiver="bad"} 1.0' in metrics(address))
            assert 'notifications_total{receiver="bad",result="sent"} 0.0' in metrics(address)
    finally:
        reporter.close()


def metrics(address: str) -> str:
    return requests.get(f"{address}/metrics", timeout=10).text
