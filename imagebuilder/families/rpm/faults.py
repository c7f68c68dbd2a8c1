# SPDX-License-Identifier: Apache-2.0
"""What it means that an index could not be fetched, or is not what repomd.xml says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from imagebuilder.errors import (
    Fault,
    FullError,
    HostError,
    ImagebuilderError,
    InputError,
    WorkError,
)
from imagebuilder.families.hints import distrusted, unreached, vendor_of
from imagebuilder.families.rpm.curl import TransferFault
from imagebuilder.families.rpm.mirrors import shown
from imagebuilder.families.rpm.repository import Repository
from imagebuilder.lock.patience import Patience
from imagebuilder.ui import format_count

CHANGING = "the mirror is being updated, or a proxy caches old files: try again in a few minutes"


def place_of(repository: Repository) -> str:
    return f"source {repository.source.id}"


def update_error(
    faults: Sequence[tuple[Repository, str, TransferFault]], folder: Path
) -> ImagebuilderError:
    """The error for files of repositories that did not arrive: (repository, name, fault) of each.

    A full disk comes first, then mirrors that are not reachable: they may explain the rest.
    """
    if full := [fault for _, _, fault in faults if fault.is_full]:
        return FullError(f"no space left for the package lists\n    {full[0]}", where=f"{folder}")
    away = [each for each in faults if not each[2].is_gone and not each[2].is_too_large]
    if away:
        alike: dict[tuple[str, str], list[tuple[Repository, str, TransferFault]]] = {}
        for each in away:
            alike.setdefault((each[0].source.id, f"{each[2]}"), []).append(each)
        return HostError.of(unreachable(*same[0], len(same) - 1) for same in alike.values())
    lacking = [each for each in faults if each[2].is_gone and each[1].endswith("repomd.xml")]
    if lacking:
        return InputError.of(no_suite(*each) for each in lacking)
    return WorkError.of(changing(*each) for each in faults)


def unreachable(repository: Repository, name: str, fault: TransferFault, more: int) -> Fault:
    """The fault of a file, and of so many `more` of the same source for the same reason."""
    who = "the vendor" if vendor_of(repository.source) else "mirror"
    others = f" and {format_count(more, 'more file')}" if more else ""
    return Fault(
        place_of(repository),
        f"{who} is not reachable: {shown(repository)}/{name}{others}\n    {fault}",
        unreached(repository.source),
    )


def no_suite(repository: Repository, name: str, fault: TransferFault) -> Fault:
    component = f" or its component {repository.component}" if repository.component else ""
    return Fault(
        place_of(repository),
        f"the mirror does not have suite {repository.suite}{component}: "
        f"{shown(repository)}/{name}\n    {fault}",
        "compare the suites and components of the source with the folders of the mirror; a "
        "repository has a folder repodata/",
    )


def changing(repository: Repository, name: str, fault: TransferFault | str) -> Fault:
    return Fault(
        place_of(repository),
        f"the mirror's package lists do not match its repomd.xml: {shown(repository)}/{name}"
        f"\n    {fault}",
        CHANGING,
    )


def untrusted(repository: Repository, problem: str) -> Fault:
    return Fault(
        place_of(repository),
        f"the signature of repomd.xml of {repository.name} is invalid: {problem}",
        distrusted(repository.source),
    )


def slow_error(repositories: Sequence[Repository], patience: Patience) -> HostError:
    names = ", ".join(dict.fromkeys(repository.source.id for repository in repositories))
    return HostError(
        f"the package lists arrived at {patience}: gave up updating them",
        where=f"sources {names}",
        hint=unreached(None),
    )
