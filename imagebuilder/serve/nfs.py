# SPDX-License-Identifier: Apache-2.0
"""The export of the roots: by the kernel's NFS server, or by nfs-ganesha without one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from imagebuilder.errors import HostError
from imagebuilder.process import is_installed, run
from imagebuilder.serve.config import ServeConfig
from imagebuilder.serve.options import Nfs
from imagebuilder.serve.ports import Holder
from imagebuilder.serve.render import export_options

KERNEL_THREADS = Path("/proc/fs/nfsd/threads")
KERNEL_COUNTS = Path("/proc/net/rpc/nfsd")  # the same number, readable for every user
RPCBIND_PORT = 111


def choose_nfs(wanted: Nfs) -> Nfs:
    """The server that exports the roots.  Raises HostError if it is not available."""
    if wanted is not Nfs.GANESHA and kernel_serves() and is_installed("exportfs"):
        return Nfs.KERNEL
    if wanted is not Nfs.KERNEL and has_ganesha():
        return Nfs.GANESHA
    kernel = "run sudo apt-get install nfs-kernel-server, which starts it"
    ganesha = "run sudo apt-get install nfs-ganesha nfs-ganesha-vfs rpcbind"
    what, hint = {
        Nfs.KERNEL: ("the kernel's NFS server is not running", kernel),
        Nfs.GANESHA: ("nfs-ganesha is not installed", ganesha),
        Nfs.AUTO: ("this host has no NFS server", f"{kernel}, or {ganesha}"),
    }[wanted]
    raise HostError(what, where=f"--nfs {wanted}", hint=hint)


def kernel_serves() -> bool | None:
    """Whether the kernel's NFS server has threads; None if we may not read it."""
    try:
        return int(KERNEL_THREADS.read_text()) > 0
    except (OSError, ValueError):
        return has_threads(KERNEL_COUNTS)


def has_threads(counts: Path) -> bool | None:
    """The same from the line `th COUNT ...` of a file that every user may read.

    Without that line the number is unknown; without the file the kernel has no NFS server.
    """
    try:
        found = re.search(r"^th (\d+)", counts.read_text(), re.MULTILINE)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    return int(found[1]) > 0 if found else None


def has_ganesha() -> bool:
    return is_installed("ganesha.nfsd") and is_installed("rpcbind")


def find_ganesha_release() -> int:
    """The major number of its version, 0 if unknown."""
    if not is_installed("ganesha.nfsd"):
        return 0
    found = re.search(r"Release = V(\d+)", run(["ganesha.nfsd", "-v"], check=False).stdout)
    return int(found[1]) if found else 0


def wants_rpcbind(config: ServeConfig, holders: tuple[Holder, ...]) -> bool:
    """Whether rpcbind must be started for nfs-ganesha, because it is not running."""
    return config.nfs is Nfs.GANESHA and not any(h.number == RPCBIND_PORT for h in holders)


@contextmanager
def kernel_export(config: ServeConfig) -> Iterator[None]:
    """The roots exported by the kernel's server; withdrawn at the end."""
    export = f"{config.interface.network}:{config.tree.roots}"
    run(["exportfs", "-o", export_options(config), export])
    try:
        yield
    finally:
        run(["exportfs", "-u", export], check=False)
