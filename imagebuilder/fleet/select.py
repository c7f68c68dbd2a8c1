# SPDX-License-Identifier: Apache-2.0
"""Sets of nodes as people type them, in ClusterShell's syntax: `node[0-31],@gpu!node7`.

`@all`, `@GROUP` and `@LABEL` are nodes of nodes.yaml, `@profile:NAME` those that boot a profile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ClusterShell.NodeSet import NodeSet, NodeSetException
from ClusterShell.NodeUtils import GroupResolver, GroupResolverError, GroupSource

from imagebuilder.errors import Fault, InputError
from imagebuilder.nodes.load import ADD_ONE, NO_NODES
from imagebuilder.nodes.types import Node, Nodes
from imagebuilder.phrases import quote, suggest

ALL, PROFILE = "all", "profile"
SHOWN = 10  # unknown names
LIST = "run imagebuilder nodes list to see them"
MOST = 100_000  # names that all words together may stand for, and characters
SUCH_AS = "such as node1, node[0-3], @all, @GROUP, @profile:NAME, or @all!node2"
# What may be in a word, cut where a name ends; none of it is looked at twice.
TOKEN = re.compile(r"(?P<end>[,!&^\s])|\[(?P<ranges>[^\[\]]*)\]|[^,!&^\s\[\]]+")
WIDE = re.compile(r"[@*?]")
RANGE = re.compile(r" *([0-9]{1,18}) *(?:- *([0-9]{1,18}) *(?:/ *[0-9]{1,18} *)?)?")


def select_nodes(words: Sequence[str], nodes: Nodes) -> tuple[Node, ...]:
    """The nodes that `words` name together, each once, in the order of nodes.yaml.

    Raises InputError with every name that is no node or group, and for a set without nodes.
    """
    check_size(words, len(nodes.nodes))
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
            what = f"{quote(word)} is not a set of nodes: {error}"
            raise InputError(what, hint=SUCH_AS) from error
    if not nodes.nodes:
        raise InputError(NO_NODES, hint=ADD_ONE)
    known = [node.name for node in nodes.nodes]
    if strange := sorted(chosen - {*known}):
        raise InputError.of([*no_nodes(strange, known)])
    found = tuple(node for node in nodes.nodes if node.name in chosen)
    if not found:
        what = f"{' '.join(words)}: no node belongs to this set"
        raise InputError(what, hint="run imagebuilder nodes list to see nodes and groups")
    return found


def check_size(words: Sequence[str], known: int) -> None:
    """Raise InputError for more names than MOST, which ClusterShell would make in memory.

    A group, or a name with a wildcard, may be all of the `known` nodes.
    It also takes what int() takes, such as 1_000 and +5: what is counted here is all it gets.
    """
    left = MOST
    for word in words:
        left -= count_names(word, known) if len(word) <= MOST else MOST + 1
        if left < 0:
            raise InputError(f"{quote(word)} names more than {MOST:,} nodes")


def count_names(word: str, known: int) -> int:
    """How many names a word stands for, at most.  Raises InputError."""
    count, many, end = 0, 1, 0
    for token in TOKEN.finditer(word):
        if token.start() != end:
            break
        end = token.end()
        if token["end"]:
            count, many = count + many, 1
        elif token["ranges"] is not None:
            try:
                many *= sum(map(count_range, token["ranges"].split(",")))
            except ValueError as error:
                what = f"{quote(word)} is not a set of nodes: {error}"
                raise InputError(what, hint=SUCH_AS) from error
        elif WIDE.search(token[0]):
            many *= max(known, 1)
    if end != len(word):
        raise InputError(f"{quote(word)} is not a set of nodes: a bracket is missing", hint=SUCH_AS)
    return count + many


def count_range(text: str) -> int:
    """Raises ValueError."""
    found = RANGE.fullmatch(text)
    if not found:
        raise ValueError(f"{quote(text)} is not a range such as 0-3")
    first, last = int(found[1]), int(found[2] or found[1])
    if last < first:
        raise ValueError(f"{quote(text)} ends before it begins")
    return last - first + 1


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


def no_nodes(names: Sequence[str], known: Sequence[str]) -> Iterator[Fault]:
    """A fault for each of the first SHOWN names, with a suggestion; finding one takes time."""
    for name in names[:SHOWN]:
        hint = suggest(name, known) or LIST
        yield Fault("", f"no node named {quote(name)}", hint)
    if (more := len(names) - SHOWN) > 0:
        yield Fault("", f"{more:,} more names match no node", LIST)


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
