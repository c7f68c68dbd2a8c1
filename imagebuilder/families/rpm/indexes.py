# SPDX-License-Identifier: Apache-2.0
"""The verified indexes of repositories, fetched once and kept by their hashes.

cache/rpm/
    lock         held while something here is changed
    indexes/     <hash>-primary.xml.gz, ...: what repomd.xml lists
    unfinished/  partial indexes, which the next fetch resumes
    repomds/     the last repomd.xml of each repository, by a digest of its address and key
    signed/      the repositories whose repomd.xml was signed, by the same digest
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from imagebuilder.digest import digest_of_bytes
from imagebuilder.errors import Fault, WorkError
from imagebuilder.families import freshness
from imagebuilder.families.protocol import Tell
from imagebuilder.families.rpm.curl import Transfer, fetch_files
from imagebuilder.families.rpm.faults import changing, slow_error, update_error
from imagebuilder.families.rpm.mirrors import join
from imagebuilder.families.rpm.repomd import FILELISTS, MODULES, PRIMARY, IndexRecord, Repomd
from imagebuilder.families.rpm.repomds import LAST, SIGNED, last_repomds, read_repomds
from imagebuilder.families.rpm.repository import Index, Repository
from imagebuilder.families.rpm.stored import index_problem, is_stored
from imagebuilder.files import keep_file
from imagebuilder.lock.difference import digest_of_source
from imagebuilder.lock.patience import PATIENCE, Patience, SlowError, paced
from imagebuilder.lock.storage import make_users_folder, storing
from imagebuilder.lock.types import Lock, LockedSource
from imagebuilder.locks import file_lock
from imagebuilder.recipe.types import Source

NOUN = "index"
# Folders of the cache, and those whose files are removed when nobody uses them.
SWEPT = ("indexes", "unfinished", LAST)
FOLDERS = (*SWEPT, SIGNED)
# An index that no lock and no look-up has used for so long is that of a repository that changed.
KEEP_DAYS = 14
DAY = 86400


def load_indexes(
    repositories: Sequence[Repository],
    cache: Path,
    progress: Tell,
    patience: Patience = PATIENCE,
) -> tuple[Index, ...]:
    """The verified indexes of each repository, in their order, as files of the cache.

    The files stay for KEEP_DAYS after their last use.  Raises HostError if a mirror is not
    reachable or too slow or the disk is full, InputError for a suite or component that a mirror
    lacks and for a key that the recipe does not pin, WorkError for an invalid signature and for a
    mirror that changes meanwhile.
    """
    with in_use(cache) as home:
        repomds = read_repomds(repositories, home, progress, patience)
        tell(repomds, progress)
        fetch_missing(repomds, home, patience)
        sweep(home)
        return tuple(index_of(repomd, home / "indexes") for repomd in repomds)


def last_indexes(
    repositories: Sequence[Repository], cache: Path, progress: Tell
) -> tuple[Index, ...]:
    """What load_indexes() returned last, without a network; loads what it never did."""
    with in_use(cache) as home:
        folder, repomds = home / "indexes", last_repomds(repositories, home)
        if repomds and all(
            (folder / record.file_name).exists()
            for repomd in repomds
            for record in repomd.records.values()
        ):
            return tuple(index_of(repomd, folder) for repomd in repomds)
    return load_indexes(repositories, cache, progress)


def read_sources(
    repositories: Sequence[Repository],
    cache: Path,
    progress: Tell,
    patience: Patience = PATIENCE,
) -> tuple[LockedSource, ...]:
    """Family.read_sources() from repomd.xml alone.  Raises as load_indexes()."""
    with in_use(cache) as home:
        repomds = read_repomds(repositories, home, progress, patience)
    tell(repomds, progress)
    return locked_sources(repomds)


@contextmanager
def in_use(cache: Path) -> Iterator[Path]:
    """The folder of indexes; no other process changes it meanwhile."""
    with storing(cache):
        home = make_users_folder(cache, "rpm")
        with file_lock(home / "lock"):
            for name in FOLDERS:
                (home / name).mkdir(exist_ok=True)
            yield home


def tell(repomds: Sequence[Repomd], progress: Tell) -> None:
    suites = suites_of(repomds)
    freshness.tell_places(suites, progress)
    freshness.tell_old(suites, int(time.time()), progress)


def fetch_missing(repomds: Sequence[Repomd], home: Path, patience: Patience) -> None:
    """Fetch the indexes that are not in the cache, and verify them."""
    kept, unfinished = home / "indexes", home / "unfinished"
    wanted: dict[Path, tuple[Repository, IndexRecord]] = {}
    for repomd in repomds:
        for record in repomd.records.values():
            if is_stored(kept / record.file_name, record):
                os.utime(kept / record.file_name)
            else:
                wanted[unfinished / record.file_name] = (repomd.repository, record)
    resumed = {path for path in wanted if path.exists()}
    problems = fetch_indexes(wanted, kept, unfinished, patience)
    again = {path: wanted[path] for path in problems if path in resumed}
    if again:  # what was resumed may be wrong from its beginning
        problems = {path: what for path, what in problems.items() if path not in again}
        problems |= fetch_indexes(again, kept, unfinished, patience)
    if problems:
        raise WorkError.of(
            changing(wanted[path][0], wanted[path][1].href, what) for path, what in problems.items()
        )


def fetch_indexes(
    wanted: dict[Path, tuple[Repository, IndexRecord]],
    kept: Path,
    unfinished: Path,
    patience: Patience,
) -> dict[Path, str]:
    """Fetch indexes and keep the right ones; what is wrong with the others, which are removed."""
    transfers = [
        Transfer(join(repository.uri, record.href), path, record.size, resume=True)
        for path, (repository, record) in wanted.items()
        if not path.exists() or path.stat().st_size < record.size
    ]
    total = sum(record.size for _, record in wanted.values())
    try:
        with paced(unfinished, patience, total=total) as pace:
            faults = fetch_files(transfers, pace.ask)
    except SlowError as error:
        raise slow_error([repository for repository, _ in wanted.values()], patience) from error
    problems: dict[Path, str] = {}
    for path, (_, record) in wanted.items():
        if path in faults:
            continue
        if problem := index_problem(path, record):
            problems[path] = problem
        else:
            keep_file(path, kept / record.file_name)
    for path in problems:
        path.unlink(missing_ok=True)
    if faults:
        missing = [(*wanted[path], fault) for path, fault in faults.items()]
        raise update_error([(each, of.href, fault) for each, of, fault in missing], unfinished)
    return problems


def sweep(home: Path) -> None:
    """Remove what nobody has used for KEEP_DAYS."""
    limit = time.time() - KEEP_DAYS * DAY
    for folder in SWEPT:
        for path in (home / folder).iterdir():
            with contextlib.suppress(FileNotFoundError):
                if path.lstat().st_mtime < limit:
                    path.unlink()


def index_of(repomd: Repomd, folder: Path) -> Index:
    def file_of(kind: str) -> Path | None:
        record = repomd.records.get(kind)
        return folder / record.file_name if record else None

    return Index(
        repository=repomd.repository,
        date=repomd.date,
        repomd=repomd.repomd,
        signed=repomd.signed,
        primary=folder / repomd.records[PRIMARY].file_name,
        filelists=file_of(FILELISTS),
        modules=file_of(MODULES),
    )


@dataclass(frozen=True)
class SuiteState:
    """The indexes of one suite of a source together; it is as old as the oldest of them.

    `dates` go by component.
    """

    source: Source
    suite: str
    date: int
    sha256: str
    dates: Mapping[str, int]
    valid_until: int = 0


def suites_of(indexes: Iterable[Index | Repomd]) -> tuple[SuiteState, ...]:
    """The suites of `indexes`, in their order."""
    grouped: dict[tuple[str, str], list[Index | Repomd]] = {}
    for index in indexes:
        repository = index.repository
        grouped.setdefault((repository.source.id, repository.suite), []).append(index)
    return tuple(
        SuiteState(
            source=listed[0].repository.source,
            suite=suite,
            date=min(index.date for index in listed),
            sha256=digest_of_bytes(
                "".join(f"{each.repository.component} {each.repomd}\n" for each in listed).encode()
            ),
            dates={index.repository.component: index.date for index in listed},
        )
        for (_, suite), listed in grouped.items()
    )


def check_against_lock(indexes: Iterable[Index | Repomd], lock: Lock, *, allow_older: bool) -> None:
    """Raise WorkError for a component that is older than the one in `lock`, unless `allow_older`.

    A source that the recipe now takes from another address or snapshot is not compared.
    """

    def older_components(state: SuiteState, before: LockedSource) -> Iterator[Fault]:
        locked = dict(zip(before.components, before.dates, strict=False))
        for component, date in state.dates.items():
            name = f"{state.suite} {component}".strip()
            now = replace(state, suite=name, date=date)
            then = replace(before, date=locked.get(component, before.date))
            if not allow_older:
                yield from freshness.older(now, then, lock.profile, NOUN)

    freshness.check_against_lock(
        suites_of(indexes), lock, allow_older=True, noun=NOUN, changed=older_components
    )


def locked_sources(indexes: Iterable[Index | Repomd]) -> tuple[LockedSource, ...]:
    """What a lock records of each suite."""
    return tuple(locked_source(state) for state in suites_of(indexes))


def locked_source(state: SuiteState) -> LockedSource:
    source = state.source
    return LockedSource(
        id=source.id,
        suite=state.suite,
        components=source.components,
        date=state.date,
        valid_until=state.valid_until,
        release_sha256=state.sha256,
        origin=source.mirror or source.uri,
        asked=digest_of_source(source),
        snapshot=source.snapshot,
        instead=source.instead,
        dates=tuple(state.dates.values()),
    )
