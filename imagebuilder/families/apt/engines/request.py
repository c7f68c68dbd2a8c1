# SPDX-License-Identifier: Apache-2.0
"""What an engine is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class BootstrapRequest:
    """A first layer: all of `packages`, which are all that the archive `repository` holds."""

    suite: str
    architecture: str
    packages: tuple[str, ...]
    repository: Path
    path_excludes: tuple[str, ...]
