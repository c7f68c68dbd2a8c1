# SPDX-License-Identifier: Apache-2.0
"""Check whether this host can serve nodes, as `serve` does, without starting anything."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from ipaddress import IPv4Address
from pathlib import Path

from imagebuilder.doctor.finding import HostFinding, Severity, fine, problem, warning
from imagebuilder.doctor.host import SERVE_GROUPS, examine_need, load_needs, nearest_folder
from imagebuilder.doctor.listening import examine_listeners, find_rpc_services
from imagebuilder.environment import base_environment
from imagebuilder.errors import Fault, ImagebuilderError
from imagebuilder.process import is_installed
from imagebuilder.serve.config import ServeConfig
from imagebuilder.serve.discover import find_dhcp_servers
from imagebuilder.serve.interface import Interface, find_interface
from imagebuilder.serve.ipxe import (
    FOLDERS,
    choose_boot_files,
    find_binaries,
    missing_architectures,
)
from imagebuilder.serve.nfs import has_ganesha, kernel_serves
from imagebuilder.serve.options import Dhcp, Nfs
from imagebuilder.serve.ports import find_holders, port_faults
from imagebuilder.serve.prepare import (
    WEB_USERS,
    describe,
    find_closed,
    find_user,
)
from imagebuilder.serve.running import describe_ours, find_ours
from imagebuilder.tree import Tree

UFW = Path("/etc/ufw/ufw.conf")


def examine_serve(tree: Tree, interface: str) -> tuple[HostFinding, ...]:
    """Everything `serve` needs; without an `interface`, the network is not checked."""
    path = base_environment()["PATH"]
    needs = [need for need in load_needs() if need.group in SERVE_GROUPS]
    return (
        *(examine_need(need, path) for need in needs if need.group == "serve"),
        examine_ipxe(),
        examine_nfs(running=kernel_serves()),
        *(examine_interface(tree, interface) if is_installed("ip") and is_installed("ss") else ()),
        *examine_tree(tree, is_root=os.geteuid() == 0),
        *examine_firewall(read_ufw(UFW)),
    )


def examine_ipxe() -> HostFinding:
    boot_files = choose_boot_files(tuple(find_binaries(FOLDERS)))
    fix = "imagebuilder setup --serve"
    if not boot_files:
        return problem("ipxe", "this host has no iPXE binaries", fix)
    titles = ", ".join(file.architecture.title for file in boot_files)
    lacking = ", ".join(missing_architectures(boot_files))
    without = f"; not for {lacking}, which are rare" if lacking else ""
    return fine("ipxe", f"for {titles}{without}")


def examine_nfs(*, running: bool | None) -> HostFinding:
    """Which NFS server is available; `running` is whether the kernel's runs, None if unknown."""
    if running is None:
        what = "could not check whether the kernel's NFS server is running: this needs root"
        return fine("nfs", what)
    if running and is_installed("exportfs"):
        return fine("nfs", "the kernel's NFS server is running")
    if has_ganesha():
        return fine("nfs", "nfs-ganesha, because the kernel's NFS server is not running")
    fix = "imagebuilder setup --serve, or sudo apt-get install nfs-ganesha-vfs nfs-ganesha rpcbind"
    return problem("nfs", "this host has no NFS server", fix)


def examine_interface(tree: Tree, name: str) -> tuple[HostFinding, ...]:
    """The interface, its ports, and other DHCP servers on it."""
    if not name:
        fix = "imagebuilder doctor --serve --interface NAME"
        return (warning("interface", "no interface is set", fix),)
    try:
        interface = find_interface(name)
    except ImagebuilderError as error:
        return tuple(of_fault("interface", fault) for fault in error.faults)
    carrier = "" if interface.has_carrier else ", but has no carrier: is the cable plugged in?"
    level = Severity.OK if interface.has_carrier else Severity.WARNING
    return (
        HostFinding("interface", level, f"{interface.name} has {interface.address}{carrier}"),
        *examine_ports(tree, interface),
        examine_servers(interface, is_root=os.geteuid() == 0),
    )


def of_fault(subject: str, fault: Fault) -> HostFinding:
    return problem(subject, f"{fault.where}: {fault.what}", fault.hint)


def examine_ports(tree: Tree, interface: Interface) -> tuple[HostFinding, ...]:
    """Which programs use ports that serve needs with full DHCP, and who can reach open ports."""
    nfs = Nfs.GANESHA if kernel_serves() is False else Nfs.KERNEL
    anything = (IPv4Address(1), IPv4Address(2))  # the ports do not depend on the pool
    config = ServeConfig(tree, interface, tree.serve, nfs, (), pool=anything)
    holders = find_holders()
    ours = find_ours(tree, interface, holders)
    foreign = [holder for holder in holders if holder not in ours]
    faults = port_faults(config.ports, config.server, interface.name, foreign)
    wanted = {(port.protocol, port.number): port.purpose for port in config.ports}
    listening = examine_listeners(interface, ours, wanted) if ours else ()
    rpc = find_rpc_services()
    others = [holder for holder in foreign if (holder.protocol, holder.number) in rpc]
    if others or not ours:
        listening += examine_listeners(interface, others, rpc)
    if faults:
        return (*(of_fault("ports", fault) for fault in faults), *listening)
    numbers = ", ".join(sorted({str(port.number) for port in config.ports}, key=int))
    served = describe_ours(tree)
    free = f"are free, or used by {served}, which serves this tree," if served else "are free"
    return (fine("ports", f"{numbers} {free} at {config.server}"), *listening)


def examine_servers(interface: Interface, *, is_root: bool) -> HostFinding:
    """Other DHCP servers on the network."""
    if not is_root:
        return fine("dhcp", "could not check for other DHCP servers: this needs root")
    servers = find_dhcp_servers(interface)
    if servers:
        what = f"{describe(servers)} assigns addresses on {interface.name}"
        return warning("dhcp", what, f"use serve --dhcp {Dhcp.PROXY}, which works beside it")
    return fine("dhcp", f"no other DHCP server on {interface.name}")


def examine_tree(tree: Tree, *, is_root: bool) -> tuple[HostFinding, ...]:
    """Whether the daemons' users can read the tree, and what else an export would expose."""
    there = nearest_folder(tree.http)
    user = find_user(WEB_USERS)
    closed = find_closed(user, there) if is_root else ""
    if closed:
        what = f"{closed} cannot be entered by user {user}"
        readable = problem("tree", what, f"sudo chmod a+x {closed}")
    else:
        said = f"user {user} can read it" if is_root else "only root can test who may read it"
        readable = fine("tree", f"{tree.path}: {said}")
    if tree.path in (there, *there.parents) and not has_separate_mount(tree.path):
        # exports(5), "Subdirectory Exports": handles can be guessed.
        what = "machines on the nodes' network can read this host's files with a forged NFS handle"
        fix = f"put {tree.path} on a file system of its own"
        return readable, warning("export", what, fix)
    return (readable,)


def has_separate_mount(folder: Path) -> bool:
    """Whether a folder, or a parent except the root, is a mount point."""
    return any(parent.is_mount() for parent in (folder, *folder.parents) if parent != Path("/"))


def read_ufw(path: Path) -> str | None:
    """The text of ufw's configuration, empty without one; None if we may not read it."""
    try:
        return path.read_text()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError:
        return None


def examine_firewall(ufw: str | None) -> Iterable[HostFinding]:
    """Whether ufw blocks nodes; `ufw` is the result of read_ufw()."""
    if ufw is None:
        yield fine("firewall", "could not read ufw's configuration: this needs root")
    elif re.search(r"^ENABLED=yes", ufw, re.MULTILINE):
        what = "ufw is active: nodes cannot connect unless it allows them"
        yield warning("firewall", what, "sudo ufw allow in on INTERFACE")
