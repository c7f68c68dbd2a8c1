# SPDX-License-Identifier: Apache-2.0
"""What a tree knows of its nodes, through everything that the page and roll-outs derive from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from imagebuilder.fleet.health import Verdict
from imagebuilder.fleet.rollout.machine import advance
from imagebuilder.fleet.rollout.types import (
    ROLLOUT,
    Rollout,
    RolloutNode,
    RolloutStage,
    Sight,
)
from imagebuilder.nodes.evidence.boots import BOOTS, BootRecords, NodeBoots, find_fallbacks
from imagebuilder.nodes.evidence.dhcp_clients import DHCP_CLIENTS, DhcpClient, DhcpClientRecords
from imagebuilder.nodes.evidence.health_report import (
    HISTORY,
    HealthChange,
    HealthHistory,
    read_history,
)
from imagebuilder.nodes.evidence.seen import SEEN, HealthReport, Seen
from imagebuilder.recipe.cards import shipped_cards
from imagebuilder.tree import Tree
from imagebuilder.web.snapshot import SnapshotMaker
from tests.fleet_world import NEW, OLD, address_of, mac_of, make_world, name_of

LONG_AGO = "2026-01-02T03:04:05+00:00"
RELEASE = f"rx7600xt@{OLD}"
HEALTH = HealthReport("ok", "", "0" * 8, 60.0, LONG_AGO)
SEEN_TEXT = json.dumps(SEEN.encode(Seen(
    mac_of(1), name_of(1), "rx7600xt", OLD, address_of(1), "switch-root", "nfs", LONG_AGO, LONG_AGO,
    health=HEALTH,
))).encode()  # fmt: skip
BOOTS_TEXT = BOOTS.render(BootRecords((
    NodeBoots(name_of(1), (RELEASE,), {f"rx7600xt@{NEW}": 2}, LONG_AGO, RELEASE, reported=True),
    NodeBoots(name_of(2), (RELEASE,), {}, LONG_AGO, answered=LONG_AGO),
))).encode()  # fmt: skip
ROLLOUT_TEXT = ROLLOUT.render(Rollout(
    "rx7600xt", OLD, NEW, "ada", LONG_AGO,
    tuple(
        RolloutNode(name_of(n), min(n, 2), stage, LONG_AGO, "0" * 8, touched=True)
        for n, stage in enumerate(RolloutStage)
    ),
)).encode()  # fmt: skip
CLIENTS_TEXT = DHCP_CLIENTS.render(DhcpClientRecords((
    DhcpClient("52:54:00:aa:00:01", "PXEClient", 7, "10.77.9.20", LONG_AGO, LONG_AGO),
))).encode()  # fmt: skip
HISTORY_TEXT = HISTORY.render(HealthHistory((
    HealthChange(RELEASE, HEALTH),
    HealthChange(RELEASE, replace(HEALTH, verdict=Verdict.DEGRADED, words="slow")),
))).encode()  # fmt: skip


def placing(find: Callable[[Tree], Path]) -> Callable[[Path], Callable[[bytes], None]]:
    """A fleet of which one file is mutated."""

    def begin(place: Path) -> Callable[[bytes], None]:
        world = make_world(place, racks=1, each=4)
        path = find(world.tree)
        maker = SnapshotMaker(world.tree, world.reports, shipped_cards())

        def take_in(content: bytes) -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            snapshot = maker.take()
            json.dumps([row.as_json() for row in snapshot.rows]).encode()
            json.dumps([each.row(snapshot.at) for each in snapshot.machines]).encode()
            find_fallbacks(world.tree, snapshot.nodes.nodes)
            json.dumps([str(each) for each in read_history(world.tree, name_of(1))]).encode()
            for live in snapshot.rollouts:
                sights = {node.name: Sight(problem="off") for node in live.rollout.nodes}
                advance(live.rollout, sights, OLD, datetime.now(UTC))

        return take_in

    return begin
