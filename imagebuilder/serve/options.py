# SPDX-License-Identifier: Apache-2.0
"""The options of `imagebuilder serve`; the command line imports this, and nothing heavy with it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Dhcp(StrEnum):
    """Whose wire it is: ours, or a home router's that knows nothing of booting."""

    FULL = "full"
    PROXY = "proxy"


class Nfs(StrEnum):
    """Which NFS server; AUTO takes the kernel's if it runs, else nfs-ganesha."""

    AUTO = "auto"
    KERNEL = "kernel"
    GANESHA = "ganesha"


@dataclass(frozen=True)
class Options:
    """What the person typed; empty stands for the default."""

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
