# SPDX-License-Identifier: Apache-2.0
"""The folder of a playbook with its roles: what is in it, and whether it can be read at all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from imagebuilder.digest import Json, digest_of, digest_of_file
from imagebuilder.errors import one_line
from imagebuilder.folders import folders_below

# Folders in a playbook's project that are not part of it.
IGNORED = frozenset((".git", ".hg", ".venv", "__pycache__", ".ansible"))
MOST_FILES = 10_000
MOST_BYTES = 4 << 30
ALL = "and all would be read"
OWN_FOLDER = "put the playbook and its roles in their own folder"


def project_of(playbook: Path) -> Path:
    """The folder that a playbook's roles and vars lie in: its own, or that above `playbooks`."""
    folder = playbook.absolute().parent
    return folder.parent if folder.name == "playbooks" else folder


def find_problem_of(project: Path) -> tuple[str, str] | None:
    """Why the files of a project cannot be read, and a hint; opens none of them."""
    count = size = 0
    whole = project.resolve()
    tops = [(project, os.fspath(project))]
    for top, shown in tops:  # grows by the folders outside that links lead to
        for path in entries_of_project(top):
            real = resolved(path)
            count += 1
            if not is_text(path, top):
                return (
                    f"{one_line(os.fspath(path))} is not UTF-8, or its target is not",
                    "rename it",
                )
            if path.is_symlink() and (top != project or real.is_relative_to(whole)):
                continue
            if real.is_dir():
                tops.append((real, f"{path} leads to {real}: the folder"))
            elif real.is_file():
                size += real.stat().st_size
            if count > MOST_FILES:
                return f"{shown} has more than {MOST_FILES} files, {ALL}", OWN_FOLDER
            if size > MOST_BYTES:
                return f"{shown} has more than {MOST_BYTES >> 30} GiB, {ALL}", OWN_FOLDER
    return None


def is_text(path: Path, top: Path) -> bool:
    """Whether the name of a file below `top`, and what it leads to, can be in a manifest."""
    try:
        os.fspath(path.relative_to(top)).encode()
        if path.is_symlink():
            os.fspath(path.readlink()).encode()
    except UnicodeEncodeError:
        return False
    return True


def digests_of_project(project: Path, *, follow: bool = True) -> Mapping[str, Json]:
    """Every file of a project: name to mode and digest.

    Leaves out what no playbook reads.  A symlink out of the project counts with the content of its
    target, where symlinks are not followed further.
    """
    return {
        os.fspath(path.relative_to(project)): digest_of_entry(path, project, follow=follow)
        for path in entries_of_project(project)
    }


def entries_of_project(project: Path) -> Iterator[Path]:
    for folder, below, names in folders_below(project):
        below[:] = sorted(set(below) - IGNORED)
        links = [name for name in below if Path(folder, name).is_symlink()]
        yield from (Path(folder, name) for name in sorted([*names, *links]))


def digest_of_entry(path: Path, project: Path, *, follow: bool) -> str:
    """One file or symlink of a project, as its layer's digest sees it."""
    if path.is_symlink():
        real = resolved(path)
        text = f"-> {path.readlink()}"
        if not follow or real.is_relative_to(project.resolve()):
            return text
        if real.is_dir():
            return f"{text} {digest_of(digests_of_project(real, follow=False))}"
        return f"{text} {digest_of_file(real)}" if real.is_file() else text
    if not path.is_file():
        return "special"
    return f"{path.stat().st_mode & 0o111:o} {digest_of_file(path)}"


def resolved(path: Path) -> Path:
    """Where a path leads; Path.resolve() fails for a link that leads to itself."""
    return Path(os.path.realpath(path))
