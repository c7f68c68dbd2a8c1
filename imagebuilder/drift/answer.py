# SPDX-License-Identifier: Apache-2.0
"""Answer for nodes and profiles of a tree whether a reboot would change them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from imagebuilder.digest import Json
from imagebuilder.drift.nodes import drift_of_nodes
from imagebuilder.drift.profiles import drift_of_profile
from imagebuilder.drift.types import NodeDrift, ProfileDrift, Reboot
from imagebuilder.errors import Fault, InputError
from imagebuilder.nodes.evidence.records import read_evidence
from imagebuilder.nodes.evidence.tickets import nodes_by_mac
from imagebuilder.nodes.evidence.usage import list_names, note_reports
from imagebuilder.nodes.load import load_nodes
from imagebuilder.nodes.references import find_profiles
from imagebuilder.nodes.types import Node, Nodes
from imagebuilder.phrases import quote, suggest
from imagebuilder.settings import Settings
from imagebuilder.store.repository import Store
from imagebuilder.tree import Tree
from imagebuilder.ui import Ui


@dataclass(frozen=True)
class DriftAnswer:
    """The answers for nodes and profiles; `strangers` are machines without an entry for a node."""

    nodes: tuple[NodeDrift, ...]
    profiles: tuple[ProfileDrift, ...]
    strangers: tuple[str, ...]

    @property
    def changes(self) -> bool:
        return any(node.reboot is Reboot.YES for node in self.nodes)

    def as_json(self) -> dict[str, Json]:
        return {
            "changes": self.changes,
            "nodes": [node.as_json() for node in self.nodes],
            "profiles": [profile.as_json() for profile in self.profiles],
            "strangers": list(self.strangers),
        }


def answer(tree: Tree, settings: Settings, names: Sequence[str], ui: Ui) -> DriftAnswer:
    """The answer for the nodes and profiles in `names`, or for all.

    Raises InputError for an unknown name and a nodes.yaml with faults, HostError without permission
    to read.
    """
    nodes = load_nodes(tree)
    note_reports(tree, nodes)
    chosen, profiles = choose(tree, settings, nodes, names)
    evidence = read_evidence(tree, nodes)
    for doubt in evidence.doubts:
        ui.warn(str(doubt))
    by_mac = nodes_by_mac(nodes)
    unlisted = {seen.mac for seen in (*evidence.nodes, *evidence.strangers)} - {*by_mac}
    strangers = () if names else tuple(sorted(unlisted))
    if strangers:
        ui.note(
            f"not in nodes.yaml, so the menu or its user chooses what they boot: "
            f"{list_names(strangers)}"
        )
    return DriftAnswer(
        nodes=tuple(drift_of_nodes(tree, nodes, chosen)),
        profiles=tuple(drift_of_profile(tree, settings, profile) for profile in profiles),
        strangers=strangers,
    )


def choose(
    tree: Tree, settings: Settings, nodes: Nodes, names: Sequence[str]
) -> tuple[tuple[Node, ...], tuple[str, ...]]:
    """The nodes and profiles in `names`, a profile with its nodes; everything without names.

    Nodes are in the order of nodes.yaml, profiles by name.  Raises InputError for every name that
    is neither.
    """
    published = find_profiles(tree)
    if not names:
        return nodes.nodes, published
    built = Store(settings.state / "store").images()
    profiles = {*published, *settings.find_recipes(), *(image.profile for image in built)}
    profiles |= {node.profile for node in nodes.nodes}
    known = {*profiles, *(node.name for node in nodes.nodes)}
    if wrong := [name for name in dict.fromkeys(names) if name not in known]:
        raise InputError.of(
            Fault("", f"no node or profile named {quote(name)}", hint_for(name, known))
            for name in wrong
        )
    return (
        tuple(node for node in nodes.nodes if {node.name, node.profile} & {*names}),
        tuple(sorted(profiles & {*names})),
    )


def hint_for(name: str, known: set[str]) -> str:
    return suggest(name, known) or "imagebuilder nodes list, imagebuilder profiles"
