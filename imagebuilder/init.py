# SPDX-License-Identifier: Apache-2.0
"""`init`: make a project, complete or not at all."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

from imagebuilder.errors import InputError
from imagebuilder.files import filling, move_in, scratch, sync_filesystem
from imagebuilder.folders import paths_below
from imagebuilder.reference import json_schema

# The files of a new project; `dot-` in a name stands for a dot.
SKELETON = Path(__file__).with_name("skeleton")
SCHEMA = "imagebuilder.schema.json"


def make_project(folder: Path) -> tuple[str, ...]:
    """Make the project `folder`; returns its files.

    Raises InputError for a folder that is not empty or is the current one, and FullError for a full
    disk.
    """
    place = folder.absolute()
    check_free(place)
    with filling(place.parent, "free some space there, or use a folder on another disk"):
        return write_project(place)


def write_project(place: Path) -> tuple[str, ...]:
    """Write the files of a project into a new folder."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with scratch(place.parent, ".imagebuilder-init-") as work:
        staged = work / "project"
        for path in paths_below(SKELETON):
            if path.is_file() and "__pycache__" not in path.parts:
                parts = path.relative_to(SKELETON).parts
                target = staged.joinpath(*(re.sub("^dot-", ".", part) for part in parts))
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
        (staged / SCHEMA).write_text(json.dumps(json_schema(), indent=1) + "\n")
        files = [path.relative_to(staged) for path in paths_below(staged) if path.is_file()]
        sync_filesystem(staged)
        move_in(staged, place)
    return tuple(sorted(map(os.fspath, files)))


def check_free(place: Path) -> None:
    """Raise InputError unless a project can be made there."""
    where = os.fspath(place)
    if place.is_symlink() or (place.exists() and not place.is_dir()):
        raise InputError("is not a folder", where=where, hint="use a new folder")
    if place.is_dir() and any(place.iterdir()):
        raise InputError("is not empty", where=where, hint="use a new folder")
    if place.is_dir() and place.samefile(Path.cwd()):
        raise InputError("is the current folder", where=where, hint="use a new folder in it")
