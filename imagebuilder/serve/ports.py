# SPDX-License-Identifier: Apache-2.0
"""Find which ports are in use, and by which programs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import Fault
from imagebuilder.process import run

ANYWHERE = frozenset(("0.0.0.0", "*", "[::]"))
# An IPv4 address as an IPv6 socket has it, such as those of nfs-ganesha.
MAPPED = re.compile(r"\[::ffff:([0-9.]+)\]")


@dataclass(frozen=True)
class Port:
    """A port that one of our daemons needs; `protocol` is "tcp" or "udp"."""

    protocol: str
    number: int
    purpose: str

    def __str__(self) -> str:
        return f"{self.protocol} port {self.number}"


@dataclass(frozen=True)
class Holder:
    """A program with an open port: at an address, perhaps on one interface only.

    `others` are further processes with the same socket, such as nginx's.
    """

    protocol: str
    number: int
    address: str
    interface: str = ""
    program: str = ""
    pid: int = 0
    others: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.program} (process {self.pid})" if self.pid else "a program of another user"


def find_holders() -> tuple[Holder, ...]:
    """Every open port of this network namespace, by ss(8)."""
    return parse_holders(run(["ss", "-Hlnptu"]).stdout)


def parse_holders(text: str) -> tuple[Holder, ...]:
    """The lines of `ss -Hlnptu`."""
    return tuple(filter(None, map(parse_holder, text.splitlines())))


def parse_holder(line: str) -> Holder | None:
    """One line of it; None for a socket without a port."""
    words = line.split(maxsplit=6)
    if len(words) < 6 or words[0] not in ("tcp", "udp"):
        return None
    address, _, number = words[4].rpartition(":")
    address, _, interface = address.partition("%")
    if mapped := MAPPED.fullmatch(address):
        address = mapped[1]
    users = re.findall(r'\("([^"]*)",pid=(\d+)', words[6] if len(words) > 6 else "")
    if not number.isdigit():
        return None
    program = users[0][0] if users else ""
    pid, *others = [int(user[1]) for user in users] or [0]
    return Holder(words[0], int(number), address, interface, program, pid, tuple(others))


def find_holder(
    port: Port, address: str, interface: str, holders: Iterable[Holder]
) -> Holder | None:
    """The program that blocks `port` at `address` of `interface`; None if it is free."""
    for holder in holders:
        if (holder.protocol, holder.number) != (port.protocol, port.number):
            continue
        if holder.interface not in ("", interface):
            continue  # another network
        if holder.address in ANYWHERE or holder.address == address:
            return holder
    return None


def port_faults(
    ports: Iterable[Port], address: str, interface: str, holders: Iterable[Holder]
) -> list[Fault]:
    listed = tuple(holders)
    found = ((port, find_holder(port, address, interface, listed)) for port in ports)
    return [
        Fault(
            str(port),
            f"is in use by {holder}; {port.purpose} needs it at {address}",
            hint_for(holder),
        )
        for port, holder in found
        if holder
    ]


def hint_for(holder: Holder) -> str:
    if not holder.pid:
        return f"run sudo ss -lnp 'sport = {holder.number}' to see which program it is"
    if unit := find_unit(holder.pid):
        return f"run sudo systemctl disable --now {unit}, or let it listen elsewhere"
    return f"end process {holder.pid} (see ps -f {holder.pid}), or let it listen elsewhere"


def find_unit(pid: int) -> str:
    """The systemd service of a process, from its cgroup(7); empty if none."""
    try:
        text = Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return ""
    return parse_unit(text)


def parse_unit(cgroups: str) -> str:
    """The service in the text of /proc/PID/cgroup."""
    found = re.findall(r"/([^/\n]+\.service)$", cgroups, re.MULTILINE)
    return found[-1] if found else ""
