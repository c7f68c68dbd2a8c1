# SPDX-License-Identifier: Apache-2.0
"""Names that a person typed -> nodes and profiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from imagebuilder.errors import Fault, InputError
from imagebuilder.nodes.references import find_profiles
from imagebuilder.nodes.types import Node, Nodes
from imagebuilder.recipe.validate import quote, suggest
from imagebuilder.settings import Settings
from imagebuilder.store.repository import Store
from imagebuilder.tree import Tree


@dataclass(frozen=True)
class DriftChoice:
    """Nodes in the order of nodes.yaml, and profiles by name."""

    nodes: tuple[Node, ...]
    profiles: tuple[str, ...]


def choose(tree: Tree, settings: Settings, nodes: Nodes, names: Sequence[str]) -> DriftChoice:
    """What `names` are: nodes, or profiles, each with its nodes; no names are all that there is.

    Raises InputError for every name that is neither.
    """
    published = find_profiles(tree)
    if not names:
        return DriftChoice(nodes.nodes, published)
    built = Store(settings.state / "store").images()
    profiles = {*published, *settings.find_recipes(), *(image.profile for image in built)}
    profiles |= {node.profile for node in nodes.nodes}
    known = {*profiles, *(node.name for node in nodes.nodes)}
    if wrong := [name for name in dict.fromkeys(names) if name not in known]:
        raise InputError.of(
            Fault("", f"no node and no profile named {quote(name)}", hint_for(name, known))
            for name in wrong
        )
    return DriftChoice(
        tuple(node for node in nodes.nodes if {node.name, node.profile} & {*names}),
        tuple(sorted(profiles & {*names})),
    )


def hint_for(name: str, known: set[str]) -> str:
    return suggest(name, known) or "imagebuilder nodes list, imagebuilder profiles"
