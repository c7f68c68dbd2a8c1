# SPDX-License-Identifier: Apache-2.0
"""The files that differ, so that a person can read them: those of changed packages in a line each.

A package of another version has hundreds of other files, and its version says it all.  What is left
is told one by one: files of no package, and those that differ although their package is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from imagebuilder.digest import Json
from imagebuilder.image.diff import format_growth
from imagebuilder.image.files import Change, CommittedRoot, File, compare_roots, tell
from imagebuilder.ui import table

MOST = 200  # single files that people are shown; --json has all


@dataclass(frozen=True)
class PackageChanges:
    """What differs in the files of a package: how many, and bytes more."""

    package: str
    added: int
    removed: int
    changed: int
    growth: int

    def render(self) -> str:
        counts = {"changed": self.changed, "added": self.added, "removed": self.removed}
        return ", ".join(f"{count} {how}" for how, count in counts.items() if count)


@dataclass(frozen=True)
class FileDiff:
    """All that differs: in numbers, by package, and one by one with how it differs, in words."""

    total: PackageChanges
    groups: tuple[PackageChanges, ...]
    singles: tuple[tuple[Change, str], ...]


def diff_files(
    old: CommittedRoot, new: CommittedRoot, packages: Iterable[str], *, glob: str = ""
) -> FileDiff:
    """Compare two roots.

    `packages` are the names, as `name:architecture`, of packages whose versions differ.  With
    `glob` (fnmatch; `*` also stands for slashes) only fitting paths count, and each is told.
    """
    changes = [c for c in compare_roots(old, new) if not glob or fnmatchcase(c.path, glob)]
    wanted = {name.partition(":")[0] for name in packages} if not glob else set()
    grouped: dict[str, list[Change]] = {}
    singles: list[tuple[Change, str]] = []
    for change in changes:
        if change.package in wanted:
            grouped.setdefault(change.package, []).append(change)
        else:
            singles.append((change, tell(change, old, new)))
    groups = tuple(count(name, grouped[name]) for name in sorted(grouped))
    return FileDiff(count("", changes), groups, tuple(singles))


def count(package: str, changes: Sequence[Change]) -> PackageChanges:
    hows = [change.how for change in changes]
    return PackageChanges(
        package,
        added=hows.count("added"),
        removed=hows.count("removed"),
        changed=hows.count("changed"),
        growth=sum(change.growth for change in changes),
    )


def render_files(found: FileDiff) -> str:
    if not (said := found.total.render()):
        return "files: the same"
    lines = [f"files: {said}"]
    if found.total.growth:
        lines[0] += f" ({format_growth(found.total.growth)})"
    if found.groups:
        rows = [(g.package, g.render(), format_growth(g.growth)) for g in found.groups]
        lines.append(table(rows, ("files of", "", "size")))
    shown = found.singles[:MOST]
    rows = [(change.how, path_of(change), told) for change, told in shown]
    lines += [table(rows)] if rows else []
    if len(found.singles) > MOST:
        lines.append(f"{len(found.singles) - MOST} more; --path GLOB picks some, --json has all")
    return "\n".join(lines)


def path_of(change: Change) -> str:
    """A path for people, with whose it is; no control character gets to the terminal."""
    path = "".join(c if c.isprintable() else "?" for c in change.path)
    return f"{path} (of {change.package})" if change.package else path


def files_json(found: FileDiff) -> Mapping[str, Json]:
    return {
        **group_json(found.total),
        "packages": [{"name": g.package, **group_json(g)} for g in found.groups],
        "files": [
            {
                "path": change.path,
                "how": change.how,
                "told": told,
                "package": change.package or None,
                "old": file_json(change.old),
                "new": file_json(change.new),
            }
            for change, told in found.singles
        ],
    }


def group_json(group: PackageChanges) -> dict[str, Json]:
    return {
        "added": group.added,
        "removed": group.removed,
        "changed": group.changed,
        "grown": group.growth,
    }


def file_json(file: File | None) -> Json:
    if file is None:
        return None
    return {
        "kind": file.kind,
        "mode": file.mode,
        "owner": file.owner,
        "size": file.size,
        "checksum": file.sum,
        "target": file.target or None,
    }
