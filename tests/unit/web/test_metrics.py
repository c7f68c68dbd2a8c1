# SPDX-License-Identifier: Apache-2.0
"""/metrics is what Prometheus reads, and the dashboard asks for nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from tests.fleet_world import NEW, OLD
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


def test_the_dashboard_asks_for_what_there_is(client: TestClient) -> None:
    board = json.loads((CHECKOUT / "docs/grafana.json").read_text())
    asked = {
        name
        for panel in board["panels"]
        for target in panel.get("targets", ())
        for name in re.findall(r"imagebuilder_\w+", target["expr"])
    }
    text = client.get("/metrics").text
    known = {*re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)}
    assert asked
    assert asked <= known
