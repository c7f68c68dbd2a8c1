# SPDX-License-Identifier: Apache-2.0
"""/metrics is what Prometheus reads, and the dashboard asks for nothing else."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from imagebuilder.fleet.rollout.journal import find_rollouts, rolling_out, save_rollout
from imagebuilder.fleet.rollout.types import RolloutStatus
from imagebuilder.fleet.state import Observation
from imagebuilder.notify.types import SendPatience
from imagebuilder.recipe.model_notify import NotifyModel
from imagebuilder.web.app import make_app
from imagebuilder.web.notify import FleetReporter
from imagebuilder.web.site import WebSite
from tests.fleet_world import BANNER, NEW, OLD, FleetWorld, make_site
from tests.unit.notify.servers import until
from tests.workshop import CHECKOUT

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def read(client: TestClient) -> Samples:
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[f"imagebuilder_{name}", frozenset(labels.items())]


def test_the_numbers_are_those_of_the_fleet(client: TestClient) -> None:
    samples = read(client)
    place = {"node": "node040", "group": "rack2", "profile": "rx7600xt"}
    assert value(samples, "node_condition", **place, condition="failed") == 1
    assert value(samples, "node_condition", **place, condition="ready") == 0
    assert value(samples, "nodes", group="rack2", condition="failed") == 1
    ill = {"node": "node050", "group": "rack2", "profile": "rx7600xt"}
    assert value(samples, "node_health", **ill, verdict="missing device") == 1
    assert value(samples, "node_health", **ill, verdict="ok") == 0
    assert value(samples, "release_nodes", profile="generic", version=OLD) == 2
    assert value(samples, "channel_info", profile="generic", version=NEW, channel="stable") == 1
    assert value(samples, "node_current", node="node015", group="rack1", profile="generic") == 0
    assert value(samples, "web_streams") == 0


def test_an_interrupted_roll_out(world: FleetWorld) -> None:
    world.plant_history()
    (stopped,) = find_rollouts(world.tree)
    with TestClient(make_app(make_site(world), ["testserver"])) as client:
        assert value(read(client), "rollout_interrupted", profile="rx7600xt") == 0
    save_rollout(world.tree, replace(stopped, status=RolloutStatus.RUNNING))
    with TestClient(make_app(make_site(world), ["testserver"])) as client:
        assert value(read(client), "rollout_interrupted", profile="rx7600xt") == 1
    with (
        rolling_out(world.tree, "rx7600xt"),
        TestClient(make_app(make_site(world), ["testserver"])) as client,
    ):
        assert value(read(client), "rollout_interrupted", profile="rx7600xt") == 0


SECRET = "https://chat.example/hook/s3cret"


@pytest.fixture
def reporting(world: FleetWorld, tmp_path: Path) -> Iterator[WebSite]:
    """A site that told of a node; its receivers: one that works, one that fails, one of others."""
    world.plant_history()
    to = {
        "works": {"exec": ["true", SECRET]},
        "fails": {"exec": ["false", SECRET]},
        "others": {"exec": ["true"], "groups": ["rack2"]},
    }
    terms = NotifyModel.model_validate({"gather": 0, "per-hour": 1, "to": to})
    patience = SendPatience(pauses=(600.0,))
    reporter = FleetReporter(world.tree, tmp_path, terms, lambda _: None, env={}, patience=patience)
    site = make_site(world)
    site.watcher.reporter = reporter
    try:
        for number, stage in enumerate(("switch-root", "failed", "switch-root", "failed")):
            if stage == "failed":
                world.answers.pop("node002", None)
            else:
                world.answers["node002"] = Observation("ssh", datetime.now(UTC), BANNER)
            world.report(2, stage, OLD, timedelta(seconds=1), "ok")
            shot = make_site(world).watcher.snapshot
            reporter.update(replace(shot, number=number + 1, probed=datetime.now(UTC)))
        until(lambda: reporter.notifier.lanes["works"].sent == 1)
        until(lambda: reporter.notifier.lanes["fails"].failed == 1)
        yield site
    finally:
        reporter.close()


def test_what_became_of_notifications(reporting: WebSite) -> None:
    with TestClient(make_app(reporting, ["testserver"])) as client:
        samples = read(client)
        assert SECRET not in client.get("/metrics").text
    assert value(samples, "notifications_total", receiver="works", result="sent") == 1
    assert value(samples, "notifications_total", receiver="fails", result="sent") == 0
    assert value(samples, "notifications_total", receiver="fails", result="dropped") == 0
    assert value(samples, "notifications_waiting", receiver="works") == 0
    assert value(samples, "notifications_waiting", receiver="fails") == 1
    assert value(samples, "notification_failures_total", receiver="works") == 0
    assert value(samples, "notification_failures_total", receiver="fails") == 1
    for receiver, suppressed in (("works", 2), ("fails", 2), ("others", 0)):
        name = "notification_suppressed_changes_total"
        assert value(samples, name, receiver=receiver) == suppressed
    last = "notification_last_success_timestamp_seconds"
    assert time.time() - value(samples, last, receiver="works") < 600
    assert {key for key in samples if last in key[0]} == {
        (f"imagebuilder_{last}", frozenset({("receiver", "works")}))
    }


def test_the_dashboard_asks_for_what_there_is(reporting: WebSite) -> None:
    board = json.loads((CHECKOUT / "docs/grafana.json").read_text())
    queried = {
        name
        for panel in board["panels"]
        for target in panel.get("targets", ())
        for name in re.findall(r"imagebuilder_\w+", target["expr"])
    }
    with TestClient(make_app(reporting, ["testserver"])) as client:
        known = {name for name, _ in read(client)}
    assert queried
    assert queried <= known, "each has a sample"
