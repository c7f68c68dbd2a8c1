# SPDX-License-Identifier: Apache-2.0
"""Compare what nodes run with what they would boot now: their scripts, files and releases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache

from imagebuilder.drift.compare import compare_boots, kind_of
from imagebuilder.drift.content import release_content
from imagebuilder.drift.types import PARTS, BootContent, DriftPart, DriftState, NodeBoot, NodeDrift
from imagebuilder.errors import ImagebuilderError
from imagebuilder.files import read_text
from imagebuilder.nodes.config import BootTarget, describe_config, read_config, read_served
from imagebuilder.nodes.evidence.boots import fallen_back, find_fallbacks
from imagebuilder.nodes.evidence.seen import Seen, find_seen
from imagebuilder.nodes.identity import read_identity
from imagebuilder.nodes.node_files import node_entries
from imagebuilder.nodes.references import find_version
from imagebuilder.nodes.scripts import node_words, render_node_script
from imagebuilder.nodes.types import Node, Nodes
from imagebuilder.rootkind import FORMAT_OF, IN_MEMORY, packed_file
from imagebuilder.tree import ReleaseName, Tree

Contents = Callable[[ReleaseName], BootContent | None]

NEVER = "never reported a boot to this tree"
UNTOLD = "its last boot did not report the ID of its files; the next one will"
LOST = "the record of its last boot no longer exists"
OLD_SCRIPT = "its boot script is from an older version"
APPLY = "serve or nodes set updates it"


def drift_of_nodes(tree: Tree, nodes: Nodes, chosen: Sequence[Node]) -> list[NodeDrift]:
    """The answer for each of the `chosen` nodes.  Raises HostError without permission to read."""

    @cache
    def content_of(release: ReleaseName) -> BootContent | None:
        return release_content(tree, release)

    return [drift_of_node(tree, nodes, node, content_of) for node in chosen]


def drift_of_node(tree: Tree, nodes: Nodes, node: Node, content_of: Contents) -> NodeDrift:
    seen = next(iter(find_seen(tree, node.macs)), None)
    mac = seen.mac if seen else node.macs[0]
    served = read_served(tree, mac)
    following = find_next(tree, served) if served else None
    notes = tuple(find_notes(tree, nodes, node, mac, seen))
    if seen is None:
        parts = all_parts(DriftState.UNKNOWN, NEVER)
    elif served is None:
        parts = all_parts(DriftState.UNKNOWN, f"nothing is served for {mac} yet: {APPLY}")
    elif following is None:
        where = served.version or served.channel
        what = f"{served.profile}/{where}, which it would boot, does not exist"
        parts = all_parts(DriftState.CHANGES, what)
    else:
        new = next_boot(tree, following, served, content_of)
        parts = compare_boots(last_boot(tree, seen, content_of), new)
        notes += tuple(find_lack(tree, new))
    running = seen.release if seen else None
    return NodeDrift(node.name, running, seen.first if seen else "", following, parts, notes)


def last_boot(tree: Tree, seen: Seen, content_of: Contents) -> NodeBoot:
    reason = LOST if seen.given else UNTOLD
    return NodeBoot(seen.release, content_of(seen.release), read_config(tree, seen.given), reason)


def next_boot(
    tree: Tree, release: ReleaseName, served: BootTarget, content_of: Contents
) -> NodeBoot:
    """What it would boot now: `release`, by the script that is `served`."""
    config = read_config(tree, served.config)
    return NodeBoot(release, content_of(release), config, f"{OLD_SCRIPT}: {APPLY}")


def all_parts(state: DriftState, why: str) -> dict[str, DriftPart]:
    """The same answer and reason for every part."""
    return dict.fromkeys(PARTS, DriftPart(state, (why,)))


def find_next(tree: Tree, served: BootTarget) -> ReleaseName | None:
    """The release that a script boots; None if it does not exist."""
    version = served.version or find_version(tree, served.profile, served.channel)
    exists = version and tree.release(ReleaseName(served.profile, version)).is_dir()
    return ReleaseName(served.profile, version) if exists else None


def find_notes(tree: Tree, nodes: Nodes, node: Node, mac: str, seen: Seen | None) -> Iterator[str]:
    """Notes for a person in addition to the answer."""
    if seen and seen.stage == "failed":
        yield f"its last boot of {seen.release} failed"
    if not is_applied(tree, nodes, node, mac):
        yield f"nodes.yaml or its files changed and are not served yet: {APPLY}"


def find_lack(tree: Tree, boot: NodeBoot) -> Iterator[str]:
    """A note if the release lacks the packed root that the boot needs."""
    kind = kind_of(boot, boot.config) if boot.config else ""
    if kind not in FORMAT_OF:
        return
    packed = tree.release(boot.release) / packed_file(kind)
    if not (packed if kind in IN_MEMORY else tree.shared_squashfs(boot.release)).is_file():
        yield (
            f"its next boot would fail: root over {kind} needs {packed.name}, which "
            f"{boot.release} does not have: imagebuilder publish {boot.release} packs it"
        )


def is_applied(tree: Tree, nodes: Nodes, node: Node, mac: str) -> bool:
    """Whether a NIC is served what nodes.yaml and the node's folder contain now."""
    try:
        identity = read_identity(tree.kept_node(node.name))
        entries = node_entries(node, nodes.nodes, identity, tree.path)
        words = node_words(node, identity.machine_id)
        config = describe_config(node, words, entries)
        booting = fallen_back(node, find_fallbacks(tree, [node]))
        script = render_node_script(booting, mac, identity.machine_id, config.name)
        return read_text(tree.served_node(mac) / "boot.ipxe") == script
    except (OSError, ImagebuilderError):
        return False
