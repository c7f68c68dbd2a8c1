# SPDX-License-Identifier: Apache-2.0
"""What a node is given beside its release, under a name that its reports carry.

    TREE/given/ID.json      its words, how it gets its root, a digest of each of its own files

The script of a node puts the ID into the address that it reports to, so every report says what the
node booted with (`imagebuilder drift`), whichever release it is.  A record is kept while a node is
given it, while it is what a node booted last, and for a week after.  Digests of files may tell what
is in a short one, so records are for root alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from imagebuilder.decode import decode_box, parse_object, read_bytes
from imagebuilder.digest import Json, digest_of, digest_of_bytes
from imagebuilder.errors import InputError, RootError
from imagebuilder.files import Content, make_private, place_files, read_text
from imagebuilder.nodes.initrd import Entry, complete
from imagebuilder.nodes.own import PLACE
from imagebuilder.nodes.seen import DamagedRecordError, read_fields
from imagebuilder.nodes.types import Node
from imagebuilder.tree import Tree

ID = re.compile(r"[0-9a-f]{16}")
KEPT = 7 * 86_400  # seconds; a report may wait so long before somebody reads it
# Stands for a number that the web server puts in its place, another one for each boot.
TICKET = "ticket"
REPORTS_TO = re.compile(
    rf"^set report \$\{{http\}}/report/(?:{TICKET}/)?({ID.pattern})$", re.MULTILINE
)
BOOTS = re.compile(
    r"^chain --autofree \$\{http\}/(channels|releases)/([^/\s]+)/([^/\s]+)/boot\.ipxe ",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Given:
    """`words` for the kernel as its script has them, `root` the kind of root (empty: the release's)
    and its own `files`: kind and mode, owner, and digest of the content by path on the node.
    """

    words: tuple[str, ...]
    root: str
    files: Mapping[str, str]

    def as_json(self) -> dict[str, Json]:
        """As a value for its file, and for its name."""
        return {"words": list(self.words), "root": self.root, "files": dict(self.files)}

    @property
    def name(self) -> str:
        """Its ID: the same for equal values, 16 hexadecimal digits."""
        return digest_of(self.as_json())[:16]


def describe_given(node: Node, words: Sequence[str], entries: Sequence[Entry]) -> Given:
    files = {
        printable(entry.path.removeprefix(PLACE)): describe_entry(entry)
        for entry in complete(entries)
        if entry.path.startswith(f"{PLACE}/")
    }
    return Given(tuple(words), node.root, files)


def printable(path: str) -> str:
    """A path as text, also one that is no UTF-8."""
    return os.fsencode(path).decode(errors="backslashreplace")


def describe_entry(entry: Entry) -> str:
    """All that a node gets of an entry, in a line: kind and mode, owner, digest or target."""
    kind = "l" if entry.link else "d" if entry.kind == stat.S_IFDIR else "-"
    content = entry.link or (digest_of_bytes(entry.content) if kind == "-" else "")
    return f"{kind}{entry.mode:04o} {entry.owner}:{entry.group} {content}".rstrip()


def keep_given(tree: Tree, given: Collection[Given], macs: Collection[str]) -> None:
    """Have a record of each, and none of what nobody needs.  The caller holds the lock of nodes.

    `macs` are all that nodes have.  Raises OSError.
    """
    make_private(tree.given)
    records = [
        Content(
            tree.given / f"{each.name}.json", json.dumps(each.as_json()).encode() + b"\n", 0o600
        )
        for each in given
    ]
    place_files(records)
    for record in records:
        os.utime(record.path)
    needed = {each.name for each in given}
    limit = time.time() - KEPT
    old = [p for p in tree.given.glob("*.json") if p.stem not in needed and is_old(p, limit)]
    if not old:
        return
    booted = booted_with(tree, macs)
    for path in old:
        if path.stem not in booted:
            path.unlink(missing_ok=True)


def is_old(path: os.PathLike[str], limit: float) -> bool:
    """Whether nobody was given a record since `limit`, in seconds since 1970."""
    try:
        return os.stat(path).st_mtime < limit  # noqa: PTH116 - any kind of path
    except FileNotFoundError:
        return False


def booted_with(tree: Tree, macs: Collection[str]) -> set[str]:
    """The IDs that the owners of these NICs reported at their last boot."""
    found: set[str] = set()
    for mac in macs:
        with contextlib.suppress(DamagedRecordError):
            if fields := read_fields(tree.seen(mac)):
                found.add(fields["given"])
    return found


def read_given(tree: Tree, name: str) -> Given | None:
    """The record of an ID; None when there is none, or it is damaged.

    `name` may be anything, it comes from the network.  Raises HostError when we may not look.
    """
    if not ID.fullmatch(name):
        return None
    path = tree.given / f"{name}.json"
    try:
        value = parse_object(read_bytes(path), os.fspath(path))
        given = decode_box(Given, value, os.fspath(path))
    except PermissionError as error:
        raise RootError(f"{path} is readable by root only") from error
    except (OSError, InputError):
        return None
    return given if given.name == name else None


@dataclass(frozen=True)
class Served:
    """What a NIC's script leads to: a `version` of `profile`, or what `channel` points to.

    `given` is the ID it reports; empty in a script from before there were any.
    """

    profile: str
    channel: str
    version: str
    given: str


def read_served(tree: Tree, mac: str) -> Served | None:
    """What the script of a NIC says; None when there is none.  Raises HostError."""
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
    return Served(profile, channel, version, reports[1] if reports else "")
