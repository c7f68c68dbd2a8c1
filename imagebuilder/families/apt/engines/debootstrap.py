# SPDX-License-Identifier: Apache-2.0
"""debootstrap(8): the older, widely used engine."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from imagebuilder.environment import SBIN
from imagebuilder.families.apt.engines.request import ON_HOST, BootstrapRequest, remove_excluded
from imagebuilder.families.apt.install import NO_INITRD
from imagebuilder.workspace import Workspace

# Programs that engines find before the host's: replacements that work in a sandbox.
PROGRAMS = Path(__file__).with_name("elements") / "bin"
# In a container, debootstrap does not insist on creating devices.
IN_SANDBOX = {"PATH": f"{PROGRAMS}:{SBIN}", "container": "lxc"}


def run_debootstrap(request: BootstrapRequest, workspace: Workspace) -> None:
    """Fill `workspace.merged`.  Raises WorkError.

    It uses the script of `sid`, because the builder's debootstrap may be older than the suite.
    """
    workspace.run_engine(
        [
            "debootstrap", "--no-check-gpg", "--variant=minbase", "--merged-usr",
            f"--arch={request.architecture}", f"--include={','.join(request.packages)}",
            request.suite, workspace.merged, f"file://{quote(os.fspath(request.repository))}",
            "/usr/share/debootstrap/scripts/sid",
        ],
        env={**NO_INITRD, **IN_SANDBOX},
        sees=ON_HOST,
    )  # fmt: skip
    remove_excluded(workspace, request.path_excludes)
