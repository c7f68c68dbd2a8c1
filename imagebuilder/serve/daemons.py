# SPDX-License-Identifier: Apache-2.0
"""The daemons: how each is started, tried, told to read its files again, and known to be ready."""

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
from imagebuilder.serve.nfs import RPCBIND_PORT
from imagebuilder.serve.options import Nfs

NO_NAME = "s/ [^ ]*/ */3"  # the fourth word of a lease is a name, `*` for none
# nfs-ganesha has no test of its file, and starts without what it does not understand.  So it starts
# at address $1 of namespaces that end with the script, which fails if it complains of a file in $2.
# Its sockets are in a /run of its own, in which a tree below /run is too.
TRY_GANESHA = (
    "ip link set lo up; ip address add $1 dev lo; mount -t tmpfs tmpfs $2/ganesha; "
    "cd $2/ganesha; mkdir run; mount --rbind /run run; mount -t tmpfs tmpfs /run; "
    "case $2 in /run/*) tree=run/$(echo $2 | cut -d/ -f3); mkdir /$tree; "
    "mount --rbind $tree /$tree;; esac; "
    "mkdir /run/ganesha /run/rpcbind; mkfifo /run/said; rpcbind -h $1; "
    "ganesha.nfsd -F -f $2/ganesha.conf -L STDOUT -p /run/ganesha.pid > /run/said 2>&1 & "
    "faults=0; while read -r line; do case $line in "
    '*"NFS SERVER INITIALIZED"*) exit $faults;; *" :EVENT :"*) continue;; '
    '*" :Config "[Ff]"ile ("*) faults=1;; esac; echo "$line"; done < /run/said; exit 1'
)


@dataclass(frozen=True)
class Daemon:
    """One daemon; it is ready when it has said `ready`, a pattern, within `patience` seconds.

    One that says nothing is ready when its `port` is open (TCP, on the loopback interface).
    `test` is the command that has it read its files, and no more.  `before` runs before each start;
    the daemon starts even if it fails.
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

    It believes the names in its lease file, which machines could choose in earlier versions.  They
    are removed before it starts; it takes those of nodes from dhcp-hosts again.
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
    """Where nfs-ganesha says on which ports it is; says nothing itself."""
    argv = ("rpcbind", "-f", "-h", config.server)
    return Daemon("rpcbind", argv, "", "nfs-ganesha registers its ports with it", port=RPCBIND_PORT)


def radvd(config: ServeConfig) -> Daemon:
    """What tells machines that they need not wait for IPv6; it reads its file but once."""
    words = ("radvd", "--config", config.folder / "radvd.conf")
    log = "syslog" if config.installed else "stderr"  # the journal's level of a line is syslog's
    argv = (*words, "--nodaemon", "--logmethod", log, "--pidfile", config.folder / "radvd.pid")
    return Daemon(
        "radvd", argv, "version .* started", "no IPv6 to wait for", (*words, "--configtest")
    )


def ganesha(config: ServeConfig) -> Daemon:
    """The NFS server that needs no kernel module."""
    argv = (
        "ganesha.nfsd", "-F", "-f", config.folder / "ganesha.conf", "-L", "STDOUT",
        "-p", config.folder / "ganesha.pid",
    )  # fmt: skip
    test = (
        "timeout", "60", "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child",
        "sh", "-euc", TRY_GANESHA, "sh", config.server, config.folder,
    )  # fmt: skip
    return Daemon("ganesha", argv, "NFS SERVER INITIALIZED", "roots over NFS", test, patience=60)


def consoles(config: ServeConfig) -> Daemon:
    """What receives the messages of nodes' kernels; it becomes dnsmasq's user."""
    argv = (
        sys.executable, "-m", "imagebuilder.serve.consoles", config.folder, config.tree.path,
        config.server, config.interface.name, *((config.dhcp_user,) if config.dhcp_user else ()),
    )  # fmt: skip
    return Daemon("consoles", argv, "receiving consoles", "what the kernels of nodes say")


def daemons(config: ServeConfig, *, with_rpcbind: bool) -> tuple[Daemon, ...]:
    """All of them, in the order they start."""
    first = (rpcbind(config),) if with_rpcbind else ()
    roots = (ganesha(config),) if config.nfs is Nfs.GANESHA else ()
    return (*first, *roots, *web_and_wire(config))


def web_and_wire(config: ServeConfig) -> tuple[Daemon, ...]:
    more = (*((radvd(config),) if config.announces else ()),
            *((consoles(config),) if config.consoles else ()))  # fmt: skip
    return (nginx(config), *more, dnsmasq(config))


def check_config(config: ServeConfig) -> None:
    """Have the daemons read their own files.  Raises WorkError with what they say."""
    for daemon in daemons(config, with_rpcbind=False):
        if daemon.test:
            run(daemon.test)


def reload_changed(config: ServeConfig, changed: Collection[str]) -> None:
    """Have the daemons read the files again that changed; one that is not up reads them later.

    dnsmasq reads its dnsmasq.conf but once: it is ended, for whoever started it to start it again.
    """
    if "dnsmasq.conf" in changed:
        send(config.folder / "dnsmasq.pid", signal.SIGTERM)
    elif {"dhcp-hosts", "hosts"} & set(changed):
        send(config.folder / "dnsmasq.pid", signal.SIGHUP)
    if "nginx.conf" in changed:
        send(config.folder / "nginx.pid", signal.SIGHUP)


def send(pid_file: Path, number: signal.Signals) -> None:
    """Send a signal to a daemon, if it runs."""
    if pid := find_pid(pid_file):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def is_running(pid_file: Path) -> bool:
    return find_pid(pid_file) is not None


def find_pid(pid_file: Path) -> int | None:
    """The process that a daemon says it is, if it is a daemon of ours still."""
    try:
        pid = int(pid_file.read_text())
        program = Path(f"/proc/{pid}/comm").read_text().strip()
    except (OSError, ValueError):
        return None
    return pid if program in (pid_file.stem, f"{pid_file.stem}.nfsd") else None


def find_own_pids(folder: Path) -> set[int]:
    """The daemons that run with the files of a folder, by their pid files."""
    names = ("dnsmasq", "nginx", "ganesha", "radvd", "consoles")
    found = (find_pid(folder / f"{name}.pid") for name in names)
    return {pid for pid in found if pid}
