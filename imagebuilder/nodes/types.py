# SPDX-License-Identifier: Apache-2.0
"""The Node box: what `load_nodes` returns, groups and defaults resolved."""

from __future__ import annotations

from dataclasses import dataclass

from imagebuilder.digest import Json

DEFAULT_CONSOLE = ("tty0", "ttyS0,115200")


@dataclass(frozen=True)
class Node:
    """A machine that boots.

    `macs` are lower-case with colons, the first one is its boot NIC's.  It boots `profile` in
    `version`, or in what `channel` points to when that is empty.  `address` is the IPv4 address it
    always gets, empty for one of the pool.  `root` is "nfs" or "http"; empty is what the release
    says.  `static` makes the kernel take `address` without asking DHCP.  `ipxe` is its boot file
    under UEFI: "ipxe.efi" (iPXE's own NIC drivers) or "snponly.efi" (the firmware's).
    """

    name: str
    macs: tuple[str, ...]
    profile: str
    channel: str = "stable"
    version: str = ""
    address: str = ""
    static: bool = False
    root: str = ""
    console: tuple[str, ...] = ()
    cmdline: tuple[str, ...] = ()
    ipxe: str = "ipxe.efi"
    group: str = ""
    vars: tuple[tuple[str, Json], ...] = ()


@dataclass(frozen=True)
class Menu:
    """The menu of machines that no node entry knows.

    `default` is a profile, `live/NAME`, or `local` (the machine's own disk); `timeout` is in
    seconds, 0 waits for a person.
    """

    default: str = "local"
    timeout: int = 30


@dataclass(frozen=True)
class Nodes:
    """All of nodes.yaml; nodes in the order of the file."""

    menu: Menu = Menu()
    nodes: tuple[Node, ...] = ()

    def find(self, name: str) -> Node | None:
        """The node of that name."""
        return next((node for node in self.nodes if node.name == name), None)

    def find_by_mac(self, mac: str) -> Node | None:
        """The node that has that NIC; `mac` in lower case with colons."""
        return next((node for node in self.nodes if mac in node.macs), None)
