# SPDX-License-Identifier: Apache-2.0
"""Fetching of packages with apt's own transport, several at once, and the progress of it."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from imagebuilder.digest import digest_of_file
from imagebuilder.errors import FullError, HostError, ImagebuilderError, WorkError
from imagebuilder.lock.apt import Apt
from imagebuilder.lock.types import LockedPackage
from imagebuilder.lock.update import UNREACHABLE, unreached, vendor_of
from imagebuilder.recipe.types import Source

HELPER = "/usr/lib/apt/apt-helper"
AT_ONCE = 4
POLL_S = 0.2
# Signal 25 (SIGXFSZ) ends a program at the largest file its limits allow.
FULL = re.compile(r"No space left|File too large|Disk quota|received signal 25")
BROKEN = re.compile(r"closed connection|Connection reset|Error reading from server|unexpectedly")
GONE = re.compile(r"\b404\b|File not found")


class Progress(Protocol):
    """Who shows how far a fetch is, in bytes."""

    def start(self, total: int, what: str) -> None:
        """A fetch of `total` bytes begins; `what` is a line for a person."""
        ...

    def advance(self, count: int) -> None:
        """So many more bytes are there."""
        ...

    def done(self) -> None:
        """The fetch has ended, well or not."""
        ...


@dataclass(frozen=True)
class Download:
    """One package, where it comes from and where it goes."""

    package: LockedPackage
    uri: str
    path: Path


def fetch_debs(
    apt: Apt, packages: Sequence[LockedPackage], folder: Path, progress: Progress
) -> Iterator[tuple[LockedPackage, Path]]:
    """Fetch `packages` into `folder`; yields each that is there and right, then raises for others.

    Raises HostError when a mirror is not reachable or the disk is full, WorkError for a package
    that the mirror no longer has, or has with other content.
    """
    archives = dict(zip((source.id for source in apt.sources), apt.uris, strict=True))
    downloads = [
        Download(package, uri_of(package, archives), folder / f"{package.sha256}.deb")
        for package in packages
    ]
    size = sum(package.size for package in packages)
    with watched(folder, size, f"Fetching {len(packages)} packages", progress):
        said = download_all(apt, downloads)
    wrong = []
    for download in downloads:
        if download.path.is_symlink():  # how apt fetches from file: archives
            copy_from_link(download.path)
        if download.path.exists() and digest_of_file(download.path) == download.package.sha256:
            yield download.package, download.path
        else:
            wrong.append(download)
    if wrong:
        named = {source.id: source for source in apt.sources}
        raise fetch_error(wrong, said, named.get(wrong[0].package.source))


def uri_of(package: LockedPackage, archives: dict[str, str]) -> str:
    """The address of a package.  Raises WorkError when its source is not in the recipe."""
    if package.source not in archives:
        raise WorkError(
            f"the lock takes {package.nevra} from source {package.source}, the recipe has no such",
            hint="imagebuilder lock PROFILE",
        )
    return f"{archives[package.source]}/{quote(package.path, safe='/~+:@,=')}"


def copy_from_link(path: Path) -> None:
    """Put the file a symlink points to in its place."""
    origin = path.resolve()
    path.unlink()
    if origin.is_file():
        shutil.copyfile(origin, path)


def download_all(apt: Apt, downloads: Sequence[Download]) -> str:
    """Run apt's helper, at most AT_ONCE at a time; what they said of errors."""
    shares = [share for share in balanced(downloads, AT_ONCE) if share]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        running: list[Future[str]] = [
            threads.submit(download_share, apt, share) for share in shares
        ]
        return "\n".join(future.result() for future in running)


def balanced(downloads: Sequence[Download], count: int) -> list[list[Download]]:
    """`downloads` in `count` shares of about the same number of bytes."""
    shares: list[list[Download]] = [[] for _ in range(count)]
    sizes = [0] * count
    for download in sorted(downloads, key=lambda each: -each.package.size):
        least = sizes.index(min(sizes))
        shares[least].append(download)
        sizes[least] += download.package.size
    return shares


def download_share(apt: Apt, downloads: Sequence[Download]) -> str:
    """Fetch one share; what was said of errors (the caller looks at the files)."""
    words = [
        word
        for download in downloads
        for word in (download.uri, download.path, f"SHA256:{download.package.sha256}")
    ]
    done = apt.run([HELPER, "download-file", *words], check=False)
    return done.stderr if done.status else ""


@contextmanager
def watched(folder: Path, total: int, what: str, progress: Progress) -> Iterator[None]:
    """Tell `progress` how the files below `folder` grow, until the end."""
    stop = threading.Event()
    before = size_below(folder)

    def watch() -> None:
        seen = 0
        ended = False
        while not ended:
            ended = stop.wait(POLL_S)
            now = min(total, max(seen, size_below(folder) - before))
            if now > seen:
                progress.advance(now - seen)
                seen = now

    progress.start(total, what)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()
        progress.done()


def size_below(folder: Path) -> int:
    """The bytes in files below `folder`, some of which may vanish while we look."""
    size = 0
    for path in folder.rglob("*"):
        try:
            size += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return size


def fetch_error(wrong: Sequence[Download], said: str, source: Source | None) -> ImagebuilderError:
    """Why packages are not there, from what apt said of the first of them, which is of `source`."""
    first = wrong[0]
    lines = [line for line in said.splitlines() if line.startswith("E:")]
    of_first = [line for line in lines if first.uri in line] or lines
    words = "".join(f"\n    {line}" for line in of_first[:4])
    more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    where = f"source {first.package.source}"
    name = f"{first.package.nevra}{more}"
    if FULL.search(said):
        return FullError(f"no space left for {name}{words}", where=where)
    if BROKEN.search(words):
        return WorkError(
            f"the mirror broke off while sending {name}, of {first.package.size} bytes{words}",
            where=where,
            hint="try again: what is complete has been kept",
        )
    if UNREACHABLE.search(words):
        who = f"{name}: not in the pool, and the vendor" if vendor_of(source) else "mirror"
        return HostError(
            f"{who} is not reachable: {first.uri}{words}",
            where=where,
            hint=unreached(source),
        )
    if GONE.search(words):
        return WorkError(
            f"the mirror no longer has {name}{words}",
            where=where,
            hint="imagebuilder lock PROFILE takes what it has now",
        )
    return WorkError(
        f"{name}: expected sha256 {first.package.sha256} ({first.package.size} bytes), "
        f"the mirror sent something else{words}",
        where=where,
        hint="a proxy or the mirror is broken; nothing of it was kept",
    )
