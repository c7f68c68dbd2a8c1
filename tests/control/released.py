# SPDX-License-Identifier: Apache-2.0
"""The builder after "Build and test a release": typed once for each page and state of the code."""

from __future__ import annotations

import shutil
from pathlib import Path

from imagebuilder.digest import digest_of, digest_of_file
from tests.control.disk import Disk
from tests.control.page import Block
from tests.control.world import Builder, wires
from tests.workshop import Workshop, make_workshop, workshop_at

# The lab has no way to the mirrors, which a build needs.
ONLINE = "imagebuilder build "


def release(kept: Path, disk: Disk, checkout: Path, blocks: list[Block], work: Path) -> Workshop:
    """The builder's files after `blocks` were typed; `work` is a folder for logs."""
    wheels = [digest_of_file(wheel) for wheel in sorted((checkout / "dist").glob("*.whl"))]
    name = digest_of([wheels, [block.script for block in blocks]])
    top = kept / f"released-{name[:16]}"
    if (top / "complete").exists():
        return workshop_at(top, pool=top / "pool")
    shutil.rmtree(top, ignore_errors=True)
    top.mkdir(parents=True)
    files = make_workshop(top)
    with wires(work, disk) as room:
        builder = Builder(room, files, checkout)
        for line in (line for block in blocks for line in block.script.splitlines()):
            said = (builder.type_online if line.startswith(ONLINE) else builder.type)(line)
            print(f"builder: {line}\n{said.stdout}{said.stderr}", flush=True)
    (top / "complete").touch()
    return files
