# SPDX-License-Identifier: Apache-2.0
"""iPXE scripts as texts, from the templates in pxe/: the entry, a node's own, the menu.

Their values are checked (check.py, tree.is_name): no name or word has a special meaning in iPXE.
The settings that the scripts share are in docs/nodes.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from imagebuilder.nodes.config import TICKET
from imagebuilder.nodes.types import LIVE, LOCAL, NETCONSOLE_PORT, Menu, Node
from imagebuilder.share import SHARE
from imagebuilder.templates import templates
from imagebuilder.tree import hyphened

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = SHARE / "pxe"
NICS = 4  # net0 to net3 are tried
# Settings of earlier scripts, which an unknown machine must not have.
NODE_SETTINGS = ("node", "node-root", "node-args", "node-files")
BOOT_NIC = "boot0"  # the kernel's name of a NIC with a static address


@cache
def environment() -> Environment:
    """The template environment; an undefined name is an error."""
    return templates(TEMPLATES)


def render_template(template: str, **names: object) -> str:
    return environment().get_template(template).render(**names)


def render_entry(server: str, port: int, roots: Path) -> str:
    """The entry script.  `roots` is what the NFS server exports: TREE/roots."""
    base = f"http://{server}" if port == 80 else f"http://{server}:{port}"
    names = {"server": server, "base": base, "roots": roots, "nics": range(NICS)}
    return render_template("boot.ipxe.j2", **names)


def render_node_script(node: Node, mac: str, machine_id: str, config_id: str) -> str:
    """The script of the NIC `mac` of a node, `machine_id` in hex; `config_id` is reported."""
    where = (
        f"releases/{node.profile}/{node.version}"
        if node.version
        else f"channels/{node.profile}/{node.channel}"
    )
    return render_template(
        "node.ipxe.j2",
        node=node,
        place=f"nodes/{hyphened(mac)}",
        where=where,
        given=config_id,
        ticket=TICKET,
        words=" ".join(node_words(node, machine_id)),
        what=node.boots,
    )


def node_words(node: Node, machine_id: str) -> tuple[str, ...]:
    """The kernel arguments for this node; iPXE fills in `${...}`.

    A static address needs the NIC's name, which iPXE does not know: the NIC is named by its MAC.
    """
    words = [f"console={console}" for console in node.console]
    words += [f"systemd.hostname={node.name}", f"systemd.machine_id={machine_id}"]
    if node.static:
        words.append(f"ifname={BOOT_NIC}:{node.macs[0]}")
        network = "${netX/gateway}:${netX/netmask}"
        words.append(f"ip={node.address}::{network}:{node.name}:{BOOT_NIC}:off")
        words.append("${node-dns}")
    if node.netconsole:
        words.append(f"imagebuilder.netconsole={NETCONSOLE_PORT}")
    return (*words, *node.cmdline)


def render_menu(menu: Menu, profiles: Sequence[tuple[str, str]], lives: Sequence[str]) -> str:
    """The menu: `profiles` with the channel for unknown machines, `lives` by name.

    An unavailable default is replaced by the local disk.
    """
    labels = {name: f"profile-{name}" for name, _ in profiles}
    labels |= {f"{LIVE}{name}": f"live-{name}" for name in lives}
    default = labels.get(menu.default, LOCAL)
    names = {"profiles": profiles, "lives": lives, "default": default, "cleared": NODE_SETTINGS}
    return render_template("menu.ipxe.j2", timeout=menu.timeout * 1000, **names)
