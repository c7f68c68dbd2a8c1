# SPDX-License-Identifier: Apache-2.0
"""Check everything before anything is changed: options -> what to serve, or why not."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path

from imagebuilder.errors import HostError, InputError
from imagebuilder.nodes.files import WEB_GROUPS
from imagebuilder.nodes.types import Nodes
from imagebuilder.process import is_installed, run
from imagebuilder.rights import check_root
from imagebuilder.serve.capacity import find_capacity
from imagebuilder.serve.config import ServeConfig
from imagebuilder.serve.discover import Server, find_dhcp_servers
from imagebuilder.serve.interface import (
    Interface,
    check_node_addresses,
    find_interface,
    parse_pool,
    plan_pool,
)
from imagebuilder.serve.ipxe import (
    FOLDERS,
    check_binaries,
    choose_boot_files,
    find_binaries,
    missing_architectures,
)
from imagebuilder.serve.nfs import choose_nfs
from imagebuilder.serve.options import Dhcp, Nfs, Options
from imagebuilder.serve.ports import Holder, port_faults
from imagebuilder.tree import Tree
from imagebuilder.ui import Ui

# A path is written to the files of three daemons and to the nodes' kernel command line, which have
# no quoting in common.
PLAIN_PATH = re.compile(r"/[A-Za-z0-9/._+-]*")
DOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
# Folders of TREE/serve: a check must not change the files of running daemons.
FOREGROUND, INSTALLED, CHECKED = "foreground", "installed", "checked"
WEB_USERS = (*WEB_GROUPS, "nobody")
PROGRAMS = ("ip", "ss", "dnsmasq", "nginx")
DHCP_USERS = ("dnsmasq", "nobody")
# Prints the first of its arguments that this user may not enter.
PASSABLE = 'for path; do [ -x "$path" ] || { printf "%s" "$path"; exit 1; }; done'


@dataclass(frozen=True)
class Prepared:
    config: ServeConfig
    binaries: dict[str, Path]


def prepare(
    options: Options, tree: Tree, nodes: Nodes, folder: str, *, pinned: bool = False
) -> Prepared:
    """Decide everything from the options and the host, for daemons' files in TREE/serve/`folder`.

    With `pinned`, the options name what was decided at the installation: it does not matter whether
    the NFS server is running now.
    Raises InputError and HostError.
    """
    check_host()
    check_tree_path(tree)
    check_words(options)
    interface = find_interface(options.interface, options.address)
    check_node_addresses(interface, nodes.nodes, os.fspath(tree.nodes_file))
    binaries = find_binaries([options.ipxe] if options.ipxe else FOLDERS)
    check_binaries(binaries)
    full = options.dhcp is Dhcp.FULL
    chosen_pool = parse_pool(options.pool) if options.pool else None
    if chosen_pool and not full:
        raise InputError(
            "proxy DHCP assigns no addresses", where=f"--range {options.pool}", hint="remove it"
        )
    config = ServeConfig(
        tree=tree,
        interface=interface,
        folder=tree.serve / folder,
        nfs=options.nfs if pinned and options.nfs is not Nfs.AUTO else choose_nfs(options.nfs),
        boot_files=choose_boot_files(tuple(binaries)),
        pool=plan_pool(interface, nodes.nodes, chosen_pool) if full else None,
        http_port=options.http_port,
        domain=options.domain,
        gateway=parse_gateway(options.gateway, interface),
        dns=options.dns,
        installed=folder == INSTALLED,
        web_user=find_user(WEB_USERS),
        dhcp_user=find_user(DHCP_USERS),
        announces=full and has_ipv6(interface.name) and is_installed("radvd"),
        consoles=any(node.netconsole for node in nodes.nodes),
        capacity=find_capacity(installed=folder == INSTALLED),
    )
    check_readable(config)
    return Prepared(config, binaries)


def check_nodes(config: ServeConfig, nodes: Nodes) -> None:
    """Raise InputError if changed nodes do not fit the served network."""
    check_node_addresses(config.interface, nodes.nodes, os.fspath(config.tree.nodes_file))
    if config.pool:
        plan_pool(config.interface, nodes.nodes, config.pool)


def check_host() -> None:
    """Raise HostError if the daemons cannot be started."""
    check_root("serving nodes")
    if missing := [name for name in PROGRAMS if not is_installed(name)]:
        raise HostError(
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed",
            hint="run imagebuilder setup --serve to install what serving needs",
        )


def check_tree_path(tree: Tree) -> None:
    """Raise InputError for a path that the daemons or the kernel command line cannot contain."""
    if not PLAIN_PATH.fullmatch(os.fspath(tree.path)):
        raise InputError(
            "contains characters that are not allowed on a kernel command line",
            where=f"--tree {tree.path}",
            hint="use letters, digits and . _ + -",
        )


def check_words(options: Options) -> None:
    """Raise InputError for an invalid domain."""
    if not DOMAIN.fullmatch(options.domain):
        raise InputError(
            "is not a domain", where=f"--domain {options.domain}", hint="for example: nodes"
        )


def parse_gateway(text: str, interface: Interface) -> IPv4Address | None:
    """The router for nodes.  Raises InputError unless they can reach it."""
    if not text:
        return None
    where = f"--gateway {text}"
    try:
        gateway = IPv4Address(text)
    except AddressValueError as error:
        raise InputError("is not an IPv4 address", where=where) from error
    if gateway not in interface.network:
        raise InputError(
            f"is not in {interface.network}, the subnet of {interface.name}", where=where
        )
    return gateway


def has_ipv6(interface: str) -> bool:
    """Whether an interface has an IPv6 address of any kind (proc(5), /proc/net/if_inet6)."""
    try:
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
    except FileNotFoundError:
        return False
    return any(line.split()[-1] == interface for line in lines)


def find_user(names: Sequence[str]) -> str:
    """The first of these users that exists."""
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in names if name in known), "")


def check_readable(config: ServeConfig) -> None:
    """Raise HostError for a folder that blocks a daemon's user from its files."""
    for user, folder in (
        (config.web_user, config.tree.http),
        (config.web_user, config.tree.serve),
        (config.dhcp_user, config.tree.tftp),
        (config.dhcp_user, config.tree.serve),
    ):
        if closed := find_closed(user, folder):
            raise HostError(
                f"cannot be entered by user {user}, who serves {folder}",
                where=closed,
                hint=f"run sudo chmod a+x {closed}, or use another --tree",
            )


def find_closed(user: str, folder: Path) -> str:
    """The first folder on the way to `folder` that `user` may not enter; empty if none.

    The kernel decides, as that user: access control lists count.
    """
    if not user:
        return ""
    group = str(pwd.getpwnam(user).pw_gid)
    become = ["setpriv", "--reuid", user, "--regid", group, "--init-groups", "--"]
    way = [*reversed(folder.parents), folder]
    return run([*become, "sh", "-c", PASSABLE, "sh", *way], cwd=Path("/"), check=False).stdout


def check_ports(config: ServeConfig, holders: Sequence[Holder]) -> None:
    """Raise HostError that names the programs with a port that we need."""
    if faults := port_faults(config.ports, config.server, config.interface.name, holders):
        raise HostError.of(faults)


def check_alone(config: ServeConfig, ui: Ui) -> None:
    """Raise HostError if we would be the second DHCP server on the network.

    With proxy DHCP, a missing router is only a warning: it may appear later.  Without a cable
    nothing is checked.
    """
    if not config.interface.has_carrier:
        return
    servers = find_dhcp_servers(config.interface)
    if config.dhcp is Dhcp.FULL and servers:
        raise HostError(
            f"the network already has a DHCP server: {describe(servers)}",
            where=config.interface.name,
            hint="use --dhcp proxy, which works beside it, or turn it off there",
        )
    if config.dhcp is Dhcp.PROXY and not servers:
        ui.warn(
            f"no DHCP server answers on {config.interface.name}: nodes need one with --dhcp proxy"
        )


def describe(servers: Sequence[Server]) -> str:
    return ", ".join(f"{server.address} ({server.mac})" for server in servers)


def warn_of_gaps(config: ServeConfig, nodes: Nodes, ui: Ui) -> None:
    """Warn about what will not work although everything starts."""
    for fault in nodes.warnings:
        ui.warn(str(fault))
    if not config.interface.has_carrier:
        ui.warn(f"{config.interface.name} has no carrier: is the cable plugged in?")
    for title in missing_architectures(config.boot_files):
        ui.detail(f"no iPXE binary for {title}: such machines get no boot file")
    if config.dhcp is Dhcp.PROXY:
        for node in nodes.nodes:
            if node.address:
                ui.warn(
                    f"node {node.name}: with proxy DHCP the router assigns addresses; "
                    f"let it assign {node.address} to {node.macs[0]}"
                )
