# SPDX-License-Identifier: Apache-2.0
"""diskimage-builder, with an element of ours (elements/imagebuilder) that is a complete system.

It makes no disk and no file system, only the folder.
"""

from __future__ import annotations

import os
from pathlib import Path

from imagebuilder.families.apt.engines.debootstrap import IN_SANDBOX
from imagebuilder.families.apt.engines.request import ON_HOST, BootstrapRequest, remove_excluded
from imagebuilder.families.apt.install import NO_INITRD, make_apt_files
from imagebuilder.families.tool import Tool, check_path, find_tool
from imagebuilder.workspace import Workspace

ELEMENTS = Path(__file__).with_name("elements")
DIB = Tool(
    "dib", "disk-image-create", "pip install 'imagebuilder[engines]' where imagebuilder is", least=3
)


def run_dib(request: BootstrapRequest, workspace: Workspace) -> None:
    """Fill `workspace.merged`.  Raises HostError without diskimage-builder, WorkError."""
    check_path(DIB, workspace.work)
    work = workspace.work / f"{workspace.upper}.dib"
    inputs = work / "given"
    make_apt_files(inputs, request.suite, request.path_excludes)
    (inputs / "packages").write_text("".join(f"{name}\n" for name in request.packages))
    (work / "build").mkdir()
    workspace.run_engine(
        [
            find_tool(DIB), "-a", request.architecture, "-n", "--no-tmpfs", "--offline",
            # Not made (no-final-image), but every other type needs a tool of its own.
            "-t", "raw", "-o", work / "image", "imagebuilder",
        ],
        env={**NO_INITRD, **environment(request, workspace, work)},
        sees=ON_HOST,
        writes=[work],
    )  # fmt: skip
    remove_excluded(workspace, request.path_excludes)


def environment(request: BootstrapRequest, workspace: Workspace, work: Path) -> dict[str, str]:
    """The variables of the element, and of diskimage-builder's own folders."""
    names: dict[str, str | Path] = {
        "ELEMENTS_PATH": ELEMENTS,
        **IN_SANDBOX,
        "TMP_DIR": work / "build",
        "DIB_IMAGE_CACHE": work / "cache",
        "DIB_LOCKFILES": work / "locks",
        "DIB_NO_TIMESTAMP": "1",
        "DIB_IMAGE_SIZE": "1",  # GiB, of a disk that is not made; without it the root is measured
        "IMAGEBUILDER_SUITE": request.suite,
        "IMAGEBUILDER_GIVEN": work / "given",
        "IMAGEBUILDER_REPOSITORY": request.repository,
        "IMAGEBUILDER_ROOT": workspace.merged,
    }
    return {name: os.fspath(value) for name, value in names.items()}
