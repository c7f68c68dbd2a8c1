# SPDX-License-Identifier: Apache-2.0
"""A node's own files, as entries of its own initrd (see docs/netboot-root.md)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from imagebuilder.cpio import Entry
from imagebuilder.digest import canonical_json
from imagebuilder.errors import HostError, InputError
from imagebuilder.files import read_plain
from imagebuilder.folders import entries_below
from imagebuilder.nodes.identity import KEY, PUBLIC, Identity
from imagebuilder.nodes.types import Node

PLACE = "imagebuilder/node"
# Mount points of other file systems: the initrd refuses files there, and the node would not boot.
COVERED = ("proc", "sys", "dev", "run", "tmp")
MOST_BYTES = 64 * 1024**2  # a node's own files are held in memory, here and in the initrd
# The default of an image (overlays/compute-node): a node's file replaces it.
HOSTS = """\
127.0.0.1	localhost
127.0.0.1	compute-node
::1		localhost ip6-localhost ip6-loopback
ff02::1		ip6-allnodes
ff02::2		ip6-allrouters
"""


def node_entries(node: Node, nodes: Sequence[Node], identity: Identity, tree: Path) -> list[Entry]:
    """All own files of this node; those in its folder win.  Raises InputError."""
    entries = {entry.path: entry for entry in made_entries(node, nodes, identity)}
    if node.files:
        entries |= {entry.path: entry for entry in folder_entries(tree / node.files)}
    return [entries[path] for path in sorted(entries)]


def made_entries(node: Node, nodes: Sequence[Node], identity: Identity) -> Iterator[Entry]:
    """The files that are made for each node.

    The machine-id is both a file and a kernel argument, because the version of systemd decides
    which one counts if the image also has `systemd.machine_id=firmware`.
    """
    etc = f"{PLACE}/etc"
    yield Entry(f"{etc}/hostname", f"{node.name}\n".encode())
    yield Entry(f"{etc}/machine-id", f"{identity.machine_id}\n".encode(), 0o444)
    yield Entry(f"{etc}/ssh/{KEY}", identity.key, 0o600)
    yield Entry(f"{etc}/ssh/{PUBLIC}", identity.public)
    yield Entry(f"{etc}/imagebuilder/vars.json", canonical_json(dict(node.vars)) + b"\n")
    if hosts := render_hosts(nodes):
        yield Entry(f"{etc}/hosts", hosts.encode())


def render_hosts(nodes: Sequence[Node]) -> str:
    """/etc/hosts with the nodes that have an address; empty without any, to keep the image's file.

    A node without an address finds its name through nss-myhostname, other names through DNS.
    """
    fixed = "".join(f"{node.address}\t{node.name}\n" for node in nodes if node.address)
    return HOSTS + fixed if fixed else ""


def folder_entries(folder: Path) -> Iterator[Entry]:
    """The files, folders and symlinks below `folder` with modes and numeric owners.

    Raises InputError for what a node cannot have.
    """
    try:
        found = sorted(Path(entry.path) for entry in entries_below(folder))
    except OSError as error:
        where = os.fspath(error.filename or folder)
        raise InputError(f"cannot be read: {error.strerror}", where=where) from error
    size = 0
    for path in found:
        relative = path.relative_to(folder)
        entry = entry_of(path, f"{PLACE}/{relative.as_posix()}")
        if relative.parts[0] in COVERED:
            hint = f"move it: /{' /'.join(COVERED)} are mount points of other file systems"
            raise InputError("cannot be a node's own file", where=os.fspath(path), hint=hint)
        size += len(entry.content)
        if size > MOST_BYTES:
            what = f"more than {MOST_BYTES // 1024**2} MiB of a node's own files"
            raise InputError(what, where=os.fspath(folder), hint="nodes keep them in memory")
        yield entry


def entry_of(path: Path, name: str) -> Entry:
    """The entry for what is at `path`.  Raises InputError, HostError."""
    found = path.lstat()
    mode, owner, group = stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid
    if stat.S_ISLNK(found.st_mode):
        return Entry(name, mode=0o777, owner=owner, group=group, link=os.fspath(path.readlink()))
    if stat.S_ISDIR(found.st_mode):
        return Entry(name, mode=mode, owner=owner, group=group, kind=stat.S_IFDIR)
    if not stat.S_ISREG(found.st_mode):
        raise InputError(
            "is not a file, folder or symlink", where=os.fspath(path), hint="remove it"
        )
    if found.st_size > MOST_BYTES:
        raise InputError("is too large for a node's own file", where=os.fspath(path))
    try:
        content = read_plain(path)
    except OSError as error:
        raise HostError(f"cannot be read: {error.strerror}", where=os.fspath(path)) from error
    return Entry(name, content, mode, owner, group)
