# SPDX-License-Identifier: Apache-2.0
"""Source packages, unpacked in a root."""

from __future__ import annotations

import shutil
from pathlib import Path

from imagebuilder.lock.builds import files_of
from imagebuilder.lock.types import LockedSourcePackage
from imagebuilder.sandbox import INSIDE, Bind
from imagebuilder.workspace import Workspace

FILES, SOURCES = INSIDE / "files", INSIDE / "source"


def unpack(package: LockedSourcePackage, sources: Path, tools: Workspace) -> None:
    """Unpack one source package at `sources`/NAME.

    What its files are the lock has vouched for; dpkg-source checks them against the .dsc again.
    """
    files = tools.work / f"{tools.upper}.files" / package.name
    files.mkdir(parents=True)
    for file, path in zip(package.files, tools.pool.take(files_of(package)), strict=True):
        shutil.copyfile(path, files / file.name)
    tools.run(
        ["dpkg-source", "--extract", FILES / package.files[0].name, SOURCES / package.name],
        binds=[Bind(files, FILES), Bind(sources, SOURCES, writable=True)],
    )
    shutil.rmtree(files)
