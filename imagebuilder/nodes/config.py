# SPDX-License-Identifier: Apache-2.0
"""The configuration of a node in addition to its release, under an ID that its reports contain.

    TREE/given/ID.json      its kernel arguments, kind of root, a digest of each of its own files

The script of a node puts the ID into the address that it reports to, so every report says what the
node booted with (`imagebuilder drift`), whatever its release.  A record is kept while a node uses
it, while it is what a node booted last, and for a week after.  The digest of a short file may
reveal its content, so only root may read the records.
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from imagebuilder.cpio import Entry, complete
from imagebuilder.decode import decode_box, encode_box, parse_object, read_bytes
from imagebuilder.digest import digest_of, digest_of_bytes
from imagebuilder.errors import InputError, RootError
from imagebuilder.files import Content, make_private, place_files, read_text
from imagebuilder.nodes.evidence.seen import find_seen
from imagebuilder.nodes.node_files import PLACE
from imagebuilder.nodes.types import Node
from imagebuilder.tree import Tree

ID = re.compile(r"[0-9a-f]{16}")
KEPT = 7 * 86_400  # seconds; a report may be read that late
# The web server replaces it with a new random number for each boot.
TICKET = "ticket"
REPORTS_TO = re.compile(
    rf"^set report \$\{{http\}}/report/(?:{TICKET}/)?({ID.pattern})$", re.MULTILINE
)
BOOTS = re.compile(
    r"^chain --autofree \$\{http\}/(channels|releases)/([^/\s]+)/([^/\s]+)/boot\.ipxe ",
    re.MULTILINE,
)


@dataclass(frozen=True)
class NodeConfig:
    """`words` are the kernel arguments in its script, `root` is the kind of root (empty: the
    release's) and `files` its own files: kind, mode, owner and digest by path on the node.
    """

    words: tuple[str, ...]
    root: str
    files: Mapping[str, str]

    @property
    def name(self) -> str:
        """Its ID: the same for equal values, 16 hexadecimal digits."""
        return digest_of(encode_box(self))[:16]


def describe_config(node: Node, words: Sequence[str], entries: Sequence[Entry]) -> NodeConfig:
    files = {
        printable(entry.path.removeprefix(PLACE)): describe_entry(entry)
        for entry in complete(entries)
        if entry.path.startswith(f"{PLACE}/")
    }
    return NodeConfig(tuple(words), node.root, files)


def printable(path: str) -> str:
    """A path as text, even if it is not UTF-8."""
    return os.fsencode(path).decode(errors="backslashreplace")


def describe_entry(entry: Entry) -> str:
    """An entry in one line: kind and mode, owner, digest or target."""
    kind = "l" if entry.link else "d" if entry.kind == stat.S_IFDIR else "-"
    content = entry.link or (digest_of_bytes(entry.content) if kind == "-" else "")
    return f"{kind}{entry.mode:04o} {entry.owner}:{entry.group} {content}".rstrip()


def keep_configs(tree: Tree, configs: Collection[NodeConfig], macs: Collection[str]) -> None:
    """Write a record of each, and remove unneeded ones.  The caller holds the lock of nodes.

    `macs` are those of all nodes.  Raises OSError.
    """
    make_private(tree.node_configs)
    records = [
        Content(
            tree.node_configs / f"{each.name}.json",
            json.dumps(encode_box(each)).encode() + b"\n",
            0o600,
        )
        for each in configs
    ]
    place_files(records)
    for record in records:
        os.utime(record.path)
    needed = {each.name for each in configs}
    limit = time.time() - KEPT
    old = [p for p in tree.node_configs.glob("*.json") if p.stem not in needed and is_old(p, limit)]
    if not old:
        return
    booted = booted_with(tree, macs)
    for path in old:
        if path.stem not in booted:
            path.unlink(missing_ok=True)


def is_old(path: os.PathLike[str], limit: float) -> bool:
    """Whether no node was given a record since `limit`, in seconds since 1970."""
    try:
        return os.stat(path).st_mtime < limit  # noqa: PTH116 - any kind of path
    except FileNotFoundError:
        return False


def booted_with(tree: Tree, macs: Collection[str]) -> set[str]:
    """The IDs that the owners of these NICs reported at their last boot."""
    return {seen.given for seen in find_seen(tree, macs)}


def read_config(tree: Tree, name: str) -> NodeConfig | None:
    """The record of an ID; None if it does not exist or is damaged.

    `name` is not trusted, it comes from the network.  Raises HostError if we may not read it.
    """
    if not ID.fullmatch(name):
        return None
    path = tree.node_configs / f"{name}.json"
    try:
        value = parse_object(read_bytes(path), os.fspath(path))
        config = decode_box(NodeConfig, value, os.fspath(path))
    except PermissionError as error:
        raise RootError(f"{path} is readable by root only") from error
    except (OSError, InputError):
        return None
    return config if config.name == name else None


@dataclass(frozen=True)
class BootTarget:
    """What a NIC's script boots: a `version` of `profile`, or what `channel` points to.

    `config` is the ID that it reports; empty in an old script.
    """

    profile: str
    channel: str
    version: str
    config: str


def read_served(tree: Tree, mac: str) -> BootTarget | None:
    """What the script of a NIC boots; None without a script.  Raises HostError."""
    path = tree.served_node(mac) / "boot.ipxe"
    try:
        text = read_text(path)
    except PermissionError as error:
        raise RootError(f"{path} is readable by root and the web server only") from error
    except OSError:
        return None
    boots, reports = BOOTS.search(text), REPORTS_TO.search(text)
    if boots is None:
        return None
    kind, profile, which = boots.groups()
    channel, version = ("", which) if kind == "releases" else (which, "")
    return BootTarget(profile, channel, version, reports[1] if reports else "")
