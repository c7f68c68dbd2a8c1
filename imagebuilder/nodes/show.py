# SPDX-License-Identifier: Apache-2.0
"""Show a node: what it would boot now, with which command line, and what it booted last."""

from __future__ import annotations

import json
from dataclasses import dataclass

from imagebuilder.decode import encode_box
from imagebuilder.digest import Json
from imagebuilder.files import read_text
from imagebuilder.image.types import find_image
from imagebuilder.nodes.evidence.boots import find_fallbacks
from imagebuilder.nodes.evidence.seen import Seen, find_damaged, find_seen
from imagebuilder.nodes.identity import MACHINE_ID
from imagebuilder.nodes.references import find_release
from imagebuilder.nodes.scripts import node_words
from imagebuilder.nodes.types import Node
from imagebuilder.rootkind import FORMAT_OF, IN_MEMORY, packed_file
from imagebuilder.tree import SHARED, ReleaseName, Tree
from imagebuilder.ui import table

# Filled in while serving, in the form of iPXE scripts.
SERVER, REPORT = "${server}", "${report}"


@dataclass(frozen=True)
class Shown:
    """A node for `nodes show`.

    `version` is the release it would boot now, empty without one; `cmdline` is then empty too.
    `seen` is the report of its last boot (TREE/seen), None if it never reported.  `damaged` are its
    unreadable files, `fallback` says why it boots another release than nodes.yaml wants.
    """

    node: Node
    version: str
    cmdline: tuple[str, ...]
    known_hosts: str
    seen: Seen | None
    damaged: tuple[str, ...] = ()
    fallback: str = ""

    def as_json(self) -> dict[str, Json]:
        return {
            **self.node.as_json(),
            "boots": self.version,
            "fallback": self.fallback,
            "kernel-cmdline": list(self.cmdline),
            "known-hosts": self.known_hosts,
            "seen": encode_box(self.seen) if self.seen else {},
        }


def show_node(tree: Tree, node: Node) -> Shown:
    fallback = find_fallbacks(tree, [node]).get(node.name)
    version = fallback.version if fallback else find_release(tree, node)
    return Shown(
        node=node,
        version=version,
        fallback=str(fallback or ""),
        cmdline=find_cmdline(tree, node, version) if version else (),
        known_hosts=str(tree.serve / "known_hosts"),
        seen=next(iter(find_seen(tree, node.macs)), None),
        damaged=tuple(map(str, find_damaged(tree, node.macs))),
    )


def find_cmdline(tree: Tree, node: Node, version: str) -> tuple[str, ...]:
    """The kernel's command line as the release's script assembles it."""
    image = find_image(tree.release(ReleaseName(node.profile, version)))
    release = f"{node.profile}/{version}"
    kind = node.root or (image.boot.root if image else "nfs")
    return (
        *(image.boot.cmdline if image else ()),
        f"root={root_word(tree, release, kind)}",
        f"imagebuilder.report={REPORT}/{release}",
        *node_words(node, find_machine_id(tree, node)),
    )


def root_word(tree: Tree, release: str, kind: str) -> str:
    """The location of the root of PROFILE/VERSION for the initrd."""
    if kind in IN_MEMORY:
        return f"${{http}}/releases/{release}/{packed_file(kind)}"
    suffix = SHARED if kind in FORMAT_OF else ""
    return f"nfs4:{SERVER}:{tree.roots}/{release}{suffix}"


def find_machine_id(tree: Tree, node: Node) -> str:
    """The node's machine-id; a placeholder if it has none yet or only root may read it."""
    try:
        return read_text(tree.kept_node(node.name) / MACHINE_ID).strip()
    except OSError:
        return "${machine-id}"


def render_shown(shown: Shown) -> str:
    node, seen = shown.node, shown.seen
    lines = [(key, text_of(value)) for key, value in node.as_json().items() if value]
    lines.append(("boots now", shown.version or f"nothing: {node.boots} does not exist"))
    if shown.fallback:
        lines.append(("because it", shown.fallback))
    if seen:
        lines.append(("booted last", f"{seen.version}, stage {seen.stage}"))
        lines.append(("last sign", f"{seen.last} from {seen.address}"))
    elif shown.damaged:
        lines.append(("booted last", f"unknown: {', '.join(shown.damaged)} is damaged"))
    else:
        lines.append(("booted last", "never, according to this tree"))
    known = f"-o UserKnownHostsFile={shown.known_hosts}"
    lines.append(("log in with", f"ssh {known} {node.login}@{node.name}"))
    told = "\n".join(f"  {word}" for word in shown.cmdline)
    return table(lines) + (f"\nkernel command line:\n{told}" if told else "")


def render_edited(before: Node | None, after: Node | None) -> str:
    """How a node was changed, without its name."""
    if after is None:
        return "removed" if before else "forgotten"
    old = before.as_json() if before else {}
    changed = [
        f"  {key}: {text_of(old[key]) or '-'} -> {text_of(value) or '-'}" if before
        else f"  {key}: {text_of(value)}"
        for key, value in after.as_json().items()
        if key != "name" and (old[key] != value if before else value)
    ]  # fmt: skip
    if not changed:
        return "nothing changed"
    title = "changed, effective at the next boot" if before else "added"
    return "\n".join((title, *changed))


def text_of(value: Json) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key}={text_of(item)}" for key, item in value.items())
    if isinstance(value, list):
        return " ".join(map(text_of, value))
    return json.dumps(value) if isinstance(value, bool) else str(value)
