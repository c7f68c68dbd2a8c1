# SPDX-License-Identifier: Apache-2.0
"""Fetch packages with apt's own transport, several at once, with progress."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from imagebuilder.digest import digest_of_file
from imagebuilder.errors import FullError, HostError, ImagebuilderError, WorkError
from imagebuilder.families.apt.apt import Apt
from imagebuilder.families.apt.update import UNREACHABLE, unreached, vendor_of
from imagebuilder.families.protocol import Keep
from imagebuilder.lock.patience import PATIENCE, Pace, Patience, Progress, SlowError, watched
from imagebuilder.lock.types import LockedPackage
from imagebuilder.phrases import list_first
from imagebuilder.recipe.types import Source
from imagebuilder.ui import format_count

HELPER = "/usr/lib/apt/apt-helper"
AT_ONCE = 4
# Signal 25 (SIGXFSZ) ends a program at the largest file its limits allow.
FULL = re.compile(r"No space left|File too large|Disk quota|received signal 25")
BROKEN = re.compile(r"closed connection|Connection reset|Error reading from server|unexpectedly")
GONE = re.compile(r"\b404\b|File not found")


@dataclass(frozen=True)
class Download:
    """One package, where it comes from and where it goes."""

    package: LockedPackage
    uri: str
    path: Path


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
    wanted = [
        Download(package, uri_of(package, archives), folder / f"{package.sha256}.deb")
        for package in packages
    ]
    right, wanted = sorted_out(wanted)
    keep([(each.path, each.package) for each in right])
    resumed = {each.path for each in wanted if each.path.exists()}
    whole = sum(each.package.size for each in wanted)
    left = whole - sum(path.stat().st_size for path in resumed)
    named = {source.id: source for source in apt.sources}
    what = f"Fetching {format_count(len(packages), 'package')}"
    with watched(folder, left, what, progress, patience, whole=whole) as pace:
        errors, wrong = attempt(apt, wanted, pace, keep, named)
        if retried := [each for each in wrong if each.path in resumed and not each.path.exists()]:
            more, still = attempt(apt, retried, pace, keep, named)
            errors = f"{errors}\n{more}"
            wrong = [each for each in wrong if each not in retried or each in still]
        check_sizes(wrong)
        if wrong:
            raise fetch_error(wrong, errors, named.get(wrong[0].package.source))


def attempt(
    apt: Apt, downloads: Sequence[Download], pace: Pace, keep: Keep, sources: Mapping[str, Source]
) -> tuple[str, list[Download]]:
    """Fetch once and keep what is right; returns apt's errors, and what is missing or wrong.

    A wrong file of the right length or longer is removed: it cannot be resumed.
    """
    slow: SlowError | None = None
    errors = ""
    try:
        errors = download_all(apt, downloads, pace)
    except SlowError as error:
        slow = error
    finally:
        right, wrong = sorted_out(downloads)
        keep([(each.path, each.package) for each in right])
        pace.moved(sum(each.package.size for each in right))
    if slow and wrong:
        raise slow_error(wrong, pace.patience, sources.get(wrong[0].package.source)) from slow
    return errors, wrong


def sorted_out(downloads: Sequence[Download]) -> tuple[list[Download], list[Download]]:
    """Downloads whose file is right, and the others; files that cannot be resumed are removed."""
    right: list[Download] = []
    wrong: list[Download] = []
    for download in downloads:
        path, package = download.path, download.package
        if path.is_symlink():  # how apt fetches from file: archives
            copy_from_link(path)
        refused = path.with_name(f"{path.name}.FAILED")  # apt's name for one with a wrong checksum
        refused.unlink(missing_ok=True)
        size = path.stat().st_size if path.exists() else -1
        is_whole = size >= package.size and digest_of_file(path) == package.sha256
        if is_whole and size == package.size:
            right.append(download)
            continue
        if size >= package.size and not is_whole:
            path.unlink()
        wrong.append(download)
    return right, wrong


def check_sizes(wrong: Sequence[Download]) -> None:
    """Raise WorkError if a file has the locked content, and so the index has a wrong size of it."""
    for download in wrong:
        path, package = download.path, download.package
        if path.exists() and digest_of_file(path) == package.sha256:
            size = path.stat().st_size
            path.unlink()
            raise WorkError(
                f"{package.nevra} has {size} bytes, but its index says {package.size}",
                where=f"source {package.source}",
                hint="apt installs no such package: tell the owner of the archive, or pin another "
                "version and lock again",
            )


def uri_of(package: LockedPackage, archives: dict[str, str]) -> str:
    """The address of a package.  Raises WorkError if its source is not in the recipe."""
    if package.source not in archives:
        raise WorkError(
            f"the lock takes {package.nevra} from source {package.source}, but the recipe defines "
            "no such source",
            hint="run imagebuilder lock PROFILE",
        )
    return f"{archives[package.source]}/{quote(package.path, safe='/~+:@,=')}"


def copy_from_link(path: Path) -> None:
    """Replace a symlink with a copy of the file it points to."""
    origin = path.resolve()
    path.unlink()
    if origin.is_file():
        shutil.copyfile(origin, path)


def download_all(apt: Apt, downloads: Sequence[Download], pace: Pace) -> str:
    """Run apt's helper, at most AT_ONCE at a time; returns the errors.  Raises SlowError."""
    shares = [share for share in balanced(downloads, AT_ONCE) if share]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        try:
            running: list[Future[str]] = [
                threads.submit(download_share, apt, share, pace) for share in shares
            ]
            return "\n".join(future.result() for future in running)
        except BaseException:
            pace.ended = True  # leaving waits for the threads
            raise


def balanced(downloads: Sequence[Download], count: int) -> list[list[Download]]:
    """`downloads` in `count` shares of about the same number of bytes."""
    shares: list[list[Download]] = [[] for _ in range(count)]
    sizes = [0] * count
    for download in sorted(downloads, key=lambda each: -each.package.size):
        least = sizes.index(min(sizes))
        shares[least].append(download)
        sizes[least] += download.package.size
    return shares


def download_share(apt: Apt, downloads: Sequence[Download], pace: Pace) -> str:
    """Fetch one share; returns the errors (the caller checks the files)."""
    words = [
        word
        for download in downloads
        for word in (download.uri, download.path, f"SHA256:{download.package.sha256}")
    ]
    done = apt.run([HELPER, "download-file", *words], ask=pace.ask, check=False)
    return done.stderr if done.status else ""


def names_of(wrong: Sequence[Download]) -> str:
    return list_first((each.package.nevra for each in wrong), 1)


def slow_error(wrong: Sequence[Download], patience: Patience, source: Source | None) -> HostError:
    return HostError(
        f"the mirror sent {patience}: gave up on {names_of(wrong)}",
        where=f"source {wrong[0].package.source}",
        hint=f"run the command again to resume the download; or {unreached(source)}",
    )


def fetch_error(wrong: Sequence[Download], errors: str, source: Source | None) -> ImagebuilderError:
    """Why packages are missing, from apt's errors about the first of them, which is of `source`."""
    first = wrong[0]
    lines = [line for line in errors.splitlines() if line.startswith("E:")]
    of_first = [line for line in lines if first.uri in line] or lines
    words = "".join(f"\n    {line}" for line in of_first[:4])
    where, name = f"source {first.package.source}", names_of(wrong)
    if FULL.search(errors):
        return FullError(f"no space left for {name}{words}", where=where)
    if BROKEN.search(words):
        return WorkError(
            f"the mirror closed the connection while sending {name} ({first.package.size} bytes)"
            f"{words}",
            where=where,
            hint="try again: complete files were kept",
        )
    if UNREACHABLE.search(words):
        who = f"{name}: not in the pool, and the vendor" if vendor_of(source) else "mirror"
        return HostError(
            f"{who} is not reachable: {first.uri}{words}", where=where, hint=unreached(source)
        )
    if GONE.search(words):
        return WorkError(
            f"the mirror no longer has {name}{words}",
            where=where,
            hint="run imagebuilder lock PROFILE to lock what it has now",
        )
    return WorkError(
        f"{name}: expected sha256 {first.package.sha256} ({first.package.size} bytes), "
        f"the mirror sent something else{words}",
        where=where,
        hint="a proxy or the mirror is broken; the file was not kept",
    )
