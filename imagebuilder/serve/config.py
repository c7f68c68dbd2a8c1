# SPDX-License-Identifier: Apache-2.0
"""The configuration of the boot server: decided once, then every file is rendered from it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from imagebuilder.nodes.evidence.usage import NFS_PORT
from imagebuilder.nodes.types import NETCONSOLE_PORT
from imagebuilder.serve.capacity import SMALLEST, Capacity
from imagebuilder.serve.interface import Interface, Pool
from imagebuilder.serve.ipxe import IpxeFile
from imagebuilder.serve.options import Dhcp, Nfs
from imagebuilder.serve.ports import Port
from imagebuilder.tree import Tree

# Stable, so that a restarted server knows its old file handles.
EXPORT_NAMESPACE = uuid.UUID("5e4e1b2c-7d0a-4f54-9a52-0b7e0c6f3a11")
MOUNTD_PORT = 20048


@dataclass(frozen=True)
class ServeConfig:
    """Everything that the daemons' files are rendered from.

    `pool` is None with proxy DHCP.  `folder` is for the files; `installed` means that systemd
    starts the daemons.  `announces` tells machines that the network has no IPv6 router, `consoles`
    receives the kernel messages of nodes.  `web_user` and `dhcp_user` are the users that daemons
    switch to, empty for none.
    """

    tree: Tree
    interface: Interface
    folder: Path
    nfs: Nfs
    boot_files: tuple[IpxeFile, ...]
    pool: Pool | None = None
    http_port: int = 80
    domain: str = "nodes"
    gateway: IPv4Address | None = None
    dns: bool = True
    installed: bool = False
    web_user: str = ""
    dhcp_user: str = ""
    announces: bool = False
    consoles: bool = False
    capacity: Capacity = SMALLEST

    @property
    def dhcp(self) -> Dhcp:
        return Dhcp.FULL if self.pool else Dhcp.PROXY

    @property
    def server(self) -> str:
        return str(self.interface.server)

    @property
    def http(self) -> str:
        """The base of every URL, without a trailing slash."""
        port = "" if self.http_port == 80 else f":{self.http_port}"
        return f"http://{self.server}{port}"

    @property
    def pool_size(self) -> int:
        return int(self.pool[1]) - int(self.pool[0]) + 1 if self.pool else 0

    @property
    def answers_dns(self) -> bool:
        """Whether nodes use our DNS: not if a router answers already."""
        return self.dns and self.dhcp is Dhcp.FULL

    @property
    def leases(self) -> Path:
        """The lease file of dnsmasq."""
        return self.tree.serve / "leases"

    @property
    def export_id(self) -> str:
        """The start of the file handles of TREE/roots."""
        return str(uuid.uuid5(EXPORT_NAMESPACE, str(self.tree.roots)))

    @property
    def ports(self) -> tuple[Port, ...]:
        """The ports that our daemons will open; the kernel's NFS server has its own open."""
        wanted = [Port("udp", 67, "DHCP"), Port("udp", 69, "TFTP")]
        if self.dhcp is Dhcp.PROXY:
            wanted.append(Port("udp", 4011, "proxy DHCP"))
        if self.answers_dns:
            wanted += [Port("udp", 53, "DNS"), Port("tcp", 53, "DNS")]
        wanted.append(Port("tcp", self.http_port, "HTTP"))
        if self.consoles:
            wanted.append(Port("udp", NETCONSOLE_PORT, "consoles"))
        if self.nfs is Nfs.GANESHA:
            wanted += [Port("tcp", NFS_PORT, "NFS"), Port("tcp", MOUNTD_PORT, "NFS version 3")]
        return tuple(wanted)
