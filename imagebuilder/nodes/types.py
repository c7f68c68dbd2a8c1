# SPDX-License-Identifier: Apache-2.0
"""Nodes as `load_nodes` returns them, with groups and defaults resolved."""

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
    """How a node is switched on and off; `driver` defaults to ssh, which cannot switch on.

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

    `macs` are lower-case with colons, the first one is its boot NIC's.  It boots `version` of
    `profile`, or what `channel` points to if that is empty.  `address` is its fixed IPv4 address,
    empty for one of the pool.  `root` is a kind of root (rootkind.py), empty for the release's.
    `static` makes the kernel use `address` without DHCP.  `ipxe` is its boot file under UEFI:
    "ipxe.efi" (iPXE's own NIC drivers) or "snponly.efi" (the firmware's).  `files` is a folder of
    additional files, relative to the tree, or empty.  `labels` are further names of its sets,
    `login` is the user for commands over ssh.  With `netconsole` its kernel sends its messages to
    the boot server.
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

    def row(self) -> tuple[str, ...]:
        """The columns of `nodes list`."""
        macs = " ".join(self.macs)
        return self.name, self.boots, self.address or "-", macs, self.group or "-"

    def as_json(self) -> dict[str, Json]:
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
    """The menu of unknown machines.

    `default` is a profile, `live/NAME`, or `local` (the machine's own disk); `timeout` is in
    seconds, 0 waits for a person.
    """

    default: str = LOCAL
    timeout: int = 30


@dataclass(frozen=True)
class Nodes:
    """All of nodes.yaml; nodes in the order of the file.

    `warnings` are for nodes that cannot boot, because the tree lacks what they name.
    """

    menu: Menu = Menu()
    nodes: tuple[Node, ...] = ()
    warnings: tuple[Fault, ...] = ()

    def find(self, name: str) -> Node | None:
        return next((node for node in self.nodes if node.name == name), None)
