# SPDX-License-Identifier: Apache-2.0
"""The control node's disk after "Install the tool": typed once for each page, wheel and disk."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from imagebuilder.digest import digest_of, digest_of_file
from imagebuilder.process import run
from tests.control.disk import Disk
from tests.control.page import BUILDER, Block
from tests.control.world import Builder, Nuc, control_node, wires

OFF_SECONDS = 120
# Packages, and MB that they and the tool's own folder take.
SIZES = """\
dpkg-query -W -f '${Installed-Size}\\n' | awk '{ s += $1 } END { print NR, int(s / 1024) }'
sudo du -sm /opt/imagebuilder 2> /dev/null | cut -f 1 || :
"""


@dataclass(frozen=True)
class Installed:
    """The disk, and what the installation took: seconds, packages, megabytes."""

    disk: Disk
    figures: Mapping[str, int]


def install(kept: Path, disk: Disk, checkout: Path, blocks: list[Block]) -> Installed:
    """`disk` after the commands of `blocks` were typed, kept in `kept`."""
    wheels = [digest_of_file(wheel) for wheel in sorted((checkout / "dist").glob("*.whl"))]
    name = digest_of([disk.folder.name, wheels, [[b.where, b.script] for b in blocks]])
    folder = kept / f"installed-{name[:16]}"
    if not folder.exists():
        with TemporaryDirectory(dir=kept) as work:
            top = Path(work)
            with wires(top, disk) as room:
                builder = Builder(room, None, checkout)
                with control_node(room, disk) as nuc:
                    figures = type_and_measure(builder, nuc, blocks)
                    nuc.type("sudo poweroff", check=False)
                    nuc.program.wait(OFF_SECONDS)
            new = top / "new"
            run(["cp", "--archive", "--reflink=auto", disk.folder, new])
            shutil.move(top / "nuc.ext4", new / disk.image.name)
            (new / "figures.json").write_text(json.dumps(figures))
            new.rename(folder)
    return Installed(Disk(folder), json.loads((folder / "figures.json").read_text()))


def type_and_measure(builder: Builder, nuc: Nuc, blocks: list[Block]) -> dict[str, int]:
    """Type the blocks where they belong; what that took."""
    before = sizes(nuc)
    started = time.monotonic()
    for block in blocks:
        (builder if block.where == BUILDER else nuc).type(block.script)
    seconds = time.monotonic() - started
    after = sizes(nuc)
    return {
        "seconds": round(seconds),
        "packages": after[0] - before[0],
        "packages_mb": after[1] - before[1],
        "tool_mb": after[2],
    }


def sizes(nuc: Nuc) -> list[int]:
    """How many packages there are, their megabytes, and those of the tool if it is there."""
    return [int(word) for word in nuc.type(SIZES).stdout.split()]
