# SPDX-License-Identifier: Apache-2.0
"""What checks know: the image, and the node that booted it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.bootfiles import BOOT_FILES, KERNEL
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
    `vmlinuz`, `early` and `initrd` are paths on this host, "" if not available.
    `node` is only set for boot checks.
    """

    image: Image
    release: str = ""
    vmlinuz: str = ""
    early: str = ""
    initrd: str = ""
    node: NodeFacts | None = None

    @property
    def boot_files(self) -> tuple[Path, ...]:
        """The files that iPXE fetches, as far as they are available."""
        return tuple(map(Path, filter(None, (self.vmlinuz, self.early, self.initrd))))

    @property
    def initrds(self) -> tuple[Path, ...]:
        """Those of them that the kernel unpacks, in that order."""
        return tuple(path for path in self.boot_files if path.name != KERNEL)


def facts_of(image: Image, folder: Path, release: str = "") -> Facts:
    """The facts of an image whose boot files are in `folder`."""
    kernel, early, initrd = (
        os.fspath(folder / name) if name in image.kernel.files else "" for name in BOOT_FILES
    )
    return Facts(image, release, kernel, early, initrd)
