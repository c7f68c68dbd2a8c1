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
    folder = workspace.work / f"{workspace.upper}.rpms"
    names = serve_rpms(first, workspace, folder)
    macros = [f"--define={macro}" for macro in (*MACROS, f"_netsharedpath {MOUNTED}")]
    failed: list[str] = []
    watching(workspace, failed).run_engine(
        [
            "sh", "-ec", SCRIPT, "sh", workspace.merged, *macros, *OPTIONS,
            *excludes(first.path_excludes), *(folder / name for name in names),
        ],
        env={"RPM_FORCE_DEBIAN": "1", **NO_INITRD},
        sees=("/etc/rpm",),
    )  # fmt: skip
    finish(first, workspace, failed)
    remove_traces(workspace.tree, ())
