# SPDX-License-Identifier: Apache-2.0
"""Fetch repomd.xml of repositories, and verify who signed it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.digest import digest_of, digest_of_bytes
from imagebuilder.errors import WorkError
from imagebuilder.families.freshness import day_of
from imagebuilder.families.protocol import Tell
from imagebuilder.families.rpm.curl import Transfer, TransferFault, fetch_files
from imagebuilder.families.rpm.faults import place_of, slow_error, untrusted, update_error
from imagebuilder.families.rpm.keys import load_certificates, signature_problem
from imagebuilder.families.rpm.mirrors import shown
from imagebuilder.families.rpm.repomd import MOST, Repomd, parse_repomd
from imagebuilder.families.rpm.repository import Repository
from imagebuilder.files import place_file, read_plain, scratch
from imagebuilder.lock.patience import Patience, SlowError, paced

NAME = "repodata/repomd.xml"
SIGNATURE = f"{NAME}.asc"
# Folders of the cache, with a file for each repository.
SIGNED, LAST = "signed", "repomds"
ENOUGH = 2  # attempts: a mirror may be updated between the file and its signature


@dataclass(frozen=True)
class Requested:
    """A repository, where its files are fetched to, and the certificates that may sign it."""

    repository: Repository
    repomd: Path
    signature: Path
    keyring: Path
    key: str

    @property
    def marker(self) -> str:
        """The name under which it is remembered that somebody signs this repository."""
        return digest_of([shown(self.repository), self.key])


def read_repomds(
    repositories: Sequence[Repository], home: Path, progress: Tell, patience: Patience
) -> tuple[Repomd, ...]:
    """The repomd.xml of each repository, verified with its source's key if it is signed.

    A repository without a signature is reported, unless it had one before: then somebody may have
    removed it to offer an old state.  Raises HostError if a mirror is not reachable or too slow,
    InputError if it lacks a repository and as load_certificates(), WorkError for an invalid
    signature and for what cannot be read.
    """
    with scratch(home, "repomd-") as folder:
        requests = make_requests(repositories, folder)
        unsigned = fetch_signed(requests, folder, patience)
        check_unsigned(requests, unsigned, home / SIGNED, progress)
        found = []
        for each in requests:
            content = read_plain(each.repomd, MOST)
            signed = each.signature not in unsigned
            repomd = parse_repomd(content, each.repository, signed=signed)
            tell_older(repomd, home / LAST / each.marker, progress)
            keep(home / LAST, each.marker, content)
            found.append(repomd)
        return tuple(found)


def tell_older(repomd: Repomd, last: Path, progress: Tell) -> None:
    """Report a repository that is older than when it was read last: the profile may have no lock
    yet that would notice.
    """
    name = repomd.repository.name
    with contextlib.suppress(FileNotFoundError, WorkError):
        before = parse_repomd(read_plain(last, MOST), repomd.repository, signed=repomd.signed)
        if repomd.date < before.date:
            progress(
                f"note: {name} is of {day_of(repomd.date)}, but it was of {day_of(before.date)} "
                "when it was read last: the mirror lags behind, or somebody replays an old state"
            )


def keep(folder: Path, name: str, content: bytes) -> None:
    place_file(folder / name, content, 0o600)
    os.utime(folder / name)


def last_repomds(repositories: Sequence[Repository], home: Path) -> tuple[Repomd, ...] | None:
    """What read_repomds() returned last for each repository; None if one was never read."""
    with scratch(home, "repomd-") as folder:
        requests = make_requests(repositories, folder)
    paths = {each.repository: home / LAST / each.marker for each in requests}
    if not all(path.exists() for path in paths.values()):
        return None
    return tuple(
        parse_repomd(read_plain(path, MOST), each, signed=(home / SIGNED / path.name).exists())
        for each, path in paths.items()
    )


def make_requests(repositories: Sequence[Repository], folder: Path) -> list[Requested]:
    keys: dict[str, bytes] = {}
    requests = []
    for number, repository in enumerate(repositories):
        name = repository.source.id
        if name not in keys:
            keys[name] = load_certificates(repository.source)
        key = digest_of_bytes(keys[name])
        keyring = folder / f"{key}.gpg"
        keyring.write_bytes(keys[name])
        repomd, signature = folder / f"{number}.xml", folder / f"{number}.asc"
        requests.append(Requested(repository, repomd, signature, keyring, key))
    return requests


def fetch_signed(
    requests: Sequence[Requested], folder: Path, patience: Patience
) -> frozenset[Path]:
    """Fetch the files of `requests` and verify them; the signatures that do not exist."""
    wanted, missing = list(requests), set()
    for attempt in range(1, ENOUGH + 1):
        absent = fetch_pairs(wanted, folder, patience)
        missing |= absent
        problems = {
            each.repository: problem
            for each in wanted
            if each.signature not in absent
            and (problem := signature_problem(each.repomd, each.signature, each.keyring))
        }
        if not problems:
            break
        if attempt == ENOUGH:
            raise WorkError.of(untrusted(*each) for each in problems.items())
        wanted = [each for each in wanted if each.repository in problems]
    return frozenset(missing)


def fetch_pairs(requests: Sequence[Requested], folder: Path, patience: Patience) -> set[Path]:
    """Fetch each repomd.xml and its signature; the signatures that do not exist."""
    files = {
        path: (each.repository, name)
        for each in requests
        for path, name in ((each.repomd, NAME), (each.signature, SIGNATURE))
    }
    transfers = [
        Transfer(f"{repository.uri}/{name}", path, MOST)
        for path, (repository, name) in files.items()
    ]
    try:
        with paced(folder, patience, total=MOST * len(files)) as pace:
            faults = fetch_files(transfers, pace.ask)
    except SlowError as error:
        raise slow_error([each.repository for each in requests], patience) from error
    absent = {each.signature for each in requests if is_absent(faults, each)}
    others = [(*files[path], fault) for path, fault in faults.items() if path not in absent]
    if others:
        raise update_error(others, folder)
    return absent


def is_absent(faults: Mapping[Path, TransferFault], request: Requested) -> bool:
    """Whether the mirror has repomd.xml, and answers that it has no signature of it."""
    fault = faults.get(request.signature)
    return fault is not None and fault.is_gone


def check_unsigned(
    requests: Sequence[Requested], unsigned: frozenset[Path], folder: Path, progress: Tell
) -> None:
    """Report repositories that nobody signs.  Raises WorkError for one that was signed before."""
    for each in requests:
        marker, name = folder / each.marker, each.repository.name
        if each.signature not in unsigned:
            place_file(marker, f"{shown(each.repository)}\n".encode(), 0o600)
        elif marker.exists():
            raise WorkError(
                f"repomd.xml of {name} has no signature any more, but it had one",
                where=place_of(each.repository),
                hint="somebody may have removed it to offer old packages: use another mirror; if "
                f"the owner of the repository no longer signs it, remove {marker}",
            )
        else:
            progress(
                f"note: {name} does not sign its index, so its mirror chooses what it offers; the "
                "signature of every package is verified"
            )
