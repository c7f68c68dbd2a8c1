# SPDX-License-Identifier: Apache-2.0
"""Folders and files that a site names for its service, and that are not there or closed to it.

A path of ReadWritePaths= and the like that is not there ends the service with 226/NAMESPACE, a
working directory with 200/CHDIR (systemd.exec(5)).
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.accounts import UnitAccount, account_of
from imagebuilder.proof.reading.environment import environment_of, expanded, files_of
from imagebuilder.proof.reading.site import starting_units
from imagebuilder.proof.reading.systemd import LoadedUnit, said_in
from imagebuilder.proof.reading.tmpfiles import MADE, made_by, made_by_tmpfiles, with_tmpfiles
from imagebuilder.proof.reading.units import is_below, unit_paths
from imagebuilder.proof.services.programs import exempt
from imagebuilder.proof.services.start import is_there
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY

NEEDED = (
    "ReadWritePaths", "ReadOnlyPaths", "InaccessiblePaths", "ExecPaths", "NoExecPaths",
    "BindPaths", "BindReadOnlyPaths", "WorkingDirectory", "RootDirectory",
)  # fmt: skip
# Settings with one path, before which systemd-analyze leaves out the -.
WHOLE = ("WorkingDirectory", "RootDirectory")
FOLDERS = ("WorkingDirectory", "ReadWritePaths")
# Folders of every image, in which nothing is closed to anybody; they would only take time.
OPEN = ("/usr/bin/", "/usr/lib/", "/usr/share/", "/bin/", "/dev/", "/proc/", "/sys/")
# Variables that name folders for every program, whether or not it may enter them.
PATHS = frozenset(("PATH", "HOME", "SHELL", "MANPATH", "LD_LIBRARY_PATH", "PYTHONPATH"))


def prove_paths(subject: Subject) -> Iterator[Finding]:
    """Faults of paths that are neither in the image nor made when a node boots."""
    units = list(subject.startup.starting())
    made = made_by_tmpfiles(subject)
    made |= {f"{top}/{word}" for unit in units for key, top in MADE.items()
             for value in unit.words(key) for word in [value.partition(":")[0]]}  # fmt: skip
    for unit in units:
        for key in NEEDED:
            where = said_in(subject.root, unit, key)
            is_optional = where.said.partition("=")[2].lstrip().startswith("-")
            if where.path in subject.shipped or (key in WHOLE and is_optional):
                continue
            for path in missing(subject, unit, key):
                if not any(is_below(other, path) for other in made):
                    what = f"{unit.name} does not start: {path} is not in the image ({key}=)"
                    hint = f"create it (StateDirectory=, tmpfiles.d(5)), or write {key}=-{path} "
                    hint += "if it may be missing"
                    yield SAY.fault(what, where, hint=hint)


def missing(subject: Subject, unit: LoadedUnit, key: str) -> Iterator[str]:
    """The paths of a setting that must be there, and that the image does not have."""
    for each in unit_paths(unit, key):
        path = each.source
        is_sure = not each.is_optional and path[:1] == "/" and "%" not in path and "$" not in path
        if is_sure and not is_there(subject, path):
            yield path


def prove_reach(subject: Subject) -> Iterator[Finding]:
    """Faults of paths in command lines, variables and settings of services that are not root; a
    warning where tmpfiles.d(5) closes a folder, since a program may open it later
    (bottlerocket-os/bottlerocket #4673: the sockets of MPS).
    """
    # At boot there is nothing in /run but what tmpfiles.d and services make.
    before = {path: i for path, i in subject.entries.items() if not path.startswith("/run/")}
    entries = with_tmpfiles(subject, before)
    made = {folder for unit in subject.startup.units.values() for folder in made_by(unit)}
    for unit in starting_units(subject):
        sources = [*unit.paths, *files_of(subject.root, unit)]
        account = account_of(unit, subject.accounts)
        if account is None or all(path in subject.shipped for path in sources):
            continue
        if unit.last("DynamicUser") == "yes" or unit.last("AmbientCapabilities"):
            continue
        seen: set[str] = set()
        for path, where in named_paths(subject, unit):
            closed = find_closed(entries, account, path)
            is_shipped = closed in before and entries[closed] == before[closed]
            is_made = not is_shipped and any(is_below(closed, folder) for folder in made)
            if closed and closed not in seen and not is_made:
                seen.add(closed)
                mode = stat.S_IMODE(entries[closed].st_mode)
                does = "read" if stat.S_ISREG(entries[closed].st_mode) else "enter"
                what = f"{unit.name} runs as {account.name}, who may not {does} {closed} (mode "
                what += f"{mode:04o}), and therefore cannot use {path}"
                hint = f"put it elsewhere, or give {account.name} the right to {does} {closed}"
                yield (SAY.fault if is_shipped else SAY.warning)(what, where, hint=hint)


def named_paths(subject: Subject, unit: LoadedUnit) -> Iterator[tuple[str, Evidence]]:
    """The absolute paths that a service is told, and where."""
    environment = environment_of(subject, unit)
    for name, variable in environment.items():
        if name not in PATHS and variable.value.startswith("/"):
            yield variable.value, variable.evidence(name)
    for key, words in unit.started():
        # A + gives a command all rights, and nobody waits for what a - ignores.
        free = exempt(subject.root, unit, key, words[0])
        for word in () if free else expanded(words, environment):
            path = word.partition("=")[2] if word.startswith("-") else word
            yield path, Evidence(unit.place, said=word)
    for key in FOLDERS:
        for word in unit.words(key):
            yield word.lstrip("-+"), Evidence(unit.place, said=f"{key}={word}")


def find_closed(entries: Mapping[str, os.stat_result], account: UnitAccount, path: str) -> str:
    """The first folder on the way to `path` that the account may not enter, or the file itself if
    it may not read it; "" if it may, or where nobody knows.
    """
    if not path.startswith("/") or path.startswith(OPEN) or posixpath.normpath(path) != path:
        return ""
    for folder in [os.fspath(each) for each in reversed(PurePosixPath(path).parents)][1:]:
        info = entries.get(folder)
        if info is None or stat.S_ISLNK(info.st_mode):
            return ""
        if not account.may(info, 1):
            return folder
    info = entries.get(path)
    if info is None or not stat.S_ISREG(info.st_mode) or info.st_mode & 0o111:
        return ""
    return "" if account.may(info, 4) else path
