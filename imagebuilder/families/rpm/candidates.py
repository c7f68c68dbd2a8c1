# SPDX-License-Identifier: Apache-2.0
"""The packages of all repositories, in libsolv's memory."""

from __future__ import annotations

import posixpath
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeAlias, cast

import solv

from imagebuilder.errors import WorkError
from imagebuilder.families.rpm.repository import ARCHITECTURES, Index
from imagebuilder.families.rpm.stored import FAULTS, unpacked
from imagebuilder.files import is_disk_full
from imagebuilder.lock.types import LockedPackage
from imagebuilder.recipe.types import Source
from imagebuilder.space import no_space

# libsolv's objects have no types; these are their names in its bindings.
Solvable: TypeAlias = solv.XSolvable
# What a source without pins has.
USUAL_PRIORITY = 500
NOARCH = "noarch"
USUAL_PINS = (("*",), USUAL_PRIORITY, "")
# Bytes.  The largest packages have 4 GiB; for curl(1) a limit of 0 is none.
MOST_PACKAGE, MOST_INSTALLED = 64 << 30, 1 << 40
SAFE = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_+.:~^-]*")


@dataclass
class Candidates:
    """All packages that may be chosen; `indexes` are in the order of the repositories.

    File lists take longer to read than all else and are seldom needed: read_files() adds them.
    """

    pool: solv.Pool
    architectures: tuple[str, ...]
    indexes: Mapping[int, Index]
    with_files: bool = False

    @property
    def every(self) -> Iterator[Solvable]:
        return cast("Iterator[Solvable]", iter(self.pool.solvables))

    def index_of(self, solvable: Solvable) -> Index:
        return self.indexes[solvable.repo.id]

    def source_of(self, solvable: Solvable) -> Source:
        return self.index_of(solvable).repository.source

    def show_only(self, chosen: Iterable[Solvable]) -> None:
        """Hide all other packages from the solver."""
        self.pool.set_considered_list([solvable.id for solvable in chosen])
        self.pool.createwhatprovides()

    def read_files(self) -> None:
        """Add the file lists, for dependencies on files that are not in primary.xml."""
        for repo in self.pool.repos:
            if path := self.indexes[repo.id].filelists:
                add_index(repo, self.indexes[repo.id], path, "FL")
        self.with_files = True
        self.prepare()

    def prepare(self) -> None:
        self.pool.addfileprovides()
        self.pool.createwhatprovides()


def read_candidates(indexes: Sequence[Index], architecture: str) -> Candidates:
    """The packages in `indexes`.  Raises WorkError for an index that cannot be read."""
    native = ARCHITECTURES[architecture]
    pool = solv.Pool()
    pool.setdisttype(solv.Pool.DISTTYPE_RPM)
    pool.setarch(native)
    repos = {}
    for index in indexes:
        repo = pool.add_repo(index.repository.name)
        repos[repo.id] = index
        # Of packages of different names that provide the same, that of the better source counts.
        names, priority, version = pins_of(index.repository.source)
        repo.priority = USUAL_PRIORITY if version or names != USUAL_PINS[0] else priority
        add_index(repo, index, index.primary, "")
    candidates = Candidates(pool, (native, NOARCH), repos)
    candidates.prepare()
    return candidates


def add_index(repo: solv.Repo, index: Index, path: Path, language: str) -> None:
    """Read an index into libsolv, which does not know every compression.

    Raises WorkError for one that cannot be read, and FullError.
    """
    flags = solv.Repo.REPO_EXTEND_SOLVABLES if language else 0
    try:
        with tempfile.NamedTemporaryFile(suffix=".xml") as plain:
            for piece in unpacked(path):
                plain.write(piece)
            plain.flush()
            stream = solv.xfopen(plain.name)
            if not repo.add_rpmmd(stream, language or None, flags):
                raise broken(index, path, repo.pool.errstr)
            stream.close()
    except FAULTS as error:
        if isinstance(error, OSError) and is_disk_full(error):
            raise no_space(index.primary.parent) from error
        raise broken(index, path, str(error)) from error


def broken(index: Index, path: Path, why: str) -> WorkError:
    return WorkError(
        f"the index {path.name} cannot be read: {why}",
        where=f"source {index.repository.source.id}",
        hint="the repository is broken: use another mirror, or ask its owner",
    )


def prefer(
    candidates: Candidates, is_visible: Callable[[Solvable], bool], kept: Collection[LockedPackage]
) -> list[Solvable]:
    """The packages that the solver may choose: of each name only those with the highest priority.

    Versions in `kept` come before any priority, if a repository still has them.  A priority below
    zero hides a package.
    """
    locked = {(package.name, package.version, package.architecture) for package in kept}
    sources = [index.repository.source for index in candidates.indexes.values()]
    pinned = any(pins_of(source) != USUAL_PINS for source in sources)
    best: dict[str, tuple[tuple[bool, int], list[Solvable]]] = {}
    for solvable in candidates.every:
        if solvable.arch not in candidates.architectures or not is_visible(solvable):
            continue
        name = solvable.name
        priority = priority_of(candidates, sources, solvable) if pinned else USUAL_PRIORITY
        rank = ((name, version_of(solvable), solvable.arch) in locked, priority)
        if priority < 0 or rank < best.get(name, (rank, []))[0]:
            continue
        if name not in best or rank > best[name][0]:
            best[name] = (rank, [])
        best[name][1].append(solvable)
    return [solvable for _, ranked in best.values() for solvable in ranked]


def pins_of(source: Source) -> tuple[tuple[str, ...], int, str]:
    return source.pin_packages, source.pin_priority, source.pin_version


def priority_of(candidates: Candidates, sources: Iterable[Source], solvable: Solvable) -> int:
    """A package's priority: by the version that any source pins, else by its own source."""
    naming = [
        source
        for source in sources
        if any(fnmatchcase(solvable.name, glob) for glob in source.pin_packages)
    ]
    for source in naming:
        if source.pin_version and is_version(solvable, source.pin_version):
            return source.pin_priority
    own = candidates.source_of(solvable)
    return own.pin_priority if own in naming and not own.pin_version else USUAL_PRIORITY


def version_of(solvable: Solvable) -> str:
    """EPOCH:VERSION-RELEASE; without an epoch of 0, as rpm(8) shows it."""
    return cast("str", solvable.evr).removeprefix("0:")


def provided_by(solvable: Solvable) -> list[str]:
    """The names of what a package provides, without their versions."""
    return [
        str(each).partition(" ")[0] for each in solvable.lookup_deparray(solv.SOLVABLE_PROVIDES)
    ]


def is_version(solvable: Solvable, wanted: str) -> bool:
    """Whether a package has a version: with or without its epoch and its release; `*` is a glob."""
    return is_written(version_of(solvable), wanted)


def provides_version(solvable: Solvable, name: str, wanted: str) -> bool:
    """Whether a package provides `name` in a version."""
    provides = (str(each).split(" ") for each in solvable.lookup_deparray(solv.SOLVABLE_PROVIDES))
    return any(
        words[:2] == [name, "="] and is_written(words[2].removeprefix("0:"), wanted)
        for words in provides
    )


def is_written(whole: str, wanted: str) -> bool:
    _, _, short = whole.rpartition(":")
    forms = (whole, short, whole.rpartition("-")[0], short.rpartition("-")[0])
    return any(fnmatchcase(form, wanted) for form in forms)


def locked_package(candidates: Candidates, solvable: Solvable) -> LockedPackage:
    """What the lock says of a package.  Raises WorkError if its record is malformed."""
    repository = candidates.index_of(solvable).repository
    if not all(map(SAFE.fullmatch, (solvable.name, solvable.evr))):
        raise malformed(solvable, repository.source, "has a name or a version that none has")
    checksum = solvable.lookup_checksum(solv.SOLVABLE_CHECKSUM)
    location = (solvable.lookup_location() or ("",))[0]
    if solvable.lookup_str(solv.SOLVABLE_MEDIABASE) or not is_below(location):
        raise malformed(solvable, repository.source, f"is not in its repository: {location!r}")
    if checksum is None or checksum.typestr() != "sha256":
        raise malformed(solvable, repository.source, "has no SHA256 in its index")
    sizes = [
        solvable.lookup_num(tag) for tag in (solv.SOLVABLE_DOWNLOADSIZE, solv.SOLVABLE_INSTALLSIZE)
    ]
    if not 0 < sizes[0] <= MOST_PACKAGE or sizes[1] > MOST_INSTALLED:
        raise malformed(solvable, repository.source, "has a size that none has")
    return LockedPackage(
        name=solvable.name,
        version=version_of(solvable),
        architecture=solvable.arch,
        sha256=checksum.hex(),
        size=sizes[0],
        path=f"{repository.path}/{location}".lstrip("/"),
        source=repository.source.id,
        installed=sizes[1],
    )


def is_below(location: str) -> bool:
    """Whether a location leads to an RPM below its repository."""
    return (
        location.endswith(".rpm")
        and location.isprintable()
        and not location.startswith("/")
        and posixpath.normpath(location) == location
        and not location.startswith("../")
        and ":" not in location.partition("/")[0]
    )


def malformed(solvable: Solvable, source: Source, what: str) -> WorkError:
    return WorkError(
        f"the package {str(solvable)!r} {what}",
        where=f"source {source.id}",
        hint="the repository cannot be locked: use another mirror, or ask its owner",
    )
