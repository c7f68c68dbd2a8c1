# SPDX-License-Identifier: Apache-2.0
"""The Node box: what `load_nodes` returns, groups and defaults resolved."""

from __future__ import annotations

from dataclasses import dataclass

from imagebuilder.digest import Json
from imagebuilder.errors import Fault

DEFAULT_CONSOLE = ("tty0", "ttyS0,115200")
LOCAL = "local"
LIVE = "live/"
NETCONSOLE_PORT = 6666  # UDP; where the boot server receives the messages of kernels


@dataclass(frozen=True)
class Power:
    """How a node is switched on and off; `driver` is ssh, which cannot switch on, if nobody says.

    `on`, `off` and `state` are command lines of the driver `exec`.
    """

    driver: str = "ssh"
    address: str = ""
    credentials: str = ""
    interface: str = ""
    verify: bool = True
    on: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    state: tuple[str, ...] = ()


@dataclass(frozen=True)
class Node:
    """A machine that boots.

    `macs` are lower-case with colons, the first one is its boot NIC's.  It boots `profile` in
    `version`, or in what `channel` points to when that is empty.  `address` is the IPv4 address it
    always gets, empty for one of the pool.  `root` is a kind of root (rootkind.py); empty is what
    the release says.  `static` makes the kernel take `address` without asking DHCP.  `ipxe` is its
    boot file under UEFI: "ipxe.efi" (iPXE's own NIC drivers) or "snponly.efi" (the firmware's).
    `files` is a folder of more files of its own, relative to the tree, or empty.  `labels` are more
    names of sets it belongs to, `login` is who commands over ssh log in as.  With `netconsole` its
    kernel sends its messages to the boot server.
    """

    name: str
    macs: tuple[str, ...]
    profile: str
    channel: str = "stable"
    version: str = ""
    address: str = ""
    static: bool = False
    root: str = ""
    console: tuple[str, ...] = DEFAULT_CONSOLE
    cmdline: tuple[str, ...] = ()
    ipxe: str = "ipxe.efi"
    group: str = ""
    vars: tuple[tuple[str, Json], ...] = ()
    files: str = ""
    labels: tuple[str, ...] = ()
    login: str = "compute"
    power: Power = Power()
    netconsole: bool = False

    @property
    def boots(self) -> str:
        """What it boots: `profile@version`, or `profile/channel`."""
        return (
            f"{self.profile}@{self.version}" if self.version else f"{self.profile}/{self.channel}"
        )

    def as_json(self) -> dict[str, Json]:
        """JSON for programs, a stable contract."""
        return {
            "name": self.name,
            "macs": list(self.macs),
            "group": self.group,
            "profile": self.profile,
            "channel": "" if self.version else self.channel,
            "version": self.version,
            "address": self.address,
            "static": self.static,
            "root": self.root,
            "console": list(self.console),
            "cmdline": list(self.cmdline),
            "ipxe": self.ipxe,
            "vars": dict(self.vars),
            "files": self.files,
            "labels": list(self.labels),
            "login": self.login,
            "power": self.power.driver,
            "netconsole": self.netconsole,
        }


@dataclass(frozen=True)
class Menu:
    """The menu of machines that no node entry knows.

    `default` is a profile, `live/NAME`, or `local` (the machine's own disk); `timeout` is in
    seconds, 0 waits for a person.
    """

    default: str = LOCAL
    timeout: int = 30


@dataclass(frozen=True)
class Nodes:
    """All of nodes.yaml; nodes in the order of the file.

    `warnings` are what it names and the tree does not have: a node that boots into nothing.
    """

    menu: Menu = Menu()
    nodes: tuple[Node, ...] = ()
    warnings: tuple[Fault, ...] = ()

    def find(self, name: str) -> Node | None:
        return next((node for node in self.nodes if node.name == name), None)
