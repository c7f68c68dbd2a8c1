# SPDX-License-Identifier: Apache-2.0
"""The request for an engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# Files that the host's apt and dpkg read when engines run them.
ON_HOST = (
    "/var/lib/dpkg", "/etc/apt/apt.conf", "/etc/apt/apt.conf.d", "/etc/apt/keyrings",
    "/etc/apt/trusted.gpg", "/etc/apt/trusted.gpg.d", "/etc/debian_version", "/etc/debootstrap",
    "/etc/dpkg",
)  # fmt: skip


@dataclass(frozen=True)
class BootstrapRequest:
    """A first layer with all of `packages`; the archive `repository` has exactly these."""

    suite: str
    architecture: str
    packages: tuple[str, ...]
    repository: Path
    path_excludes: tuple[str, ...]
