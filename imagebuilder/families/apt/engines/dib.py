# SPDX-License-Identifier: Apache-2.0
"""diskimage-builder, with one element of ours (elements/imagebuilder) that is a whole system.

It makes no disk and no file system: what it leaves is the folder.
"""

from __future__ import annotations

import os
from pathlib import Path

from imagebuilder.families.apt.engines.debootstrap import IN_SANDBOX
from imagebuilder.families.apt.engines.excluded import remove_excluded
from imagebuilder.families.apt.engines.request import BootstrapRequest
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
    room = workspace.work / f"{workspace.upper}.dib"
    given = room / "given"
    make_apt_files(given, request.suite, request.path_excludes)
    (given / "packages").write_text("".join(f"{name}\n" for name in request.packages))
    (room / "build").mkdir()
    workspace.run_engine(
        [
            find_tool(DIB), "-a", request.architecture, "-n", "--no-tmpfs", "--offline",
            # Not made (no-final-image), but every other type wants a tool for itself.
            "-t", "raw", "-o", room / "image", "imagebuilder",
        ],
        env={**NO_INITRD, **environment(request, workspace, room)},
    )  # fmt: skip
    remove_excluded(workspace, request.path_excludes)


def environment(request: BootstrapRequest, workspace: Workspace, room: Path) -> dict[str, str]:
    """What the element reads, and where diskimage-builder leaves its own things."""
    names: dict[str, str | Path] = {
        "ELEMENTS_PATH": ELEMENTS,
        **IN_SANDBOX,
        "TMP_DIR": room / "build",
        "DIB_IMAGE_CACHE": room / "cache",
        "DIB_LOCKFILES": room / "locks",
        "DIB_NO_TIMESTAMP": "1",
        "DIB_IMAGE_SIZE": "1",  # GiB, of the disk that is not made: it measures the root otherwise
        "IMAGEBUILDER_SUITE": request.suite,
        "IMAGEBUILDER_GIVEN": room / "given",
        "IMAGEBUILDER_REPOSITORY": request.repository,
        "IMAGEBUILDER_ROOT": workspace.merged,
    }
    return {name: os.fspath(value) for name, value in names.items()}
