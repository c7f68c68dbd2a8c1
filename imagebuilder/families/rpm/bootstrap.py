# SPDX-License-Identifier: Apache-2.0
"""The first layer: the host's rpm(8) installs the locked packages of the base into a folder."""

from __future__ import annotations

from collections.abc import Mapping

from imagebuilder.families.protocol import Engine, Packages
from imagebuilder.families.rpm.install import (
    NO_INITRD,
    OPTIONS,
    excludes,
    finish,
    serve_rpms,
    watching,
)
from imagebuilder.families.tool import Tool
from imagebuilder.families.unpacked import remove_traces
from imagebuilder.workspace import Workspace

ENGINES: Mapping[str, Engine] = {
    # 4.18 is the first that takes the times in its database from SOURCE_DATE_EPOCH.
    "rpm": Engine(Tool("rpm", "rpm", "imagebuilder setup --rpm", least=4))
}
DATABASE = "/var/lib/rpm"
# What Enterprise Linux 9 has and other builds of rpm do not.
MACROS = (f"_dbpath {DATABASE}", "_transaction_color 3", "_prefer_color 2")
# The folders of which rpm gets no say: file systems of the sandbox are mounted there.
MOUNTED = "/proc:/dev:/sys"
SCRIPT = """\
root=$1; shift
mkdir -p -m 0555 "$root/proc" "$root/sys"
mkdir -p -m 0755 "$root/dev"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
exec rpm --root "$root" "$@"
"""


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
    finish(workspace, failed)
    remove_traces(workspace.tree, ())
