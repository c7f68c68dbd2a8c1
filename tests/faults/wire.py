# SPDX-License-Identifier: Apache-2.0
"""What network faults do to the daemons of a boot room."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

from imagebuilder.boot.lab import BRIDGE
from imagebuilder.boot.server import VIEW, BootServer

PATIENCE = 10.0
DNSMASQ, NGINX, GANESHA = "dnsmasq", "nginx", "ganesha.nfsd"


def pids(boot_server: BootServer, program: str) -> list[int]:
    """The processes of a daemon in the room; the oldest comes first."""
    network = Path(f"/proc/{boot_server.lab.holder}/ns/net").readlink()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            same = (process / "ns/net").readlink() == network
            if same and (process / "comm").read_text().strip() == program:
                found.append(int(process.name))
        except OSError:
            continue
    return sorted(found)


def send(boot_server: BootServer, program: str, number: signal.Signals) -> None:
    """Send a signal to a daemon.  Raises RuntimeError when it does not run."""
    there = pids(boot_server, program)
    if not there:
        raise RuntimeError(f"no {program} runs in the room")
    for pid in there:
        os.kill(pid, number)


def silence(boot_server: BootServer, program: str) -> None:
    """Let a daemon hang: its ports are open, nobody answers."""
    send(boot_server, program, signal.SIGSTOP)


def change_config(boot_server: BootServer, name: str, pattern: str, by: str) -> None:
    """Change a daemon's rendered configuration.  Raises RuntimeError when nothing changes."""
    (path,) = boot_server.view.serve.rglob(name)
    text = path.read_text()
    changed = re.sub(pattern, by, text, flags=re.MULTILINE)
    if changed == text:
        raise RuntimeError(f"{name} has nothing like {pattern}")
    path.write_text(changed)


def reload_nginx(boot_server: BootServer, pattern: str, by: str) -> None:
    """Let the web server do something else."""
    change_config(boot_server, "nginx.conf", pattern, by)
    os.kill(pids(boot_server, NGINX)[0], signal.SIGHUP)
    time.sleep(1)


def reload_ganesha(boot_server: BootServer, pattern: str, by: str) -> None:
    """Let the NFS server export otherwise."""
    change_config(boot_server, "ganesha.conf", pattern, by)
    send(boot_server, GANESHA, signal.SIGHUP)
    time.sleep(2)


def other_dhcp(boot_server: BootServer, *options: str) -> None:
    """Let another DHCP server answer in the place of ours; it writes to the same log."""
    silence(boot_server, DNSMASQ)
    folder = f"{VIEW}/serve"
    words = [
        "dnsmasq", "--conf-file=/dev/null", "--port=0", f"--interface={BRIDGE}",
        "--bind-interfaces", "--except-interface=lo", "--log-dhcp",
        f"--log-facility={folder}/logs/dnsmasq.log",
        f"--pid-file={folder}/other.pid", f"--dhcp-leasefile={folder}/other.leases",
        "--dhcp-authoritative", *options,
    ]  # fmt: skip
    boot_server.lab.run(words)
