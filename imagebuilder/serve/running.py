# SPDX-License-Identifier: Apache-2.0
"""Find our running daemons: in the foreground, or as systemd services."""

from __future__ import annotations

from collections.abc import Sequence

from imagebuilder.nodes.evidence.usage import NFS_PORT
from imagebuilder.serve.config import ServeConfig
from imagebuilder.serve.daemons import find_our_pids
from imagebuilder.serve.interface import Interface
from imagebuilder.serve.nfs import kernel_serves
from imagebuilder.serve.ports import Holder, find_holders, find_unit
from imagebuilder.serve.prepare import FOREGROUND, INSTALLED
from imagebuilder.tree import Tree

ANY = (FOREGROUND, INSTALLED)


def find_ours(
    tree: Tree, interface: Interface, holders: Sequence[Holder], folders: Sequence[str] = ANY
) -> list[Holder]:
    """The sockets of daemons that already serve this tree, with files in TREE/serve/`folders`.

    Only root sees the owner of a socket.  For other users, a socket on the nodes' interface is ours
    if our daemons run: two programs cannot share a port there.  The kernel's NFS server has no
    process.
    """
    pids = {pid for name in folders for pid in find_our_pids(tree.serve / name)}
    if not pids:
        return []
    kernels = NFS_PORT if kernel_serves() else None
    return [
        holder
        for holder in holders
        if pids & {holder.pid, *holder.others}
        or (not holder.pid and holder.number != kernels and is_on_interface(holder, interface))
    ]


def find_foreign(config: ServeConfig, folders: Sequence[str] = ANY) -> list[Holder]:
    """The sockets of all programs except our daemons."""
    holders = find_holders()
    ours = find_ours(config.tree, config.interface, holders, folders)
    return [holder for holder in holders if holder not in ours]


def is_on_interface(holder: Holder, interface: Interface) -> bool:
    """Whether a socket listens only for nodes."""
    return holder.interface == interface.name or holder.address == str(interface.server)


def describe_ours(tree: Tree) -> str:
    """What serves this tree: its units, or `imagebuilder serve`; empty if nothing does."""
    if pids := find_our_pids(tree.serve / INSTALLED):
        units = sorted({unit for pid in pids if (unit := find_unit(pid))})
        return ", ".join(units) or "the units of serve --install"
    return "imagebuilder serve" if find_our_pids(tree.serve / FOREGROUND) else ""
