# SPDX-License-Identifier: Apache-2.0
"""The first layer: rpm(8) of the host installs the locked packages of the base into a folder."""

from __future__ import annotations

from collections.abc import Mapping

from imagebuilder.families.protocol import Engine, Packages
from imagebuilder.families.rpm.install import run_install
from imagebuilder.families.tool import Tool
from imagebuilder.workspace import Workspace

ENGINES: Mapping[str, Engine] = {
    "rpm": Engine(Tool("rpm", "rpm", "imagebuilder setup --rpm", least=4))
}


def run_bootstrap(engine: str, first: Packages, workspace: Workspace) -> None:
    assert engine in ENGINES
    run_install(first, workspace)
