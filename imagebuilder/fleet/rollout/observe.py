# SPDX-License-Identifier: Apache-2.0
"""What is seen of a roll-out's nodes: asked of each over ssh, now, with its known host key.

What a node runs is told by the root that it runs (os-release(5)), not by what it was to boot.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from imagebuilder.fleet.drain import Drainer
from imagebuilder.fleet.health import Health, Verdict, read_health
from imagebuilder.fleet.overview import observe
from imagebuilder.fleet.rollout.types import Rollout, RolloutNode, RolloutStage, Sight
from imagebuilder.fleet.ssh import Said, run_on
from imagebuilder.fleet.state import Condition
from imagebuilder.nodes.types import Node, Nodes
from imagebuilder.tree import NAME, STABLE, Tree

SECONDS = 20.0
QUERY = ("cat", "/proc/sys/kernel/random/boot_id", "/etc/os-release")
IMAGE = re.compile(rf"^IMAGE_(ID|VERSION)=\"?({NAME})\"?$", re.MULTILINE)
WHOLE = (0, 1)  # cat(1) has come to its end; 1: a root of somebody else may lack os-release
WITH_HEALTH = (RolloutStage.CHECKING, RolloutStage.RETURNING)


def reason_of(rollout: Rollout) -> str:
    """What a scheduler is told; it tells our nodes from those that others drained."""
    return f"imagebuilder rollout {rollout.release}"


def observe_nodes(
    tree: Tree,
    rollout: Rollout,
    nodes: Nodes,
    names: Sequence[str],
    drainer: Drainer,
    problems: Mapping[str, str],
) -> dict[str, Sight]:
    """What is seen of each of `names` now; `problems` are what became known of them otherwise."""
    known = {node.name: node for node in nodes.nodes}
    ours = {node.name: node for node in rollout.nodes if node.name in names}
    there = [known[name] for name in ours if name in known]
    said = {one.node: parse_answer(one) for one in run_on(tree, there, QUERY, SECONDS)}
    silent = [node for node in there if not said[node.name].answers]
    for state in observe(tree, silent):
        refused = f"its ssh server answers, but: {said[state.node].problem}"
        words = refused if state.ready else state.words
        booting = state.release if state.condition is Condition.BOOTING else ""
        said[state.node] = replace(said[state.node], problem=words, booting=booting)
    answering = [n for n in there if said[n.name].answers and ours[n.name].stage in WITH_HEALTH]
    for name, health in (read_health(tree, answering) if answering else {}).items():
        said[name] = with_health(said[name], health)
    for name, work in work_on(rollout, ours, drainer).items():
        if name in said:
            said[name] = replace(said[name], work=work)
    return {
        name: replace(
            said.get(name, Sight()),
            changed=find_change(rollout, node, known.get(name)),
            problem=problems.get(name) or said.get(name, Sight()).problem,
        )
        for name, node in ours.items()
    }


def work_on(rollout: Rollout, ours: Mapping[str, RolloutNode], drainer: Drainer) -> dict[str, str]:
    names = [name for name, node in ours.items() if node.stage is RolloutStage.DRAINING]
    return drainer.drain(names, reason_of(rollout)) if names else {}


def with_health(sight: Sight, health: Health) -> Sight:
    """The sight with a verdict; one of another boot or release says nothing of what was seen."""
    if health.boot_id and health.boot_id != sight.boot_id:
        return replace(sight, words="its verdict is of another boot")
    if health.release != sight.release and health.verdict is not Verdict.UNKNOWN:
        words = f"its verdict is of {health.release or 'no release'}"
        return replace(sight, words=words)
    return replace(sight, verdict=health.verdict, words=health.words)


def parse_answer(said: Said) -> Sight:
    """Which boot runs, and which release.

    A node that said no boot id did not answer, nor did one whose answer was cut off: its release
    would look like none of ours.
    """
    boot_id, _, release = said.from_boot_id.partition("\n")
    if said.status is None:
        return Sight(problem="the time ran out")
    if not boot_id or said.status not in WHOLE:
        return Sight(problem=said.last_words)
    found = {key: value for key, value in IMAGE.findall(release)}
    whole = "ID" in found and "VERSION" in found
    return Sight(boot_id, f"{found['ID']}@{found['VERSION']}" if whole else "")


def find_change(rollout: Rollout, node: RolloutNode, now: Node | None) -> str:
    """What a person changed of a node in nodes.yaml since it was chosen; empty for nothing."""
    if now is None:
        return "is no longer in nodes.yaml"
    if now.profile != rollout.profile:
        return f"boots {now.profile} now, according to nodes.yaml"
    ours = ("", rollout.before, rollout.after) if node.touched else ("",)
    if now.version not in ours:
        return f"was pinned to {now.version} by hand"
    if not now.version and now.channel != STABLE:
        return f"follows {now.channel} now, according to nodes.yaml"
    return ""
