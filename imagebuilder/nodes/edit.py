# SPDX-License-Identifier: Apache-2.0
"""Edit nodes.yaml by program without changing what people wrote in it.

Only the lines of the changed node are rewritten; a new node is added after the last one.  The
result is checked before it replaces the file; then everything made from it is updated.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError

from imagebuilder.decode import parse_json
from imagebuilder.digest import Json
from imagebuilder.errors import HostError, InputError, WorkError
from imagebuilder.files import place_file
from imagebuilder.locks import file_lock
from imagebuilder.nodes.check import name_problem
from imagebuilder.nodes.files import LOCK, make_node_files
from imagebuilder.nodes.identity import forget_node, records_of
from imagebuilder.nodes.lines import find_lines, insertion_line
from imagebuilder.nodes.load import read_document, read_nodes_file, resolve_document
from imagebuilder.nodes.model import NodeModel
from imagebuilder.nodes.references import node_problem
from imagebuilder.nodes.types import Node, Nodes
from imagebuilder.phrases import quote, suggest
from imagebuilder.recipe.positions import Document
from imagebuilder.tree import Tree

HEADER = "# Who boots what: imagebuilder nodes --help\n"
INDENT = 2
ATTEMPTS = 5
# Either one selects the release.
EXCLUSIVE = {"channel": "version", "version": "channel"}
SET_SIGNS = frozenset("[]@,!&")  # of sets of nodes, which other commands take
Value = bool | str | list[str]


class OvertakenError(WorkError):
    """nodes.yaml is no longer what was read, so a change of it would lose another."""


@dataclass(frozen=True)
class NodeEdit:
    """A change of one node: keys as in nodes.yaml, vars by name, keys to remove.

    `unset` may name a var as `vars.NAME`.
    """

    keys: Mapping[str, Value] = field(default_factory=dict)
    variables: Mapping[str, Json] = field(default_factory=dict)
    unset: tuple[str, ...] = ()


@dataclass(frozen=True)
class Edited:
    """All nodes after a change, and a changed node before and after."""

    nodes: Nodes
    before: Node | None
    after: Node | None

    def as_json(self) -> dict[str, Json]:
        return {
            "before": self.before.as_json() if self.before else None,
            "after": self.after.as_json() if self.after else None,
        }


def parse_change(
    keys: Mapping[str, Value | None], variables: Sequence[str] = (), unset: Sequence[str] = ()
) -> NodeEdit:
    """The change in command-line options; empty keys are not changed.  Raises InputError."""
    known = [field.alias or name for name, field in NodeModel.model_fields.items()]
    for key in unset:
        if key not in known and not key.startswith("vars."):
            raise InputError(f"unknown key {quote(key)}", hint=suggest(key, known))
    return NodeEdit(
        {key: value for key, value in keys.items() if value not in (None, "", [])},
        dict(map(parse_variable, variables)),
        tuple(unset),
    )


def parse_variable(text: str) -> tuple[str, Json]:
    """Parse NAME=VALUE; the value is JSON if it is valid, otherwise text.  Raises InputError."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f"{quote(text)} is not NAME=VALUE", hint="for example --var rank=3")
    try:
        return name, parse_json(value, name)
    except InputError:
        return name, value


@dataclass(frozen=True)
class Written:
    """nodes.yaml before or after a change: its text and, unless it is blank, its document."""

    text: str
    document: Document | None

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines(keepends=True)


def add_node(tree: Tree, name: str, change: NodeEdit) -> Edited:
    """Add a node.  Raises InputError if it exists or is invalid."""
    if problem := name_problem(name):
        raise InputError(problem)
    with file_lock(tree.lock(LOCK)):
        old, before = read(tree)
        if before.find(name):
            make_node_files(tree, before)  # a killed command may have added only the node
            hint = f"change it with imagebuilder nodes set {name}"
            raise InputError(f"node {quote(name)} already exists", hint=hint)
        after = put(tree, [name], old, before, with_node(old, name, change, new=True))
        return Edited(after, None, after.find(name))


def set_nodes(tree: Tree, choose: Callable[[Nodes], Mapping[str, NodeEdit]]) -> list[Edited]:
    """Change several nodes at once, as `choose` says by their names; either all of them or none.

    Raises InputError, and OvertakenError if somebody changes the file all the time.
    """
    for attempt in range(ATTEMPTS):
        try:
            with file_lock(tree.lock(LOCK)):
                old, before = read(tree)
                changes = choose(before)
                if changes:
                    after = put(tree, [*changes], old, before, with_nodes(old, changes))
                else:
                    after = before
                    make_node_files(tree, before)  # a killed command may have left old files
            break
        except OvertakenError:
            if attempt == ATTEMPTS - 1:
                raise
    return [Edited(after, before.find(name), after.find(name)) for name in changes]


def remove_node(tree: Tree, name: str, *, forget: bool) -> Edited:
    """Remove a node, with `forget` also its keys, machine-id, health history and consoles.

    `forget` also works for a node that is no longer in nodes.yaml.  Raises InputError.
    """
    with file_lock(tree.lock(LOCK)):
        old, before = read(tree)
        left = forget and not name_problem(name) and bool(records_of(tree, name))
        if before.find(name):
            after = put(tree, [name], old, before, without_node(old, name))
            edited = Edited(after, before.find(name), None)
        else:
            make_node_files(tree, before)  # a killed command may have left the node's files
            if not left:
                require(before, name)
            edited = Edited(before, None, None)
        if forget:
            forget_node(tree, name)
    return edited


def read(tree: Tree) -> tuple[Written, Nodes]:
    """The current nodes.yaml, and its nodes.  Raises InputError."""
    content = read_nodes_file(tree)
    document = read_document(content, os.fspath(tree.nodes_file))
    nodes = resolve_document(document, tree) if document else Nodes()
    return Written(content.decode("utf-8-sig"), document), nodes


def require(nodes: Nodes, name: str) -> Node:
    """The node of that name.  Raises InputError if it does not exist."""
    node = nodes.find(name)
    if node is None:
        known = [node.name for node in nodes.nodes]
        hint = suggest(name, known) or "list them with imagebuilder nodes list"
        many = "name one node; only nodes set takes sets of nodes"
        hint = many if SET_SIGNS & set(name) else hint
        raise InputError(f"unknown node {quote(name)}", hint=hint)
    return node


def put(tree: Tree, names: Collection[str], old: Written, before: Nodes, new: Written) -> Nodes:
    """Replace nodes.yaml with `new`, in which `names` differ, if it is valid; update what is made
    from it.  Raises OvertakenError if somebody has changed the file since `old` was read.
    """
    nodes = Nodes()
    if new.document:
        shown = f"{tree.nodes_file} after the change"
        nodes = resolve_document(replace(new.document, shown=shown), tree)
    for node in nodes.nodes:
        if node.name in names and (problem := node_problem(tree, node)):
            raise InputError(f"{node.name}: {problem.key}: {problem.what}", hint=problem.hint)
    others = [n for n in nodes.nodes if n.name not in names]
    if others != [n for n in before.nodes if n.name not in names]:
        raise WorkError(
            "this change would touch other nodes",
            where=os.fspath(tree.nodes_file),
            hint="edit the file with an editor",
        )
    if read_nodes_file(tree).decode("utf-8-sig") != old.text:
        raise OvertakenError(
            "was changed by somebody else at the same time; nothing was written",
            where=os.fspath(tree.nodes_file),
            hint="run the command again",
        )
    mode = tree.nodes_file.stat().st_mode & 0o7777 if tree.nodes_file.exists() else 0o644
    try:
        place_file(tree.nodes_file, new.text.encode(), mode)
    except OSError as error:
        raise HostError(
            f"cannot be written: {error.strerror}; it is unchanged",
            where=os.fspath(tree.nodes_file),
            hint="check with df -h whether the disk is full, or use another --tree",
        ) from error
    make_node_files(tree, nodes)
    return nodes


def with_node(old: Written, name: str, change: NodeEdit, *, new: bool) -> Written:
    """nodes.yaml with the node changed or added: rewrites only its lines if possible."""
    part = added_part(old, name, change) if new else changed_part(old, name, change)
    return (written(part) if part else None) or whole(old, name, change)


def with_nodes(old: Written, changes: Mapping[str, NodeEdit]) -> Written:
    """nodes.yaml with these nodes changed: rewrites only their lines if each has its own lines."""
    lines = old.lines
    places = {name: find_lines(old.document, lines, ("nodes", name)) if old.document else None
              for name in changes}  # fmt: skip
    for name, place in sorted(places.items(), key=lambda item: item[1] or (0, 0), reverse=True):
        chunk = place and changed_chunk("".join(lines[slice(*place)]), name, changes[name])
        if not place or not chunk:
            break
        lines[slice(*place)] = [chunk]
    else:
        if new := written("".join(lines)):
            return new
    for name, change in changes.items():
        old = with_node(old, name, change, new=False)
    return old


def added_part(old: Written, name: str, change: NodeEdit) -> str:
    """nodes.yaml with the node added after the last one; empty if that is not possible."""
    lines = old.lines
    at = insertion_line(old.document, lines, "nodes") if old.document else None
    if at is None:
        return ""
    line, margin = at
    step = len(margin) or INDENT
    chunk = indented(dump({name: apply(CommentedMap(), change)}, step), margin)
    return "".join((*ended(lines[:line]), chunk, *lines[line:]))


def changed_part(old: Written, name: str, change: NodeEdit) -> str:
    """nodes.yaml with the node's lines changed; empty if they are not valid by themselves."""
    lines = old.lines
    place = find_lines(old.document, lines, ("nodes", name)) if old.document else None
    if place is None:
        return ""
    start, end = place
    chunk = changed_chunk("".join(lines[start:end]), name, change)
    return "".join((*lines[:start], chunk, *lines[end:])) if chunk else ""


def without_node(old: Written, name: str) -> Written:
    lines = old.lines
    place = find_lines(old.document, lines, ("nodes", name)) if old.document else None
    if place and (part := written("".join((*lines[: place[0]], *lines[place[1] :])))):
        return part
    data = load(old.text)
    del data["nodes"][name]
    return reparse(dump(data))


def whole(old: Written, name: str, change: NodeEdit) -> Written:
    """nodes.yaml rewritten as a whole: the node has no lines of its own, or is the first."""
    if old.document is None:
        head = "".join(ended(old.lines)) or HEADER
        return reparse(head + dump({"nodes": {name: apply(CommentedMap(), change)}}))
    data = load(old.text)
    nodes = data.get("nodes")
    if not nodes:
        nodes = data["nodes"] = CommentedMap()
    nodes[name] = apply(nodes.get(name) or CommentedMap(), change)
    return reparse(dump(data))


def reparse(text: str) -> Written:
    """Parse `text`.  Raises InputError."""
    return Written(text, read_document(text.encode(), "nodes.yaml"))


def written(text: str) -> Written | None:
    """Parse `text`; None if it is invalid."""
    try:
        return reparse(text)
    except InputError:
        return None


def changed_chunk(chunk: str, name: str, change: NodeEdit) -> str:
    """The lines of one node with the change; empty if they are not valid by themselves."""
    indent = re.match(" *", chunk)
    margin = indent[0] if indent else ""
    text = "".join(line.removeprefix(margin) for line in chunk.splitlines(keepends=True))
    try:
        data = load(text)
    except YAMLError:  # an alias of something above
        return ""
    if list(data) != [name]:
        return ""
    step = re.search(r"\n( +)[^\s#]", text)
    data[name] = apply(data[name], change)
    return indented(dump(data, len(step[1]) if step else INDENT), margin)


def apply(node: CommentedMap, change: NodeEdit) -> CommentedMap:
    """Apply the change to the node's mapping, in place."""
    for key in change.unset:
        within, _, name = key.rpartition(".")
        mapping = node.get("vars") or {} if within == "vars" else node
        mapping.pop(name, None)
    for key, value in change.keys.items():
        node.pop(EXCLUSIVE.get(key, ""), None)
        node[key] = flow(value) if isinstance(value, list) else value
    if change.variables:
        if not node.get("vars"):
            node["vars"] = CommentedMap()
        node["vars"].update(change.variables)
    elif "vars" in node and not node["vars"]:
        del node["vars"]
    return node


def flow(values: list[str]) -> CommentedSeq:
    made = CommentedSeq(values)
    made.fa.set_flow_style()
    return made


def ended(lines: list[str]) -> list[str]:
    """The lines, with a newline at the end."""
    return [*lines[:-1], lines[-1].rstrip("\n") + "\n"] if lines else lines


def indented(text: str, margin: str) -> str:
    return "".join(f"{margin}{line}" for line in text.splitlines(keepends=True))


def yaml(step: int = INDENT) -> YAML:
    """A YAML parser that keeps comments, quotes and order, and indents by `step`."""
    made = YAML()
    made.preserve_quotes = True
    made.width = 4096
    made.indent(mapping=step, sequence=4, offset=2)
    return made


def load(text: str) -> Any:  # noqa: ANN401 - ruamel has no types
    return yaml().load(text)


def dump(value: object, step: int = INDENT) -> str:
    """`value` as YAML, indented by `step`."""
    stream = io.StringIO()
    yaml(step).dump(value, stream)
    return stream.getvalue()
