# SPDX-License-Identifier: Apache-2.0
"""Fetch locked packages, several at once: resume partial files, keep what is right.

How bytes arrive, and what an error of that means, is the family's: its PackageTransport.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from imagebuilder.digest import digest_of_file
from imagebuilder.errors import FullError, HostError, ImagebuilderError, WorkError
from imagebuilder.families.hints import vendor_of
from imagebuilder.families.protocol import Keep
from imagebuilder.lock.patience import Pace, Patience, Progress, SlowError, watched
from imagebuilder.lock.types import LockedPackage
from imagebuilder.phrases import list_first
from imagebuilder.recipe.types import Source
from imagebuilder.ui import format_count

AT_ONCE = 4


@dataclass(frozen=True)
class Download:
    """One package, where it comes from and where it goes."""

    package: LockedPackage
    uri: str
    path: Path


class PackageTransport(Protocol):
    """How a family fetches files."""

    def fetch(self, share: Sequence[Download], pace: Pace) -> str:
        """Fetch files, resuming partial ones, in a thread of its own; returns the errors, one a
        line.  The caller checks the files.  Raises SlowError.
        """

    def tidy(self, path: Path) -> None:
        """Make what it left at `path` a plain file, and remove what it left beside it."""

    def verify(self, downloads: Sequence[Download]) -> None:
        """Raise WorkError for a file with the locked content that must not be trusted."""

    def explain(
        self, wrong: Sequence[Download], errors: str, source: Source | None
    ) -> ImagebuilderError:
        """Why files are missing, from the errors about the first of them, which is of `source`."""

    def unreached(self, source: Source | None) -> str:
        """The hint for a source that does not answer."""


def fetch_all(
    transport: PackageTransport,
    downloads: Sequence[Download],
    sources: Mapping[str, Source],
    folder: Path,
    progress: Progress,
    keep: Keep,
    patience: Patience,
) -> None:
    """Fetch into `folder`, resuming partial files; calls `keep` with verified files.

    A file that is wrong after it was resumed is fetched once more as a whole.  `sources` are those
    of the recipe by id.  Raises HostError if a mirror is too slow, and what `transport` raises and
    explains.
    """
    right, wanted = sorted_out(transport, downloads)
    keep_right(transport, right, keep)
    resumed = {each.path for each in wanted if each.path.exists()}
    whole = sum(each.package.size for each in wanted)
    left = whole - sum(path.stat().st_size for path in resumed)
    what = f"Fetching {format_count(len(downloads), 'package')}"
    with watched(folder, left, what, progress, patience, whole=whole) as pace:
        errors, wrong = attempt(transport, wanted, pace, keep, sources)
        if retried := [each for each in wrong if each.path in resumed and not each.path.exists()]:
            more, still = attempt(transport, retried, pace, keep, sources)
            errors = f"{errors}\n{more}"
            wrong = [each for each in wrong if each not in retried or each in still]
        check_sizes(wrong)
        if wrong:
            raise transport.explain(wrong, errors, sources.get(wrong[0].package.source))


def attempt(
    transport: PackageTransport,
    downloads: Sequence[Download],
    pace: Pace,
    keep: Keep,
    sources: Mapping[str, Source],
) -> tuple[str, list[Download]]:
    """Fetch once and keep what is right; returns the errors, and what is missing or wrong.

    A wrong file of the right length or longer is removed: it cannot be resumed.
    """
    slow: SlowError | None = None
    errors = ""
    try:
        errors = fetch_at_once(transport, downloads, pace)
    except SlowError as error:
        slow = error
    finally:
        right, wrong = sorted_out(transport, downloads)
        keep_right(transport, right, keep)
        pace.moved(sum(each.package.size for each in right))
    if slow and wrong:
        source = sources.get(wrong[0].package.source)
        raise HostError(
            f"the mirror sent {pace.patience}: gave up on {names_of(wrong)}",
            where=f"source {wrong[0].package.source}",
            hint=f"run the command again to resume the download; or {transport.unreached(source)}",
        ) from slow
    return errors, wrong


def fetch_at_once(transport: PackageTransport, downloads: Sequence[Download], pace: Pace) -> str:
    """Fetch AT_ONCE shares at a time; returns the errors.  Raises SlowError."""
    shares = [share for share in balanced(downloads, AT_ONCE) if share]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        try:
            running: list[Future[str]] = [
                threads.submit(transport.fetch, share, pace) for share in shares
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


def keep_right(transport: PackageTransport, downloads: Sequence[Download], keep: Keep) -> None:
    """Keep files that have the locked content, if they may be trusted."""
    transport.verify(downloads)
    keep([(each.path, each.package) for each in downloads])


def sorted_out(
    transport: PackageTransport, downloads: Sequence[Download]
) -> tuple[list[Download], list[Download]]:
    """Downloads whose file is right, and the others; files that cannot be resumed are removed."""
    right: list[Download] = []
    wrong: list[Download] = []
    for download in downloads:
        path, package = download.path, download.package
        transport.tidy(path)
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
                hint="no package manager installs such a package: tell the owner of the archive, "
                "or pin another version and lock again",
            )


def uri_of(package: LockedPackage, archives: Mapping[str, str], safe: str) -> str:
    """The address of a package; `archives` are addresses by source, `safe` stays unquoted.

    Raises WorkError if its source is not in the recipe.
    """
    if package.source not in archives:
        raise WorkError(
            f"the lock takes {package.nevra} from source {package.source}, but the recipe defines "
            "no such source",
            hint="run imagebuilder lock PROFILE",
        )
    return f"{archives[package.source]}/{quote(package.path, safe=safe)}"


def names_of(wrong: Sequence[Download]) -> str:
    return list_first((each.package.nevra for each in wrong), 1)


@dataclass(frozen=True)
class Trouble:
    """What an attempt to fetch `wrong`, of which the first is of `source`, has shown.

    `words` are what the program said about the first, each line after a line end.
    """

    wrong: Sequence[Download]
    source: Source | None
    words: str

    @property
    def first(self) -> Download:
        return self.wrong[0]

    @property
    def name(self) -> str:
        return names_of(self.wrong)

    @property
    def where(self) -> str:
        return f"source {self.first.package.source}"

    def full(self) -> FullError:
        return FullError(f"no space left for {self.name}{self.words}", where=self.where)

    def broken(self) -> WorkError:
        return WorkError(
            f"the mirror closed the connection while sending {self.name} "
            f"({self.first.package.size} bytes){self.words}",
            where=self.where,
            hint="try again: complete files were kept",
        )

    def unreached(self, hint: str) -> HostError:
        vendor = vendor_of(self.source)
        who = f"{self.name}: not in the pool, and the vendor" if vendor else "mirror"
        what = f"{who} is not reachable: {self.first.uri}{self.words}"
        return HostError(what, where=self.where, hint=hint)

    def gone(self) -> WorkError:
        return WorkError(
            f"the mirror no longer has {self.name}{self.words}",
            where=self.where,
            hint="run imagebuilder lock PROFILE to lock what it has now",
        )

    def changed(self) -> WorkError:
        package = self.first.package
        return WorkError(
            f"{self.name}: expected sha256 {package.sha256} ({package.size} bytes), "
            f"the mirror sent something else{self.words}",
            where=self.where,
            hint="a proxy or the mirror is broken; the file was not kept",
        )
