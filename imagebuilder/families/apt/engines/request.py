# SPDX-License-Identifier: Apache-2.0
"""The request for an engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class BootstrapRequest:
    """A first layer with all of `packages`; the archive `repository` has exactly these."""

    suite: str
    architecture: str
    packages: tuple[str, ...]
    repository: Path
    path_excludes: tuple[str, ...]
