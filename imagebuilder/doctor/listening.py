# SPDX-License-Identifier: Apache-2.0
"""Check who can reach the services for nodes: the addresses of their sockets, from ss(8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from imagebuilder.doctor.finding import HostFinding, fine, warning
from imagebuilder.nodes.evidence.usage import NFS_PORT
from imagebuilder.process import is_installed, run
from imagebuilder.serve.interface import Interface
from imagebuilder.serve.nfs import RPCBIND_PORT
from imagebuilder.serve.ports import ANYWHERE, Holder

Service = tuple[str, int]  # protocol and port
# The rpc(5) programs of an NFS server.
PROGRAMS = {
    "100000": "rpcbind",
    "100003": "NFS",
    "100005": "mountd",
    "100021": "lockd",
    "100024": "statd",
    "100227": "NFS",
}
KNOWN: Mapping[Service, str] = {
    ("tcp", NFS_PORT): "NFS",
    ("udp", NFS_PORT): "NFS",
    ("tcp", RPCBIND_PORT): "rpcbind",
    ("udp", RPCBIND_PORT): "rpcbind",
}
FIREWALL = "let only {interface} reach {service} in the firewall"
VERSION_4 = "or vers3=n below [nfsd] in /etc/nfs.conf if no node mounts version 3"


@dataclass(frozen=True)
class Place:
    """Where a service listens: `words` for people, and whether other machines can reach it."""

    words: str
    is_wide: bool


def find_rpc_services() -> dict[Service, str]:
    """The ports of the NFS server's programs that rpcbind knows."""
    shown = run(["rpcinfo", "-p"], check=False).stdout if is_installed("rpcinfo") else ""
    return {**KNOWN, **parse_rpcinfo(shown)}


def parse_rpcinfo(text: str) -> dict[Service, str]:
    """The lines of `rpcinfo -p`: program, version, protocol, port, name."""
    rows = [line.split() for line in text.splitlines()]
    return {
        (row[2], int(row[3])): PROGRAMS[row[0]]
        for row in rows
        if len(row) >= 4 and row[0] in PROGRAMS and row[3].isdigit()
    }


def find_place(holder: Holder, interface: Interface) -> Place | None:
    """Where a socket listens; None if only this host can reach it."""
    address = holder.address.strip("[]")
    if address.startswith("127.") or address == "::1" or holder.interface == "lo":
        return None
    if holder.interface:
        return Place(holder.interface, holder.interface != interface.name)
    if holder.address in ANYWHERE:
        return Place("every address", is_wide=True)
    return Place(address, address != str(interface.server))


def examine_listeners(
    interface: Interface, holders: Sequence[Holder], services: Mapping[Service, str]
) -> tuple[HostFinding, ...]:
    """A finding for each open port of `services`: whether only nodes can reach it."""
    places: dict[Service, set[Place]] = {}
    programs: dict[Service, str] = {}
    for holder in holders:
        service = holder.protocol, holder.number
        place = find_place(holder, interface)
        if service in services and place:
            places.setdefault(service, set()).add(place)
            programs[service] = holder.program or programs.get(service, "")
    if not places:
        return (fine("listening", "no service for nodes is listening"),)
    order = sorted(places, key=lambda service: (service[1], service[0]))
    groups: dict[tuple[object, ...], list[Service]] = {}
    for service in order:
        # Eleven ports of mountd are one fault with one fix.
        is_wide = any(place.is_wide for place in places[service])
        group = (services[service], programs[service], frozenset(places[service]), is_wide)
        groups.setdefault(group if is_wide else (service,), []).append(service)
    return tuple(
        listener(interface, group, services[group[0]], programs[group[0]], places[group[0]])
        for group in groups.values()
    )


def listener(
    interface: Interface, group: Sequence[Service], purpose: str, program: str, places: set[Place]
) -> HostFinding:
    name = name_ports(group)
    where = ", ".join(sorted({place.words for place in places}))
    who = f" ({program})" if program and program != purpose else ""
    what = f"{name}, {purpose}{who}: listens on {where}"
    if not any(place.is_wide for place in places):
        return fine("listening", what)
    fix = FIREWALL.format(interface=interface.name, service=name)
    if purpose == "NFS":
        fix = f"host={interface.server} below [nfsd] in /etc/nfs.conf, or {fix}"
    elif purpose in ("mountd", "lockd", "statd"):
        fix = f"{fix}, {VERSION_4}"
    return warning(
        "listening",
        f"{what}: networks other than {interface.network} can reach it",
        fix,
    )


def name_ports(group: Sequence[Service]) -> str:
    """`tcp port 80`; `tcp ports 80, 81 and udp port 80`."""
    named = []
    for protocol in sorted({protocol for protocol, _ in group}):
        numbers = [str(number) for each, number in group if each == protocol]
        ports = "ports" if len(numbers) > 1 else "port"
        named.append(f"{protocol} {ports} {', '.join(numbers)}")
    return " and ".join(named)
