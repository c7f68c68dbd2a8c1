# SPDX-License-Identifier: Apache-2.0
"""The export of the roots: by the kernel's NFS server, or by nfs-ganesha where there is none."""

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
KERNEL_COUNTS = Path("/proc/net/rpc/nfsd")  # the same number, for everybody to read
RPCBIND_PORT = 111


def choose_nfs(wanted: Nfs) -> Nfs:
    """Which server exports the roots.  Raises HostError when there is none, or not that one."""
    if wanted is not Nfs.GANESHA and kernel_serves() and is_installed("exportfs"):
        return Nfs.KERNEL
    if wanted is not Nfs.KERNEL and has_ganesha():
        return Nfs.GANESHA
    kernel = "sudo apt-get install nfs-kernel-server, which starts the kernel's"
    ganesha = "sudo apt-get install nfs-ganesha nfs-ganesha-vfs rpcbind"
    what, hint = {
        Nfs.KERNEL: ("the kernel's NFS server is not running", kernel),
        Nfs.GANESHA: ("nfs-ganesha is not installed", ganesha),
        Nfs.AUTO: ("no NFS server on this host", f"{kernel}, or {ganesha}"),
    }[wanted]
    raise HostError(what, where=f"--nfs {wanted}", hint=hint)


def kernel_serves() -> bool | None:
    """Whether the kernel's NFS server has threads; None if we may not look."""
    try:
        return int(KERNEL_THREADS.read_text()) > 0
    except (OSError, ValueError):
        return has_threads(KERNEL_COUNTS)


def has_threads(counts: Path) -> bool | None:
    """What only root may read in one file anybody reads in another: the line `th COUNT ...`.

    Without that line nobody counts; without the file there is no NFS server in the kernel.
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
    """The major number of its version, 0 when it does not tell."""
    if not is_installed("ganesha.nfsd"):
        return 0
    found = re.search(r"Release = V(\d+)", run(["ganesha.nfsd", "-v"], check=False).stdout)
    return int(found[1]) if found else 0


def wants_rpcbind(config: ServeConfig, holders: tuple[Holder, ...]) -> bool:
    """Whether rpcbind has to be started for nfs-ganesha, because nobody did."""
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
