# SPDX-License-Identifier: Apache-2.0
"""Tree + names -> Answer: reports are taken in, then every node and profile is compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from imagebuilder.digest import Json
from imagebuilder.drift.choose import choose
from imagebuilder.drift.nodes import drift_of_nodes
from imagebuilder.drift.profiles import drift_of_profile
from imagebuilder.drift.types import NodeDrift, ProfileDrift, Reboot
from imagebuilder.nodes.load import load_nodes
from imagebuilder.publish.evidence import read_evidence
from imagebuilder.publish.tickets import nodes_by_mac
from imagebuilder.publish.usage import list_names, note_reports
from imagebuilder.settings import Settings
from imagebuilder.tree import Tree
from imagebuilder.ui import Ui


@dataclass(frozen=True)
class DriftAnswer:
    """The answers for nodes and profiles; `strangers` are machines that no node entry knows."""

    nodes: tuple[NodeDrift, ...]
    profiles: tuple[ProfileDrift, ...]
    strangers: tuple[str, ...]

    @property
    def changes(self) -> bool:
        return any(node.reboot is Reboot.YES for node in self.nodes)

    def as_json(self) -> dict[str, Json]:
        """For programs: a stable contract."""
        return {
            "changes": self.changes,
            "nodes": [node.as_json() for node in self.nodes],
            "profiles": [profile.as_json() for profile in self.profiles],
            "strangers": list(self.strangers),
        }


def answer(tree: Tree, settings: Settings, names: Sequence[str], ui: Ui) -> DriftAnswer:
    """The answer for everything that `names` name, or for all.

    Raises InputError for a name that is unknown and a nodes.yaml with faults, HostError when we may
    not look.
    """
    nodes = load_nodes(tree)
    note_reports(tree, nodes)
    chosen = choose(tree, settings, nodes, names)
    evidence = read_evidence(tree, nodes)
    for doubt in evidence.doubts:
        ui.warn(str(doubt))
    by_mac = nodes_by_mac(nodes)
    told = {seen.mac for seen in (*evidence.nodes, *evidence.strangers)} - {*by_mac}
    strangers = () if names else tuple(sorted(told))
    if strangers:
        ui.note(
            f"not in nodes.yaml, so a person or the menu decides what they boot: "
            f"{list_names(strangers)}"
        )
    return DriftAnswer(
        nodes=tuple(drift_of_nodes(tree, nodes, chosen.nodes)),
        profiles=tuple(drift_of_profile(tree, settings, profile) for profile in chosen.profiles),
        strangers=strangers,
    )
