# SPDX-License-Identifier: Apache-2.0
"""Which check files an image has: the common set, then those of its overlays."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
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
        """As reports name it: `ssh/test_ssh.py`."""
        return f"{self.group}/{self.path.name}"


def find_checks(overlays_folder: Path, overlays: Sequence[str]) -> tuple[CheckFile, ...]:
    """The check files of an image with these overlays, the common ones first.

    Raises InputError for an overlay that is not in `overlays_folder`.
    """
    found = list(files_of(COMMON, COMMON_FOLDER, "test_*.py"))
    for overlay in overlays:
        folder = overlays_folder / overlay
        if not folder.is_dir():
            raise InputError(
                f"the image has an overlay {overlay}, which is not in this house",
                where=os.fspath(overlays_folder),
                hint="its checks are beside the overlay: run this where the recipes of the image "
                "are (--house)",
            )
        found.extend(files_of(overlay, folder / "checks", "*.py"))
    return tuple(found)


def files_of(group: str, folder: Path, pattern: str) -> Iterator[CheckFile]:
    """The check files in one folder, by name."""
    for path in sorted(folder.glob(pattern)):
        yield CheckFile(group, path, digest_of_file(path))
