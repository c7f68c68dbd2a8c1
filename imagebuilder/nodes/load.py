# SPDX-License-Identifier: Apache-2.0
"""Load nodes.yaml, or report all its faults at once; again only when it changed."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.digest import Json
from imagebuilder.errors import Fault, InputError
from imagebuilder.files import read_plain
from imagebuilder.nodes.check import check_nodes_file, normal_mac
from imagebuilder.nodes.model import (
    NodeDefaultsModel,
    NodeGroupModel,
    NodeModel,
    NodesFile,
    PowerModel,
)
from imagebuilder.nodes.references import menu_problem, node_problem
from imagebuilder.nodes.types import DEFAULT_CONSOLE, Menu, Node, Nodes, Power
from imagebuilder.recipe.positions import Document, parse_document
from imagebuilder.recipe.validate import parse_model
from imagebuilder.tree import HYPHENED, STABLE, Tree
from imagebuilder.ui import format_count

NO_NODES = "no nodes yet"
# Seconds after which a change is whole, seconds between two readings, and how many there are.
SETTLED, GAP, READS = 1.0, 0.01, 100
NONE_ON_PURPOSE = "restore it, or write `nodes: {}` to remove all nodes"
ADD_ONE = "run imagebuilder nodes add NAME --mac MAC --profile PROFILE"
Stamp = tuple[tuple[str, int, int, int], ...]
FAULTY_S = 15.0  # how long faults are believed: that of a disk or of rights goes without a change


def load_nodes(tree: Tree) -> Nodes:
    """The nodes of the tree; none without a nodes.yaml.  Raises InputError."""
    return parse_nodes(read_nodes_file(tree), os.fspath(tree.nodes_file), tree)


def read_nodes_file(tree: Tree) -> bytes:
    """The bytes of nodes.yaml, none if it does not exist and no node is served yet.

    Whoever edits it may empty, remove or write it in this moment, so what is younger than SETTLED
    seconds is read until two readings agree.  Raises InputError, also for a file without a byte, as
    a full disk leaves it, and for one that is gone: neither must remove all nodes.
    """
    path = tree.nodes_file
    state, before = read_state(path), None
    for _ in range(READS):
        if state.content and (state.is_settled or state == before):
            return state.content
        if state.content is None and not is_served(tree):
            return b""
        time.sleep(GAP)
        state, before = read_state(path), state
    if state.content:
        raise InputError("changes all the time", where=os.fspath(path))
    what = "is missing" if state.content is None else "is empty"
    raise InputError(what, where=os.fspath(path), hint=NONE_ON_PURPOSE)


@dataclass(frozen=True)
class FileState:
    """nodes.yaml at one moment: its bytes (None: no file), and what changes with it."""

    content: bytes | None = None
    stamp: tuple[int, int] = (0, 0)  # inode, time of the last change in nanoseconds

    @property
    def is_settled(self) -> bool:
        return abs(time.time() - self.stamp[1] / 1e9) > SETTLED


def read_state(path: Path) -> FileState:
    """Raises InputError if it cannot be read."""
    try:
        about = path.stat()
        return FileState(read_plain(path), (about.st_ino, about.st_mtime_ns))
    except FileNotFoundError:
        return FileState()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=os.fspath(path)) from error


def is_served(tree: Tree) -> bool:
    """Whether there are files of a node, as far as this user may see."""
    try:
        return any(HYPHENED.fullmatch(path.name) for path in (tree.http / "nodes").iterdir())
    except (FileNotFoundError, PermissionError):
        return False


def parse_nodes(content: bytes, shown: str, tree: Tree) -> Nodes:
    """The nodes in `content`, called `shown` in messages.  Raises InputError with every fault."""
    document = read_document(content, shown)
    return resolve_document(document, tree) if document else Nodes()


def read_document(content: bytes, shown: str) -> Document | None:
    """The document in `content`; None if it is blank.  Raises InputError."""
    return None if is_blank(content) else parse_document(content, shown)


def resolve_document(document: Document, tree: Tree) -> Nodes:
    """The nodes in the document.  Raises InputError with every fault."""
    faults: list[Fault] = []
    file, _ = parse_model(NodesFile, document, faults)
    if file is not None:
        faults.extend(check_nodes_file(file, document))
    if file is None or faults:
        raise InputError.of(sorted(dict.fromkeys(faults), key=line_and_column))
    menu = Menu(**file.menu.model_dump()) if file.menu else Menu()
    nodes = tuple(resolve_node(file, name, node) for name, node in (file.nodes or {}).items())
    warnings = tuple(find_missing(document, tree, menu, nodes))
    return Nodes(menu, nodes, warnings)


def is_blank(content: bytes) -> bool:
    """Whether there are only comments and empty lines."""
    return all(re.fullmatch(rb"\s*(#.*)?", line) for line in content.splitlines())


def line_and_column(fault: Fault) -> tuple[int, int]:
    """The position of a fault in its file."""
    match = re.search(r":(\d+)(?::(\d+))?$", fault.where)
    return (int(match[1]), int(match[2] or 0)) if match else (0, 0)


def resolve_node(file: NodesFile, name: str, node: NodeModel) -> Node:
    """The node with the values of its group and the defaults."""
    group = (file.groups or {}).get(node.group or "") or NodeGroupModel()
    defaults = file.defaults or NodeDefaultsModel()
    levels = (node, group, defaults)
    profile = node.profile or group.profile or ""
    channel, version = choose_release(profile, levels)
    console = next((x.console for x in levels if x.console is not None), DEFAULT_CONSOLE)
    merged: dict[str, Json] = {}
    for level in reversed(levels):
        merged |= level.vars or {}
    return Node(
        name=name,
        macs=tuple(map(normal_mac, node.macs)),
        profile=profile,
        channel=channel,
        version=version,
        address=node.address or "",
        static=node.static,
        root=next((x.root for x in levels if x.root), ""),
        console=tuple(console),
        cmdline=tuple(word for level in reversed(levels) for word in level.cmdline or ()),
        ipxe=next((x.ipxe for x in levels if x.ipxe), "ipxe.efi"),
        group=node.group or "",
        vars=tuple(sorted(merged.items())),
        files=node.files or "",
        labels=tuple(dict.fromkeys(x for level in levels for x in level.labels or ())),
        login=next((x.login for x in levels if x.login), "compute"),
        netconsole=next((x.netconsole for x in levels if x.netconsole is not None), False),
        power=resolve_power([level.power for level in levels if level.power]),
    )


def resolve_power(levels: Sequence[PowerModel]) -> Power:
    """How a node is switched, from the most specific level to the least."""
    merged: dict[str, object] = {}
    for level in reversed(levels):
        merged |= level.model_dump(exclude_none=True)
    words = {key: tuple(value) for key, value in merged.items() if isinstance(value, list)}
    return Power(**{**merged, **words})  # type: ignore[arg-type]


def choose_release(profile: str, levels: Sequence[NodeDefaultsModel]) -> tuple[str, str]:
    """Channel and version from the nearest level that names either; only one is set.

    A version belongs to the profile on its level: a node with another profile than its group is not
    pinned by the group.
    """
    for level in levels:
        if isinstance(level, NodeGroupModel) and level.version and level.profile in (None, profile):
            return STABLE, level.version
        if level.channel:
            return level.channel, ""
    return STABLE, ""


def find_missing(
    document: Document, tree: Tree, menu: Menu, nodes: Sequence[Node]
) -> Iterator[Fault]:
    """A fault for each named thing that the tree does not have, of the first node that wants it.

    Nodes that want the same are one look at the tree, and one warning: there may be 800 of them.
    """
    if problem := menu_problem(tree, menu):
        yield document.fault(("menu", "default"), problem.what, problem.hint)
    by_name = {node.name: node for node in nodes}
    alike: dict[tuple[str, str, str, str], list[str]] = {}
    for node in nodes:
        wanted = (node.profile, node.channel, node.version, node.files)
        alike.setdefault(wanted, []).append(node.name)
    for first, *others in alike.values():
        problem = node_problem(tree, by_name[first])
        if problem:
            more = f" (and {format_count(len(others), 'more node')})" if others else ""
            path = ("nodes", first, problem.key)
            yield document.fault(path, problem.what + more, problem.hint)


class WatchedNodes:
    """The nodes of a tree; the file is read again when it changed, and a while after a fault."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._nodes: tuple[Stamp | None, Nodes, tuple[Fault, ...]] = (None, Nodes(), ())
        self._read = 0.0

    def load(self) -> tuple[Nodes, tuple[Fault, ...]]:
        """The nodes; while nodes.yaml has faults, those of before and the faults."""
        stamp = stamp_of([self.tree.nodes_file])
        before, nodes, faults = self._nodes
        if stamp != before or (faults and time.monotonic() - self._read > FAULTY_S):
            try:
                nodes, faults = load_nodes(self.tree), ()
            except InputError as error:
                faults = error.faults
            self._nodes, self._read = (stamp, nodes, faults), time.monotonic()
        return nodes, faults


def stamp_of(paths: Iterable[Path]) -> Stamp:
    """Inode, time and size of what there is."""
    found = []
    for path in paths:
        try:
            state = path.stat()
        except OSError:
            continue
        found.append((path.name, state.st_ino, state.st_mtime_ns, state.st_size))
    return tuple(found)
