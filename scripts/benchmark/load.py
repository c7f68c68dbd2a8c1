# SPDX-License-Identifier: Apache-2.0
"""What serving costs: processor time and memory of a room's daemons, and bytes on its wires."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.boot.lab import Lab
from scripts.benchmark.page_boot import DAEMONS
from scripts.benchmark.spent import PROC, field_of

TICKS = os.sysconf("SC_CLK_TCK")
OURS = "imagebuilder"
# Where a process of the room is a daemon of ours by its command line; QEMU and ssh are not.
MODULE = b"imagebuilder.cli.main"
NAMES = {"ganesha.nfsd": "ganesha"}
# Fields 14 and 15 of /proc/PID/stat, counted after the name in brackets (proc(5)).
UTIME, STIME = 11, 12


@dataclass(frozen=True)
class Load:
    """Processor seconds and peak memory in bytes, by daemon."""

    seconds: Mapping[str, float]
    memory: Mapping[str, int]


def load_of(room: Lab) -> Load:
    """What the daemons of a room have taken since they were started."""
    seconds: defaultdict[str, float] = defaultdict(float)
    memory: Counter[str] = Counter()
    for process in processes_in(room):
        with contextlib.suppress(OSError):
            name = daemon_of(process)
            if name in DAEMONS:
                seconds[name] += processor_seconds((process / "stat").read_text())
                memory[name] += field_of(process / "status", "VmHWM")
    return Load(seconds, memory)


def processes_in(room: Lab) -> Iterator[Path]:
    """Every process in the room's network, as a folder of /proc."""
    network = (PROC / str(room.holder) / "ns/net").readlink()
    for process in PROC.iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                if (process / "ns/net").readlink() == network:
                    yield process


def daemon_of(process: Path) -> str:
    """The daemon that a process is part of, or its name.  Raises OSError when it ended."""
    name = (process / "comm").read_text().strip()
    if MODULE in (process / "cmdline").read_bytes():
        return OURS
    return NAMES.get(name, name)


def processor_seconds(stat: str) -> float:
    """What a process has used of all processors, from /proc/PID/stat."""
    fields = stat.rpartition(")")[2].split()
    return (int(fields[UTIME]) + int(fields[STIME])) / TICKS


@dataclass(frozen=True)
class Traffic:
    """Bytes on the wires of a room: to its machines and from them."""

    to_nodes: int
    from_nodes: int


def traffic_of(shown: str, taps: frozenset[str]) -> Traffic:
    """The sum over taps, from `ip -json -statistics link`: what a tap sends, its machine gets."""
    links = [link for link in json.loads(shown) if link["ifname"] in taps]
    return Traffic(
        to_nodes=sum(link["stats64"]["tx"]["bytes"] for link in links),
        from_nodes=sum(link["stats64"]["rx"]["bytes"] for link in links),
    )


def traffic_in(room: Lab, taps: frozenset[str]) -> Traffic:
    """What went over the taps of a room so far."""
    return traffic_of(room.run(["ip", "-json", "-statistics", "link", "show"]).stdout, taps)


def http_bytes(log: str) -> int:
    """What the web server sent as bodies, from the lines that pxe/nginx.conf.j2 has it write.

    Address, status, bytes, seconds, path; what else stands in that log is passed over.
    """
    total = 0
    for line in log.splitlines():
        words = line.split()
        if len(words) == 5 and words[1].isdigit() and words[2].isdigit():
            total += int(words[2])
    return total
