# SPDX-License-Identifier: Apache-2.0
"""The daemons' files as texts, from the templates in pxe/."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address

from imagebuilder.nodes.config import TICKET
from imagebuilder.nodes.scripts import render_template
from imagebuilder.nodes.types import Node
from imagebuilder.serve.config import MOUNTD_PORT, ServeConfig
from imagebuilder.serve.options import Dhcp
from imagebuilder.tree import hyphened

SNPONLY = "snponly.efi"
OUR_NAME = "server"


def render_dnsmasq(config: ServeConfig, nodes: Sequence[Node]) -> str:
    """dnsmasq.conf; the nodes are in separate files, which dnsmasq reloads on SIGHUP.

    Only nodes with snponly are in here, although a change needs a restart: dnsmasq 2.90 crashes
    when it reloads a hosts file that sets tags (it frees lists that are linked into others).
    """
    quirky = [mac for node in nodes if node.ipxe == SNPONLY for mac in node.macs]
    proxy = config.dhcp is Dhcp.PROXY
    return render_template("dnsmasq.conf.j2", config=config, proxy=proxy, quirky=quirky)


def render_dhcp_hosts(nodes: Sequence[Node]) -> str:
    """The nodes' lines for `dhcp-hostsfile`: every NIC, the address if there is one, the name."""
    lines = ([*node.macs, *([node.address] if node.address else []), node.name] for node in nodes)
    return "".join(f"{','.join(words)}\n" for words in lines)


def render_hosts(config: ServeConfig, nodes: Sequence[Node]) -> str:
    """The lines for `addn-hosts`: names of nodes whose address is known without a lease, and ours
    unless a node has that name.
    """
    fixed = sorted((IPv4Address(node.address), node.name) for node in nodes if node.address)
    ours = not any(node.name == OUR_NAME for node in nodes)
    lines = [*([(config.interface.server, OUR_NAME)] if ours else []), *fixed]
    return "".join(f"{address} {name}.{config.domain} {name}\n" for address, name in lines)


def render_consoles(nodes: Sequence[Node]) -> str:
    """The nodes whose consoles are wanted, with the addresses that identify their packets."""
    wanted = (node for node in nodes if node.netconsole)
    return "".join(f"{' '.join((n.name, *n.macs, n.address)).strip()}\n" for n in wanted)


def render_nginx(config: ServeConfig, nodes: Sequence[Node]) -> str:
    """nginx.conf; only a node's own address may fetch its files, if that address is fixed."""
    owned = [
        (f"{hyphened(mac)}/", node.address)
        for node in nodes
        if node.address and config.dhcp is Dhcp.FULL
        for mac in node.macs
    ]
    return render_template("nginx.conf.j2", config=config, owned=owned, ticket=TICKET)


def render_exports(config: ServeConfig) -> str:
    """The line of exports(5) for the kernel's NFS server."""
    return render_template("exports.j2", config=config, options=export_options(config))


def export_options(config: ServeConfig) -> str:
    return f"ro,no_root_squash,no_subtree_check,fsid={config.export_id},sec=sys"


def render_ganesha(config: ServeConfig, release: int) -> str:
    """ganesha.conf, for hosts whose kernel does not serve NFS."""
    return render_template(
        "ganesha.conf.j2", config=config, mountd_port=MOUNTD_PORT, release=release
    )
