# SPDX-License-Identifier: Apache-2.0
"""Find the check files of an image: the common ones, then those of its overlays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.digest import digest_of_file
from imagebuilder.errors import InputError

COMMON = "common"
COMMON_FOLDER = Path(__file__).with_name(COMMON)


@dataclass(frozen=True)
class CheckFile:
    """A file of checks; `group` is the overlay it belongs to or "common", `digest` its sha256."""

    group: str
    path: Path
    digest: str

    @property
    def name(self) -> str:
        """Its name in reports: `ssh/test_ssh.py`."""
        return f"{self.group}/{self.path.name}"


def find_checks(folders: Mapping[str, Path], overlays: Sequence[str]) -> tuple[CheckFile, ...]:
    """The check files of an image with these overlays, the common ones first.

    `folders` are those of all overlays by name.  Raises InputError for an overlay without one.
    """
    found = list(files_of(COMMON, COMMON_FOLDER, "test_*.py"))
    for overlay in overlays:
        if overlay not in folders:
            raise InputError(
                f"the image has an overlay {overlay}, which this project does not contain",
                hint="run this in the project with the image's overlays (--project): their checks "
                "are beside them",
            )
        found.extend(files_of(overlay, folders[overlay] / "checks", "*.py"))
    return tuple(found)


def files_of(group: str, folder: Path, pattern: str) -> Iterator[CheckFile]:
    for path in sorted(folder.glob(pattern)):
        yield CheckFile(group, path, digest_of_file(path))
