# SPDX-License-Identifier: Apache-2.0
"""Verify a repository: its objects, and which files of which commits are damaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.fsck.objects import Finder, reachable, take_from
from imagebuilder.fsck.types import REPAIR, Damage
from imagebuilder.store.plain import COMMIT
from imagebuilder.store.verify import (
    MISSING,
    Name,
    find_damaged,
    objects_in,
    place_of,
)
from imagebuilder.ui import format_count

MOST_PATHS = 4
Holder = tuple[str, str]  # a name for messages, and a commit


@dataclass(frozen=True)
class Objects:
    count: int
    wrong: Mapping[Name, str]


def check_repository(repo: Path, commits: Sequence[str], most: int | None = None) -> Objects:
    """Read every object, and check that all objects of `commits` exist.

    Files beyond `most` bytes of them all are damaged.
    """
    names = objects_in(repo)
    wrong = find_damaged(repo, names, most)
    missing = reachable(repo, commits) - set(names)
    return Objects(len(names), wrong | dict.fromkeys(sorted(missing), MISSING))


def describe(
    repo: Path, wrong: Mapping[Name, str], holders: Sequence[Holder], hint: str = REPAIR
) -> dict[Name, Damage]:
    found: dict[Name, dict[str, list[str]]] = {name: {} for name in wrong}
    finder = Finder(repo, wrong)
    for label, commit in holders if wrong else ():
        for path, name in finder.find(commit):
            labels = found[name].setdefault(path, [])
            if label not in labels:
                labels.append(label)
    return {
        name: Damage(
            f"object {name[0]}.{name[1]}",
            how,
            str(place_of(repo, name)),
            tuple(tell(found[name], name)),
            hint,
        )
        for name, how in wrong.items()
    }


def tell(paths: Mapping[str, Sequence[str]], name: Name) -> list[str]:
    if not paths:
        return ["nothing needs it"]
    lines = [
        f"{path or 'the commit'} of {', '.join(labels)}"
        for path, labels in list(paths.items())[:MOST_PATHS]
    ]
    more = len(paths) - MOST_PATHS
    if more > 0:
        lines.append(f"and {format_count(more, 'more path')}")
    return lines if name[1] != COMMIT else lines[:1]


def take_all(repo: Path, damage: dict[Name, Damage], donors: Sequence[Path]) -> dict[Name, Damage]:
    """Replace damaged objects with valid ones from another repository; returns all damage."""
    done = dict(damage)
    for name, each in damage.items():
        for donor in donors:
            if (donor / "objects").is_dir() and take_from(donor, repo, name):
                done[name] = each.fixed(f"taken from {donor}")
                break
    return done


def left(damage: Mapping[Name, Damage]) -> dict[Name, str]:
    return {name: each.how for name, each in damage.items() if not each.repaired}
