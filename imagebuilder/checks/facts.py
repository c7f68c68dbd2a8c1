# SPDX-License-Identifier: Apache-2.0
"""What checks know: the image, and the node that booted it."""

from __future__ import annotations

from dataclasses import dataclass

from imagebuilder.image.types import Image


@dataclass(frozen=True)
class NodeFacts:
    """What the gate expects of the node that it booted.

    `machine_id` and `host_key` (the public key, as `ssh-ed25519 AAAA...`) are those it keeps for
    the node.  `firmware` is uefi or bios, `root` the kind of root.  `server` is an address.
    `source` is what findmnt(8) shows as the source of the root's export, "" for a root in memory.
    `seconds` are from power-on to the first ssh.
    """

    name: str
    address: str
    machine_id: str
    host_key: str
    firmware: str
    root: str
    server: str
    source: str
    seconds: float


@dataclass(frozen=True)
class Facts:
    """An image and where it is.

    `release` is the path of the root in the tree, "" for an image in the store.
    `vmlinuz` and `initrd` are paths on this host, "" if not available.
    `node` is only set for boot checks.
    """

    image: Image
    release: str = ""
    vmlinuz: str = ""
    initrd: str = ""
    node: NodeFacts | None = None
