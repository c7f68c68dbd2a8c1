# SPDX-License-Identifier: Apache-2.0
"""Sets of nodes as people type them, in ClusterShell's syntax: `node[0-31],@gpu!node7`.

`@all`, `@GROUP` and `@LABEL` are nodes of nodes.yaml, `@profile:NAME` those that boot a profile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ClusterShell.NodeSet import NodeSet, NodeSetException
from ClusterShell.NodeUtils import GroupResolver, GroupResolverError, GroupSource

from imagebuilder.errors import Fault, InputError
from imagebuilder.nodes.load import ADD_ONE, NO_NODES
from imagebuilder.nodes.types import Node, Nodes
from imagebuilder.recipe.validate import quote, suggest

ALL, PROFILE = "all", "profile"
MOST = 100_000  # names that a word may stand for
BRACKETS = re.compile(r"\[([^\]]*)\]")
RANGE = re.compile(r"(\d+)-(\d+)(?:/\d+)?")


def select_nodes(words: Sequence[str], nodes: Nodes) -> tuple[Node, ...]:
    """The nodes that `words` name together, each once, in the order of nodes.yaml.

    Raises InputError with every name that is no node or group, and for a set without nodes.
    """
    if faults := [
        Fault("", f"{quote(w)} names more than {MOST:,} nodes") for w in words if is_huge(w)
    ]:
        raise InputError.of(faults)
    named = groups_of(nodes)
    profiles = profiles_of(nodes)
    faults = [fault for word in words for fault in unknown_groups(word, named, profiles)]
    if faults:
        raise InputError.of(faults)
    source = GroupSource("group", {k: fold(v) for k, v in named.items()}, fold(named[ALL]))
    resolver = GroupResolver(default_source=source)
    resolver.add_source(GroupSource(PROFILE, {k: fold(v) for k, v in profiles.items()}))
    chosen: set[str] = set()
    for word in words:
        try:
            chosen |= {*map(str, NodeSet(word, resolver=resolver))}
        except (NodeSetException, GroupResolverError) as error:
            hint = "such as node1, node[0-3], @all, @GROUP, @profile:NAME, or @all!node2"
            raise InputError(f"{quote(word)} is no set of nodes: {error}", hint=hint) from error
    if not nodes.nodes:
        raise InputError(NO_NODES, hint=ADD_ONE)
    known = [node.name for node in nodes.nodes]
    if strange := sorted(chosen - {*known}):
        raise InputError.of([no_node(name, known) for name in strange])
    found = tuple(node for node in nodes.nodes if node.name in chosen)
    if not found:
        what = f"{' '.join(words)}: no node belongs to this set"
        raise InputError(what, hint="imagebuilder nodes list shows nodes and groups")
    return found


def is_huge(word: str) -> bool:
    """Whether a word stands for more than MOST names, which ClusterShell would make in memory."""
    many = 1
    for inside in BRACKETS.findall(word):
        ranges = [RANGE.fullmatch(part.strip()) for part in inside.split(",")]
        if any(found and max(map(len, found.groups())) > 9 for found in ranges):
            return True
        many *= sum(int(found[2]) - int(found[1]) + 1 if found else 1 for found in ranges)
    return many > MOST or len(word) > MOST


def fold(names: Iterable[str]) -> str:
    """Names in the shortest form: `node[1-3]`."""
    return str(NodeSet.fromlist(list(names)))


def ask_about(verb: str, nodes: Sequence[Node]) -> str:
    """What to ask before more than one group is touched; nothing for a single one."""
    groups = sorted({node.group or "no group" for node in nodes})
    if len(groups) < 2:
        return ""
    names = fold(node.name for node in nodes)
    return f"{verb} {len(nodes)} nodes of {len(groups)} groups ({', '.join(groups)}): {names}?"


def no_node(name: str, known: Sequence[str]) -> Fault:
    hint = suggest(name, known) or "imagebuilder nodes list shows them"
    return Fault("", f"no node named {quote(name)}", hint)


def groups_of(nodes: Nodes) -> dict[str, list[str]]:
    """The names of nodes by group and label, and all of them."""
    named: dict[str, list[str]] = {ALL: [node.name for node in nodes.nodes]}
    for node in nodes.nodes:
        for group in {node.group, *node.labels} - {"", ALL}:
            named.setdefault(group, []).append(node.name)
    return named


def profiles_of(nodes: Nodes) -> dict[str, list[str]]:
    """The names of nodes by the profile that they boot."""
    found: dict[str, list[str]] = {}
    for node in nodes.nodes:
        found.setdefault(node.profile, []).append(node.name)
    return found


def unknown_groups(word: str, groups: Iterable[str], profiles: Iterable[str]) -> Iterable[Fault]:
    """A fault for each group in `word` that nodes.yaml does not have.

    ClusterShell takes an unknown group for an empty one, which would hide a typing mistake.
    """
    for part in word.replace("!", ",").replace("&", ",").replace("^", ",").split(","):
        if not part.startswith("@") or part == "@*":
            continue
        source, colon, name = part[1:].partition(":")
        if not colon:
            if source not in groups:
                yield Fault("", f"no group or label named {quote(source)}", suggest(source, groups))
        elif source != PROFILE:
            yield Fault(
                "", f"no kind of group named {quote(source)}", "use @profile:NAME or @GROUP"
            )
        elif name not in profiles:
            yield Fault("", f"no node boots the profile {quote(name)}", suggest(name, profiles))
