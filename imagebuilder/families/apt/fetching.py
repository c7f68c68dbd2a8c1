# SPDX-License-Identifier: Apache-2.0
"""Fetch packages with apt's own transport, several at once, with progress."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import ImagebuilderError
from imagebuilder.families.apt.apt import Apt
from imagebuilder.families.apt.update import UNREACHABLE, unreached
from imagebuilder.families.downloads import Download, Trouble, fetch_all, uri_of
from imagebuilder.families.protocol import Keep
from imagebuilder.lock.patience import PATIENCE, Pace, Patience, Progress
from imagebuilder.lock.types import LockedPackage
from imagebuilder.recipe.types import Source

HELPER = "/usr/lib/apt/apt-helper"
SAFE = "/~+:@,="  # as apt has them in addresses
# Signal 25 (SIGXFSZ) ends a program at the largest file its limits allow.
FULL = re.compile(r"No space left|File too large|Disk quota|received signal 25")
BROKEN = re.compile(r"closed connection|Connection reset|Error reading from server|unexpectedly")
GONE = re.compile(r"\b404\b|File not found")


def fetch_debs(
    apt: Apt,
    packages: Sequence[LockedPackage],
    folder: Path,
    progress: Progress,
    keep: Keep,
    patience: Patience = PATIENCE,
) -> None:
    """Fetch `packages` into `folder`, resuming partial files; calls `keep` with verified files.

    A file that is wrong after it was resumed is fetched once more as a whole.  Raises HostError if
    a mirror is not reachable or too slow or the disk is full, WorkError if the mirror no longer has
    a package, or has it with other content.
    """
    archives = dict(zip((source.id for source in apt.sources), apt.shown_uris, strict=True))
    downloads = [
        Download(package, uri_of(package, archives, SAFE), folder / f"{package.sha256}.deb")
        for package in packages
    ]
    named = {source.id: source for source in apt.sources}
    fetch_all(AptTransport(apt), downloads, named, folder, progress, keep, patience)


@dataclass(frozen=True)
class AptTransport:
    """families/downloads.py with apt's helper."""

    apt: Apt

    def fetch(self, share: Sequence[Download], pace: Pace) -> str:
        words = [
            word
            for download in share
            for word in (download.uri, download.path, f"SHA256:{download.package.sha256}")
        ]
        done = self.apt.run([HELPER, "download-file", *words], ask=pace.ask, check=False)
        return done.stderr if done.status else ""

    def tidy(self, path: Path) -> None:
        if path.is_symlink():  # how apt fetches from file: archives
            copy_from_link(path)
        refused = path.with_name(f"{path.name}.FAILED")  # apt's name for one with a wrong checksum
        refused.unlink(missing_ok=True)

    def verify(self, downloads: Sequence[Download]) -> None:
        """The signature of a Release file is one of all packages."""

    def explain(
        self, wrong: Sequence[Download], errors: str, source: Source | None
    ) -> ImagebuilderError:
        lines = [line for line in errors.splitlines() if line.startswith("E:")]
        of_first = [line for line in lines if wrong[0].uri in line] or lines
        words = "".join(f"\n    {line}" for line in of_first[:4])
        trouble = Trouble(wrong, source, words)
        if FULL.search(errors):
            return trouble.full()
        if BROKEN.search(words):
            return trouble.broken()
        if UNREACHABLE.search(words):
            return trouble.unreached(unreached(source))
        return trouble.gone() if GONE.search(words) else trouble.changed()

    def unreached(self, source: Source | None) -> str:
        return unreached(source)


def copy_from_link(path: Path) -> None:
    """Replace a symlink with a copy of the file it points to."""
    origin = path.resolve()
    path.unlink()
    if origin.is_file():
        shutil.copyfile(origin, path)
