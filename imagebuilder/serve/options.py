# SPDX-License-Identifier: Apache-2.0
"""The options of `imagebuilder serve`, in a module that is quick to import."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Dhcp(StrEnum):
    """Who assigns addresses: this server, or a router that knows nothing about network boot."""

    FULL = "full"
    PROXY = "proxy"


class Nfs(StrEnum):
    """Which NFS server; AUTO uses the kernel's if it runs, otherwise nfs-ganesha."""

    AUTO = "auto"
    KERNEL = "kernel"
    GANESHA = "ganesha"


@dataclass(frozen=True)
class Options:
    """Options; empty means the default."""

    interface: str
    address: str = ""
    dhcp: Dhcp = Dhcp.FULL
    pool: str = ""
    nfs: Nfs = Nfs.AUTO
    http_port: int = 80
    domain: str = "nodes"
    gateway: str = ""
    dns: bool = True
    ipxe: Path | None = None
