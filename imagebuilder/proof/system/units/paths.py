# SPDX-License-Identifier: Apache-2.0
"""Folders and files without which systemd does not start a site's service.

A path of ReadWritePaths= and the like that is not there ends the service with 226/NAMESPACE, a
working directory with 200/CHDIR (systemd.exec(5)).
"""

from __future__ import annotations

from collections.abc import Iterator

from imagebuilder.image.proof import Finding
from imagebuilder.proof.reading.made import MADE, made_by_tmpfiles
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup, said_in
from imagebuilder.proof.reading.unit_paths import is_below, unit_paths
from imagebuilder.proof.services.start import is_there
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY

NEEDED = (
    "ReadWritePaths", "ReadOnlyPaths", "InaccessiblePaths", "ExecPaths", "NoExecPaths",
    "BindPaths", "BindReadOnlyPaths", "WorkingDirectory", "RootDirectory",
)  # fmt: skip
# Settings with one path, before which systemd-analyze leaves out the -.
WHOLE = ("WorkingDirectory", "RootDirectory")


def prove_paths(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """Faults of paths that are neither in the image nor made when a node boots."""
    units = list(startup.starting())
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
