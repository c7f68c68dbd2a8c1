# SPDX-License-Identifier: Apache-2.0
"""What the web server notes in serve/reports.log, as pxe/nginx.conf.j2 has it write."""

from __future__ import annotations

import hashlib
import json

from imagebuilder.tree import Tree, hyphened

ADDRESS = "192.0.2.5"
TIME = "2026-11-20T12:00:00+02:00"


def secret_of(name: str) -> str:
    """A ticket for a test."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def write_log(tree: Tree, *lines: str) -> None:
    """Let the web server write lines."""
    with tree.reports_log.open("a") as stream:
        stream.writelines(lines)


def compact(value: dict[str, str]) -> str:
    """A line without spaces, as nginx writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False) + "\n"


def report_line(uri: str, *, time: str = TIME, address: str = ADDRESS, agent: str = "Wget") -> str:
    """Somebody asked for this."""
    return compact({"time": time, "address": address, "uri": uri, "agent": agent})


def ticket_line(mac: str, secret: str, *, time: str = TIME, address: str = ADDRESS) -> str:
    """The script of a NIC was sent to somebody, with a ticket."""
    uri = f"/nodes/{hyphened(mac)}/boot.ipxe"
    return compact({"time": time, "address": address, "uri": uri, "ticket": secret})


def lease(tree: Tree, mac: str, address: str = ADDRESS) -> None:
    """Let dnsmasq give an address to a NIC for ever, and to no other one."""
    path = tree.serve / "leases"
    lines = path.read_text().splitlines() if path.exists() else []
    kept = [line for line in lines if line.split()[2] != address]
    path.write_text("".join(f"{line}\n" for line in [*kept, f"0 {mac} {address} * *"]))


def boots(
    tree: Tree, mac: str, release: str, *, name: str = "", time: str = TIME, address: str = ADDRESS
) -> None:
    """A node of nodes.yaml boots PROFILE/VERSION: it has its address, its ticket, and reports."""
    secret = secret_of(name or f"{mac} {release} {time}")
    lease(tree, mac, address)
    uri = f"/report/{secret}/{release}?stage=switch-root&uptime=16.5&node={mac}"
    write_log(
        tree,
        ticket_line(mac, secret, time=time, address=address),
        report_line(uri, time=time, address=address),
    )
