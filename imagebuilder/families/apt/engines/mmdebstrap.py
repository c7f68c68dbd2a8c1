# SPDX-License-Identifier: Apache-2.0
"""mmdebstrap(1): the host's apt installs into the root from outside."""

from __future__ import annotations

import os
from urllib.parse import quote

from imagebuilder.families.apt.engines.request import ON_HOST, BootstrapRequest
from imagebuilder.families.apt.install import NO_INITRD
from imagebuilder.workspace import Workspace


def run_mmdebstrap(request: BootstrapRequest, workspace: Workspace) -> None:
    """Fill `workspace.merged`.  Raises WorkError.

    The sandbox isolates it: mmdebstrap runs as plain root there, and with copy: its apt needs no
    mount of ours inside the root.  Variant `essential` extracts only what dpkg needs to run before
    dpkg installs the rest (`custom` would unpack everything twice).
    """
    excludes = [f"--dpkgopt=path-exclude={glob}" for glob in request.path_excludes]
    workspace.run_engine(
        [
            "mmdebstrap", "--verbose", "--mode=root", "--format=directory", "--variant=essential",
            f"--architectures={request.architecture}",
            f"--include={','.join(request.packages)}",
            "--aptopt=Acquire::Languages none", "--dpkgopt=force-unsafe-io", *excludes,
            "--skip=check/empty", request.suite, workspace.merged,
            f"deb [trusted=yes] copy:{quote(os.fspath(request.repository))} {request.suite} main",
        ],
        env=NO_INITRD,
        sees=ON_HOST,
    )  # fmt: skip
