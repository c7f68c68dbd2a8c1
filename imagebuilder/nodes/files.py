# SPDX-License-Identifier: Apache-2.0
"""What the web server has for nodes: a folder for each NIC, the menu, and the known host keys.

    http/nodes/MAC/boot.ipxe    what the machine with this NIC boots
    http/nodes/MAC/node.img     its own files, a private key among them: for the web server alone
    http/menu.ipxe              for machines that nodes.yaml does not know
    serve/known_hosts           every node's public host key, for ssh -o UserKnownHostsFile=

All of it is made from nodes.yaml and TREE/nodes, the same bytes for the same input.
"""

from __future__ import annotations

import grp
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import HostError, InputError
from imagebuilder.files import Content, place_file, place_files, read_text, set_access, sync
from imagebuilder.locks import file_lock
from imagebuilder.nodes.config import describe_config, keep_configs
from imagebuilder.nodes.evidence.boots import fallen_back, find_fallbacks
from imagebuilder.nodes.identity import Identity, make_identity
from imagebuilder.nodes.initrd import render_cpio
from imagebuilder.nodes.load import load_nodes
from imagebuilder.nodes.node_files import node_entries
from imagebuilder.nodes.references import find_live, find_offers
from imagebuilder.nodes.scripts import (
    node_words,
    render_entry,
    render_menu,
    render_node_script,
)
from imagebuilder.nodes.types import Menu, Node, Nodes
from imagebuilder.tree import Tree, hyphened
from imagebuilder.ui import Ui

WEB_GROUPS = ("www-data", "nginx", "http")  # whom nginx runs as, on Debian and elsewhere


@dataclass(frozen=True)
class Access:
    """Who may read what a node fetches: modes of folders and of secret files, and their group.

    `group` is -1 where there is none to give them to.
    """

    folder: int = 0o755
    secret: int = 0o644
    group: int = -1


def find_access() -> Access:
    """The web server's group alone, where it exists and we may give files to it; else everybody."""
    there = {entry.gr_name: entry.gr_gid for entry in grp.getgrall()}
    group = next((there[name] for name in WEB_GROUPS if name in there), -1)
    if group == -1 or (os.geteuid() != 0 and group not in os.getgroups()):
        return Access()
    return Access(0o750, 0o640, group)


def place_folder(path: Path, access: Access) -> None:
    """Make the folder, or give it the modes of `access`."""
    path.mkdir(exist_ok=True)
    set_access(path, access.folder, access.group)


LOCK = "nodes"
MENU = "menu.ipxe"
OFFER = re.compile(r"^item profile-(\S+) \S+ \((\S+)\)$", re.MULTILINE)  # pxe/menu.ipxe.j2
SERVED = re.compile(r"[0-9a-f]{2}(-[0-9a-f]{2}){5}")


def update_nodes(tree: Tree) -> Nodes:
    """Read nodes.yaml and bring everything made from it up to date.

    Raises InputError when it is wrong: then everything stays as it is.
    """
    with file_lock(tree.lock(LOCK)):
        nodes = load_nodes(tree)
        make_node_files(tree, nodes)
    return nodes


def make_node_files(tree: Tree, nodes: Nodes) -> None:
    """Make what nodes fetch, and remove that of NICs which are in no entry any more.

    The caller holds the lock of nodes.  Raises InputError for files a node cannot take, before
    anything is replaced, and HostError when the tree cannot be written.
    """
    try:
        identities = {node.name: make_identity(tree, node.name) for node in nodes.nodes}
        own = {
            node.name: node_entries(node, nodes.nodes, identities[node.name], tree.path)
            for node in nodes.nodes
        }
        given = {
            node.name: describe_config(
                node, node_words(node, identities[node.name].machine_id), own[node.name]
            )
            for node in nodes.nodes
        }
        keep_configs(tree, given.values(), [mac for node in nodes.nodes for mac in node.macs])
        access = find_access()
        fallbacks = find_fallbacks(tree, nodes.nodes)
        booting = {node.name: fallen_back(node, fallbacks) for node in nodes.nodes}

        def served() -> Iterator[Content]:
            for node in nodes.nodes:
                image = render_cpio(own[node.name])
                for mac in node.macs:
                    script = render_node_script(
                        booting[node.name],
                        mac,
                        identities[node.name].machine_id,
                        given[node.name].name,
                    )
                    yield from served_files(tree.served_node(mac), script, image, access)

        place_files(served())
        sync(tree.http / "nodes")
        remove_others(tree, nodes)
        known = render_known_hosts(nodes, identities)
        place_file(tree.serve / "known_hosts", known.encode())
        make_menu(tree, nodes.menu)
    except OSError as error:
        raise HostError(
            f"cannot be written: {error.strerror}",
            where=os.fspath(error.filename or tree.path),
            hint="df -h shows whether the disk is full; --tree names another tree",
        ) from error


def served_files(folder: Path, script: str, image: bytes, access: Access) -> Iterator[Content]:
    """Make the folder of a NIC; what is to be in it, the script last: it leads to the image."""
    place_folder(folder, access)
    yield Content(folder / "node.img", image, access.secret, access.group)
    yield Content(folder / "boot.ipxe", script.encode())


def remove_others(tree: Tree, nodes: Nodes) -> None:
    """Remove the folders of NICs that no node has."""
    wanted = {hyphened(mac) for node in nodes.nodes for mac in node.macs}
    for folder in sorted((tree.http / "nodes").iterdir()):
        if SERVED.fullmatch(folder.name) and folder.name not in wanted:
            (folder / "boot.ipxe").unlink(missing_ok=True)
            shutil.rmtree(folder)


def render_known_hosts(nodes: Nodes, identities: Mapping[str, Identity]) -> str:
    """Every node's key by its name and address, as in sshd(8) SSH_KNOWN_HOSTS FILE FORMAT."""
    return "".join(
        f"{names_of(node)} {' '.join(identities[node.name].public.decode().split()[:2])}\n"
        for node in nodes.nodes
    )


def names_of(node: Node) -> str:
    return f"{node.name},{node.address}" if node.address else node.name


def make_menu(tree: Tree, menu: Menu) -> None:
    """Make the menu of what the tree has now.  The caller holds the lock of nodes."""
    script = render_menu(menu, find_offers(tree), find_live(tree))
    place_file(tree.http / MENU, script.encode())


def read_offers(tree: Tree) -> tuple[tuple[str, str], ...]:
    """The profiles in the menu as it is, with their channels; none when there is no menu."""
    try:
        text = read_text(tree.http / MENU)
    except FileNotFoundError:
        return ()
    return tuple((name, channel) for name, channel in OFFER.findall(text))


def update_menu(tree: Tree) -> None:
    """Bring the menu up to date, after a channel moved or a live system came or went.

    Raises InputError when nodes.yaml is wrong: then the menu stays as it is.
    """
    with file_lock(tree.lock(LOCK)):
        make_menu(tree, load_nodes(tree).menu)


def refresh_menu(tree: Tree, ui: Ui) -> None:
    """update_menu(), where a wrong nodes.yaml is not the person's concern now: it is only told."""
    try:
        update_menu(tree)
    except InputError as error:
        ui.warn(f"the menu stays as it is: {error}")


def make_entry(tree: Tree, server: str, port: int) -> None:
    """Make the script that DHCP leads to, for a web server at `server`:`port`."""
    script = render_entry(server, port, tree.roots)
    with file_lock(tree.lock(LOCK)):
        place_file(tree.http / "boot.ipxe", script.encode())
