# SPDX-License-Identifier: Apache-2.0
"""Roll-outs that drain with the real kubectl; the API server and the nodes' ssh are simulated."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from imagebuilder.errors import WorkError
from imagebuilder.fleet import drain
from imagebuilder.fleet.drain import KubernetesDrain
from imagebuilder.fleet.rollout.show import render_rollout
from imagebuilder.fleet.rollout.types import LiveRollout, RolloutStatus
from tests.integration.kubernetes_server import Cluster, Pod, make_cluster, serving
from tests.unit.fleet.rollout_world import NEW, RolloutWorld, make_world, order

NAMES = ("n1", "n2", "n3")
REASON = f"imagebuilder rollout demo@{NEW}"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster of NAMES with a pod on each, whose configuration is the person's."""
    made = make_cluster([*NAMES], {name.replace("n", "pod-"): Pod(name) for name in NAMES})
    with serving(made):
        (tmp_path / "config").write_text(made.kubeconfig)
        monkeypatch.setenv("KUBECONFIG", os.fspath(tmp_path / "config"))
        monkeypatch.setenv("HOME", os.fspath(tmp_path))
        yield made


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RolloutWorld:
    made = make_world(tmp_path, NAMES)
    monkeypatch.setenv("PATH", f"{made.sim}/path:{os.environ['PATH']}")
    return RolloutWorld(made.top, made.tree, made.env, "kubernetes")


def test_a_rollout_evicts_pods_and_opens_what_it_closed(
    cluster: Cluster, world: RolloutWorld
) -> None:
    cluster.nodes["n3"]["spec"]["unschedulable"] = True
    cluster.pods["logs"] = Pod("n2", "DaemonSet")
    cluster.pods["pod-2"].refusals = 1  # kubectl asks again after 5 s
    done = world.run().go(world.start(order(canary="n1", batch="100%", timeout=120)))
    assert done.status is RolloutStatus.DONE, render_rollout(LiveRollout(done, runs=False))
    assert {name: world.boots(name) for name in NAMES} == {name: [NEW] for name in NAMES}
    assert [*cluster.running()] == ["logs"]
    assert [name for name in NAMES if cluster.is_closed(name)] == ["n3"]
    assert not any(cluster.notes(name) for name in NAMES)


def test_a_pod_that_may_not_go_keeps_its_node_from_being_rebooted(
    cluster: Cluster, world: RolloutWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "EVICTION", "2s")
    cluster.pods["pod-2"].refusals = 10**6
    cluster.pods["pod-3"].owner = ""  # nothing would start it anywhere else
    done = world.run().go(
        world.start(order(canary="n1", batch="100%", timeout=120, drain_timeout=30))
    )
    assert [node.stage.value for node in done.nodes] == ["done", "left alone", "left alone"]
    why = [node.why for node in done.nodes]
    assert re.search("could not be drained in time: .*(disruption budget|timeout)", why[1])
    assert re.search("could not be drained in time: .*cannot delete Pods", why[2])
    assert [world.boots(name) for name in NAMES] == [[NEW], [], []]
    assert not any(cluster.is_closed(name) or cluster.notes(name) for name in NAMES)
    assert {*cluster.running()} == {"pod-2", "pod-3"}


def test_only_what_we_closed_for_this_reason_is_opened(cluster: Cluster) -> None:
    kubernetes = KubernetesDrain()
    assert kubernetes.drain(["n1", "n2"], REASON) == {"n1": "", "n2": ""}
    kubernetes.resume(["n1", "n2", "n3"], "imagebuilder rollout demo@another")
    assert [name for name in NAMES if cluster.is_closed(name)] == ["n1", "n2"]
    kubernetes.resume(["n1", "n2", "n3"], REASON)
    assert not any(cluster.is_closed(name) or cluster.notes(name) for name in NAMES)


def test_a_cluster_that_does_not_know_a_node_has_nothing_touched(
    cluster: Cluster, world: RolloutWorld
) -> None:
    before = world.tree.nodes_file.read_text()
    del cluster.nodes["n3"]
    with pytest.raises(WorkError, match=r'^n3: kubectl failed: .*nodes "n3" not found'):
        world.start(order())
    cluster.port = 0
    Path(os.environ["KUBECONFIG"]).write_text(cluster.kubeconfig)
    with pytest.raises(WorkError, match=r"kubectl failed: "):
        world.start(order())
    assert world.tree.nodes_file.read_text() == before
    assert not any(line.startswith(("PATCH", "POST")) for line in cluster.asked)
