# SPDX-License-Identifier: Apache-2.0
"""Release + nodes -> Rollout: everything that can be wrong is said before a node is touched."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from imagebuilder.errors import InputError, WorkError
from imagebuilder.fleet.drain import choose_drainer
from imagebuilder.fleet.power.choose import CAN, choose_drivers
from imagebuilder.fleet.rollout.journal import PAUSE, find_rollout
from imagebuilder.fleet.rollout.observe import QUERY, SECONDS, parse_answer
from imagebuilder.fleet.rollout.pins import pin_nodes
from imagebuilder.fleet.rollout.types import Rollout, RolloutNode, RolloutStatus, RolloutTerms
from imagebuilder.fleet.select import fold, select_nodes
from imagebuilder.fleet.ssh import run_on
from imagebuilder.nodes.edit import read
from imagebuilder.nodes.load import load_nodes
from imagebuilder.nodes.references import find_version
from imagebuilder.nodes.types import Node, Nodes
from imagebuilder.publish.channel.gate import check_reason, pass_gate
from imagebuilder.publish.find import find_profile, find_release
from imagebuilder.publish.journal import find_person
from imagebuilder.publish.release.content import check_release
from imagebuilder.tree import CANDIDATE, STABLE, ReleaseName, Tree
from imagebuilder.ui import Ui

SHARE = re.compile(r"(\d{1,6})(%?)")
CUT = ("off", "on")  # what a power cut is made of


@dataclass(frozen=True)
class RolloutOrder:
    """What a person typed: PROFILE[@VERSION], the set of canaries (empty: the first node that
    answers), the size of the batch (`25%` or a number), and the terms.
    """

    name: str
    terms: RolloutTerms
    canary: str = ""
    batch: str = "25%"


def make_rollout(tree: Tree, order: RolloutOrder, env: Mapping[str, str], ui: Ui) -> Rollout:
    """The roll-out at its beginning.  The caller has its lock and writes it down.

    Raises InputError, WorkError when the release may not become stable, HostError.
    """
    parse_share(order.batch, 1)
    check_reason(order.terms.untested)
    release, before = choose_releases(tree, order.name)
    earlier = find_earlier(tree, release.profile)
    nodes, ours = load_nodes(tree), touched_by(earlier)
    chosen = choose_nodes(nodes, release, before, earlier)
    canaries = choose_canaries(tree, order.canary, nodes, chosen)
    choose_drainer(order.terms.drain).check([node.name for node in chosen])
    powered = [node for node in chosen if {*CUT} <= {*CAN.get(node.power.driver, ())}]
    choose_drivers(powered, {}, env, CUT)
    check_release(tree, release)
    pass_gate(tree, release, ui, untested=order.terms.untested)
    if earlier:  # pins that it left
        pin_nodes(tree, earlier, dict.fromkeys(ours, ""))
    channels = explicit_channels(tree)
    size = parse_share(order.batch, len(chosen) - len(canaries))
    others = [node for node in chosen if node.name not in canaries]
    phases = {**dict.fromkeys(canaries, 0), **{n.name: 1 for n in others[:size]}}
    return Rollout(
        profile=release.profile,
        before=before,
        after=release.version,
        by=find_person(env),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        terms=order.terms,
        nodes=tuple(
            RolloutNode(
                node.name,
                phases.get(node.name, 2),
                channel=channels.get(node.name, ""),
                powered=node in powered,
            )
            for node in chosen
        ),
    )


def parse_share(text: str, total: int) -> int:
    """How many of `total` nodes `25%` or `4` are: one at least.  Raises InputError."""
    match = SHARE.fullmatch(text)
    number = int(match[1]) if match else 0
    if not match or not number or (match[2] and number > 100):
        raise InputError(f"--batch {text}: is not a share of nodes", hint="write 25% or 4")
    return min(total, math.ceil(total * number / 100) if match[2] else number)


def choose_releases(tree: Tree, name: str) -> tuple[ReleaseName, str]:
    """The release to roll out, and the version that is stable.  Raises InputError."""
    profile, _, version = name.partition("@")
    find_profile(tree, profile)
    version = version or find_version(tree, profile, CANDIDATE)
    before = find_version(tree, profile, STABLE)
    if not version:
        hint = f"name a version: imagebuilder rollout {profile}@VERSION"
        raise InputError(f"{profile} has no candidate", hint=hint)
    release = find_release(tree, f"{profile}@{version}")
    if not before:
        what = f"{profile} has no stable release to go back to"
        raise InputError(what, hint=f"run imagebuilder promote {release} to make it the first one")
    if before == release.version:
        raise InputError(
            f"{release} is stable already: nodes get it at their next boot",
            hint=f"run imagebuilder restart @profile:{profile} to reboot them all; to begin with "
            f"one node, run imagebuilder rollback {profile} and imagebuilder rollout {release}",
        )
    return release, before


def find_earlier(tree: Tree, profile: str) -> Rollout | None:
    """The roll-out before this one, which must have ended.  Raises WorkError."""
    earlier = find_rollout(tree, profile)
    if earlier and not earlier.ended:
        raise WorkError(
            f"a roll-out of {earlier.release} by {earlier.by} since {earlier.started} is "
            f"{earlier.status.value} and not finished",
            hint=f"run imagebuilder rollout resume {profile} to continue it, or rollout abort "
            f"{profile} to take its nodes back",
        )
    return earlier


def touched_by(earlier: Rollout | None) -> set[str]:
    """The names of nodes that may have a pin of an earlier roll-out."""
    return {node.name for node in earlier.nodes if node.touched} if earlier else set()


def find_followers(nodes: Nodes, profile: str, before: str, earlier: Rollout | None) -> list[Node]:
    """The nodes of the profile that follow stable, or have a pin of an earlier roll-out."""
    ours = touched_by(earlier)
    left = ("", before, earlier.after) if earlier else ("",)
    return [
        node
        for node in nodes.nodes
        if node.profile == profile
        and (
            (not node.version and node.channel == STABLE)
            or (node.name in ours and node.version in left)
        )
    ]


def choose_nodes(
    nodes: Nodes, release: ReleaseName, before: str, earlier: Rollout | None
) -> list[Node]:
    """The same; Raises InputError when there is none."""
    if chosen := find_followers(nodes, release.profile, before, earlier):
        return chosen
    boots = [node for node in nodes.nodes if node.profile == release.profile]
    if boots:
        what = f"no node follows stable of {release.profile}: each is pinned or follows candidate"
        raise InputError(what, hint=f"they are {fold(node.name for node in boots)}")
    raise InputError(
        f"no node boots {release.profile}",
        hint=f"run imagebuilder promote {release}; imagebuilder nodes list shows which nodes exist",
    )


def choose_canaries(tree: Tree, word: str, nodes: Nodes, chosen: Sequence[Node]) -> list[str]:
    """The nodes of the first phase, which have to answer now.  Raises InputError."""
    named = [*select_nodes([word], nodes)] if word else [*chosen]
    if strange := [node.name for node in named if node not in chosen]:
        what = f"--canary {fold(strange)}: does not follow stable of this profile"
        raise InputError(what, hint=f"these do: {fold(node.name for node in chosen)}")
    sights = {s.node: parse_answer(s) for s in run_on(tree, named, QUERY, SECONDS)}
    there = [node.name for node in named if sights[node.name].answers]
    silent = [node.name for node in named if not sights[node.name].answers]
    if word and silent:
        what = f"--canary {fold(silent)}: cannot be logged in to: {sights[silent[0]].problem}"
        raise InputError(what, hint="run imagebuilder status to see which nodes are ready")
    if not there:
        what = f"none of {fold(silent)} can be logged in to: {sights[silent[0]].problem}"
        raise InputError(what, hint="run imagebuilder status to see why")
    return there if word else there[:1]


def explicit_channels(tree: Tree) -> dict[str, str]:
    """The key `channel` that nodes have of their own in nodes.yaml, which a pin replaces."""
    written, _ = read(tree)
    top = written.document.value if written.document else None
    entries = top.get("nodes") if isinstance(top, dict) else None
    return {
        name: str(entry["channel"])
        for name, entry in (entries.items() if isinstance(entries, dict) else ())
        if isinstance(entry, dict) and entry.get("channel")
    }


def check_goes_on(tree: Tree, profile: str) -> Rollout:
    """The roll-out that can be resumed or aborted.  Raises InputError."""
    rollout = find_rollout(tree, profile)
    over = (RolloutStatus.DONE, RolloutStatus.ABORTED)
    if rollout is None or rollout.status in over:
        what = f"no roll-out of {profile} is unfinished"
        raise InputError(what, where=os.fspath(tree.path), hint="run imagebuilder rollout status")
    return rollout


def check_wish(tree: Tree, profile: str, wish: str) -> Rollout:
    """The roll-out that can be paused or aborted.  Raises InputError."""
    rollout = check_goes_on(tree, profile)
    if wish == PAUSE and rollout.status not in (RolloutStatus.RUNNING, RolloutStatus.PAUSED):
        raise InputError(
            f"the roll-out of {rollout.release} is {rollout.status.value} and begins no node, so "
            "there is nothing to pause",
            hint=f"run imagebuilder rollout resume {profile} to continue it, or rollout abort "
            f"{profile} to take its nodes back",
        )
    return rollout
