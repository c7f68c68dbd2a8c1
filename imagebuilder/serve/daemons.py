# SPDX-License-Identifier: Apache-2.0
"""The daemons: how each is started, tested and reloaded, and when it is ready."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.process import Word, run
from imagebuilder.serve.config import ServeConfig
from imagebuilder.serve.ganesha import CONFINE_GANESHA, TRY_GANESHA
from imagebuilder.serve.nfs import RPCBIND_PORT
from imagebuilder.serve.options import Nfs

NO_NAME = "s/ [^ ]*/ */3"  # the fourth word of a lease is a name, `*` for none


@dataclass(frozen=True)
class Daemon:
    """One daemon; it must print `ready`, a pattern, within `patience` seconds.

    A daemon that prints nothing is ready when its `port` is open (TCP, on the loopback interface).
    `test` is a command that only checks its files.  `before` runs before each start; the daemon
    starts even if it fails.
    """

    name: str
    argv: tuple[Word, ...]
    ready: str
    purpose: str
    test: tuple[Word, ...] = ()
    patience: float = 15
    port: int = 0
    before: tuple[Word, ...] = ()


def dnsmasq(config: ServeConfig) -> Daemon:
    """DHCP, TFTP and names.

    It trusts the names in its lease file, which machines could choose in earlier versions.  They
    are removed before it starts; it takes the names of nodes from dhcp-hosts.
    """
    words = ("dnsmasq", f"--conf-file={config.folder}/dnsmasq.conf")
    return Daemon(
        "dnsmasq", (*words, "--keep-in-foreground"), "DHCP, (IP range|proxy)",
        "DHCP, TFTP and names", (*words, "--test"),
        before=("sed", "-i", NO_NAME, config.leases) if config.pool else (),
    )  # fmt: skip


def nginx(config: ServeConfig) -> Daemon:
    words = ("nginx", "-p", f"{config.folder}/nginx", "-e", "stderr")
    argv = (*words, "-c", config.folder / "nginx.conf")
    return Daemon(
        "nginx", argv, "start worker process", "kernels, initrds and roots over HTTP", (*argv, "-t")
    )


def rpcbind(config: ServeConfig) -> Daemon:
    """nfs-ganesha registers its ports there.  rpcbind prints nothing when it is ready."""
    argv = ("rpcbind", "-f", "-h", config.server)
    return Daemon("rpcbind", argv, "", "nfs-ganesha registers its ports with it", port=RPCBIND_PORT)


def radvd(config: ServeConfig) -> Daemon:
    """Tells machines not to wait for IPv6; it reads its file only once."""
    words = ("radvd", "--config", config.folder / "radvd.conf")
    log = "syslog" if config.installed else "stderr"  # the journal's level of a line is syslog's
    argv = (*words, "--nodaemon", "--logmethod", log, "--pidfile", config.folder / "radvd.pid")
    return Daemon("radvd", argv, "version .* started", "no wait for IPv6", (*words, "--configtest"))


def ganesha(config: ServeConfig) -> Daemon:
    """The NFS server that needs no kernel module; it finds nothing but the roots."""
    argv = (
        "unshare", "--mount", "--propagation", "private",
        "sh", "-euc", CONFINE_GANESHA, "sh", config.tree.roots, config.folder,
    )  # fmt: skip
    test = (
        "timeout", "60", "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child",
        "sh", "-euc", TRY_GANESHA, "sh", config.server, config.folder,
    )  # fmt: skip
    return Daemon("ganesha", argv, "NFS SERVER INITIALIZED", "roots over NFS", test, patience=60)


def consoles(config: ServeConfig) -> Daemon:
    """Receives the kernel messages of nodes; it switches to dnsmasq's user."""
    argv = (
        sys.executable, "-P", "-m", "imagebuilder.serve.consoles", config.folder, config.tree.path,
        config.server, config.interface.name, *((config.dhcp_user,) if config.dhcp_user else ()),
    )  # fmt: skip
    return Daemon("consoles", argv, "receiving consoles", "kernel messages of nodes")


def daemons(config: ServeConfig, *, with_rpcbind: bool) -> tuple[Daemon, ...]:
    """All daemons, in the order of their start."""
    first = (rpcbind(config),) if with_rpcbind else ()
    roots = (ganesha(config),) if config.nfs is Nfs.GANESHA else ()
    more = (*((radvd(config),) if config.announces else ()),
            *((consoles(config),) if config.consoles else ()))  # fmt: skip
    return (*first, *roots, nginx(config), *more, dnsmasq(config))


def check_config(config: ServeConfig) -> None:
    """Let the daemons check their files.  Raises WorkError with their errors."""
    for daemon in daemons(config, with_rpcbind=False):
        if daemon.test:
            run(daemon.test)


def reload_changed(config: ServeConfig, changed: Collection[str]) -> None:
    """Let the daemons reload changed files; a daemon that is not running reads them later.

    dnsmasq reads dnsmasq.conf only once: it is ended, and whoever started it starts it again.
    """
    if "dnsmasq.conf" in changed:
        send(config.folder / "dnsmasq.pid", signal.SIGTERM)
    elif {"dhcp-hosts", "hosts"} & set(changed):
        send(config.folder / "dnsmasq.pid", signal.SIGHUP)
    if "nginx.conf" in changed:
        send(config.folder / "nginx.pid", signal.SIGHUP)


def send(pid_file: Path, number: signal.Signals) -> None:
    """Send a signal to a daemon if it is running."""
    if pid := find_pid(pid_file):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def is_running(pid_file: Path) -> bool:
    return find_pid(pid_file) is not None


def find_pid(pid_file: Path) -> int | None:
    """The process in a daemon's pid file, if it is still one of our daemons."""
    try:
        pid = int(pid_file.read_text())
        program = Path(f"/proc/{pid}/comm").read_text().strip()
    except (OSError, ValueError):
        return None
    return pid if program in (pid_file.stem, f"{pid_file.stem}.nfsd") else None


def find_our_pids(folder: Path) -> set[int]:
    """The daemons that use the files of a folder, by their pid files."""
    names = ("dnsmasq", "nginx", "ganesha", "radvd", "consoles")
    found = (find_pid(folder / f"{name}.pid") for name in names)
    return {pid for pid in found if pid}
