# SPDX-License-Identifier: Apache-2.0
"""The files that the web server has for nodes: a folder for each NIC, the menu, the host keys.

    http/nodes/MAC/boot.ipxe    what the machine with this NIC boots
    http/nodes/MAC/node.img     its own files with a private key: only for the web server
    http/menu.ipxe              for machines that are not in nodes.yaml
    serve/known_hosts           every node's public host key, for ssh -o UserKnownHostsFile=

They are made from nodes.yaml and TREE/nodes; the same input gives the same bytes.
"""

from __future__ import annotations

import grp
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.cpio import render_cpio
from imagebuilder.errors import HostError, InputError
from imagebuilder.files import Content, place_file, place_files, read_text, set_access, sync
from imagebuilder.locks import file_lock
from imagebuilder.nodes.config import describe_config, keep_configs
from imagebuilder.nodes.evidence.boots import fallen_back, find_fallbacks
from imagebuilder.nodes.identity import Identity, make_identity
from imagebuilder.nodes.load import load_nodes
from imagebuilder.nodes.node_files import node_entries
from imagebuilder.nodes.references import find_live, find_offers
from imagebuilder.nodes.scripts import node_words, render_entry, render_menu, render_node_script
from imagebuilder.nodes.types import Menu, Node, Nodes
from imagebuilder.tree import HYPHENED, Tree, hyphened
from imagebuilder.ui import Ui

# The user that nginx runs as, and its group, on Debian and other distributions.
WEB_GROUPS = ("www-data", "nginx", "http")


@dataclass(frozen=True)
class Access:
    """Who may read a node's files: modes of folders and of secret files, and their group.

    `group` is -1 if it is not changed.
    """

    folder: int = 0o755
    secret: int = 0o644
    group: int = -1


def find_access() -> Access:
    """Access for the web server's group if we may use it; otherwise for every user."""
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


def update_nodes(tree: Tree, check: Callable[[Nodes], None] = lambda _: None) -> Nodes:
    """Read nodes.yaml and update everything made from it.

    Raises InputError if it is invalid, and what `check` raises; then nothing is changed.
    """
    with file_lock(tree.lock(LOCK)):
        nodes = load_nodes(tree)
        check(nodes)
        make_node_files(tree, nodes)
    return nodes


def make_node_files(tree: Tree, nodes: Nodes) -> None:
    """Make the files of nodes, and remove those of NICs that no node has any more.

    The caller holds the lock of nodes.  Raises InputError, before anything is replaced, for files
    that a node cannot have, and HostError if the tree cannot be written.
    """
    try:
        identities = {node.name: make_identity(tree, node.name) for node in nodes.nodes}
        entries = {
            node.name: node_entries(node, nodes.nodes, identities[node.name], tree.path)
            for node in nodes.nodes
        }
        configs = {
            node.name: describe_config(
                node, node_words(node, identities[node.name].machine_id), entries[node.name]
            )
            for node in nodes.nodes
        }
        keep_configs(tree, configs.values(), [mac for node in nodes.nodes for mac in node.macs])
        access = find_access()
        fallbacks = find_fallbacks(tree, nodes.nodes)
        booting = {node.name: fallen_back(node, fallbacks) for node in nodes.nodes}

        def served() -> Iterator[Content]:
            for node in nodes.nodes:
                image = render_cpio(entries[node.name])
                for mac in node.macs:
                    script = render_node_script(
                        booting[node.name],
                        mac,
                        identities[node.name].machine_id,
                        configs[node.name].name,
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
            hint="check with df -h whether the disk is full, or use another --tree",
        ) from error


def served_files(folder: Path, script: str, image: bytes, access: Access) -> Iterator[Content]:
    """Make the folder of a NIC; returns its files, last the script, which refers to the others."""
    place_folder(folder, access)
    yield Content(folder / "node.img", image, access.secret, access.group)
    yield Content(folder / "boot.ipxe", script.encode())


def remove_others(tree: Tree, nodes: Nodes) -> None:
    """Remove the folders of NICs that no node has."""
    wanted = {hyphened(mac) for node in nodes.nodes for mac in node.macs}
    for folder in sorted((tree.http / "nodes").iterdir()):
        if HYPHENED.fullmatch(folder.name) and folder.name not in wanted:
            (folder / "boot.ipxe").unlink(missing_ok=True)
            shutil.rmtree(folder)


def render_known_hosts(nodes: Nodes, identities: Mapping[str, Identity]) -> str:
    """Every node's key by its name and address, in the format of sshd(8) SSH_KNOWN_HOSTS."""
    return "".join(
        f"{names_of(node)} {' '.join(identities[node.name].public.decode().split()[:2])}\n"
        for node in nodes.nodes
    )


def names_of(node: Node) -> str:
    return f"{node.name},{node.address}" if node.address else node.name


def make_menu(tree: Tree, menu: Menu) -> None:
    """Make the menu of what the tree has.  The caller holds the lock of nodes."""
    script = render_menu(menu, find_offers(tree), find_live(tree))
    place_file(tree.http / MENU, script.encode())


def read_offers(tree: Tree) -> tuple[tuple[str, str], ...]:
    """The profiles in the current menu, with their channels; none without a menu."""
    try:
        text = read_text(tree.http / MENU)
    except FileNotFoundError:
        return ()
    return tuple((name, channel) for name, channel in OFFER.findall(text))


def update_menu(tree: Tree) -> None:
    """Update the menu after a channel moved or a live system was added or removed.

    Raises InputError if nodes.yaml is invalid; then the menu is not changed.
    """
    with file_lock(tree.lock(LOCK)):
        make_menu(tree, load_nodes(tree).menu)


def refresh_menu(tree: Tree, ui: Ui) -> None:
    """Update the menu; an invalid nodes.yaml is only a warning."""
    try:
        update_menu(tree)
    except InputError as error:
        ui.warn(f"could not update the menu: {error}")


def make_entry(tree: Tree, server: str, port: int) -> None:
    """Make the entry script, for a web server at `server`:`port`."""
    script = render_entry(server, port, tree.roots)
    with file_lock(tree.lock(LOCK)):
        place_file(tree.http / "boot.ipxe", script.encode())
