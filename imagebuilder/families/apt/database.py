# SPDX-License-Identifier: Apache-2.0
"""What dpkg's database of a root says: asked in it, or read from outside."""

from __future__ import annotations

from collections.abc import Mapping

from imagebuilder.families.protocol import Installed
from imagebuilder.workspace import Workspace

INFO = "/var/lib/dpkg/info"
STATUS = "/var/lib/dpkg/status"
FORM = "${db:Status-Abbrev} ${Package}:${Architecture} ${Version} ${Installed-Size} .\\n"


def find_installed(workspace: Workspace) -> Mapping[str, Installed]:
    """As Family.installed()."""
    said = workspace.ask(["dpkg-query", "--show", f"--showformat={FORM}"]).stdout
    rows = [line.split() for line in said.splitlines()]
    # Installed-Size is in KiB and optional (deb-control(5)).
    return {
        row[1]: Installed(row[2], int(row[3]) * 1024 if row[3].isdigit() else 0, row[0] == "ii")
        for row in rows
    }
