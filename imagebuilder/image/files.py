# SPDX-License-Identifier: Apache-2.0
"""What differs between the files of two roots, told from their commits: nothing is checked out.

ostree ls -R -C     every name with mode, owner, size and checksum
objects/            contents: in a bare repository each is a plain file
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.digest import digest_of_file
from imagebuilder.errors import WorkError
from imagebuilder.families.protocol import Family
from imagebuilder.files import read_plain
from imagebuilder.root import follow_links
from imagebuilder.store.repository import Store
from imagebuilder.ui import format_size
from imagebuilder.untrusted import fit

LINE = re.compile(r"(.)0?(\d{4}) (\d+) (\d+) +(\d+) ([0-9a-f]{64})(?: ([0-9a-f]{64}))? (/.*)")
COMPILED = re.compile(r"(.*)/__pycache__/([^/]+)\.cpython-[^/]+\.pyc")
KINDS = {"-": "file", "d": "folder", "l": "link"}
MOST_TEXT = 64 * 1024  # bytes of a file whose lines are compared


@dataclass(frozen=True)
class File:
    """Something in a root: `kind` is -, d or l, `mode` octal, `size` in bytes, `target` a link's.

    `sum` covers content, owner, mode and attributes; of a folder only the latter three.
    """

    kind: str
    mode: str
    owner: str
    size: int
    sum: str
    target: str = ""


@dataclass(frozen=True)
class CommittedRoot:
    """A root: the repository that has it, what made it, and everything in it by path."""

    repo: Store
    family: Family
    files: Mapping[str, File]

    def place(self, file: File) -> Path:
        """Where the content of a regular file lies."""
        return self.repo.path / "objects" / file.sum[:2] / f"{file.sum[2:]}.file"

    def names(self, folder: str) -> list[str]:
        """As Root.names()."""
        top = f"{self.resolve(folder)}/"
        below = (path.removeprefix(top) for path in self.files if path.startswith(top))
        return sorted(name for name in below if "/" not in name)

    def host(self, name: str) -> Path | None:
        """As Root.host(), of a regular file."""
        file = self.files.get(self.resolve(name) or "")
        return self.place(file) if file and file.kind == "-" else None

    def resolve(self, name: str) -> str | None:
        """As Root.resolve()."""
        return follow_links(name, self.link_at)

    def link_at(self, name: str) -> str | None:
        """As Root.link_at()."""
        file = self.files.get(name)
        return file.target if file else None


@dataclass(frozen=True)
class Change:
    """A path that differs; None is the side that lacks it.  `package` is whose it is, if known."""

    path: str
    old: File | None
    new: File | None
    package: str

    @property
    def how(self) -> str:
        if self.old is None or self.new is None:
            return "added" if self.old is None else "removed"
        return "changed"

    @property
    def growth(self) -> int:
        """Bytes more."""
        return size_of(self.new) - size_of(self.old)


def size_of(file: File | None) -> int:
    """Bytes of a regular file; 0 of anything else."""
    return file.size if file and file.kind == "-" else 0


def read_root(repo: Store, commit: str, family: Family) -> CommittedRoot:
    """Everything in the root `commit`.  Raises WorkError."""
    listing = repo.ostree("ls", "-R", "-C", commit, "/")
    return CommittedRoot(repo, family, only_once(parse_listing(listing)))


def only_once(listed: Iterable[tuple[str, File]]) -> dict[str, File]:
    """What is listed, by path.  Raises WorkError for a path that is listed twice.

    ostree prints names and links as they are: one with a line end in it can look like another line,
    and would hide what is there.
    """
    found: dict[str, File] = {}
    for path, file in listed:
        if path in found:
            raise WorkError(
                "cannot be compared: the root has another name or link that imitates it",
                where=fit(path),
                hint="look for names with newlines (imagebuilder shell): find / -name $'*\\n*'",
            )
        found[path] = file
    return found


def parse_listing(text: str) -> Iterator[tuple[str, File]]:
    """Paths and what is there, from the output of ostree ls."""
    for line in text.split("\n"):
        if not (match := LINE.fullmatch(line)):
            continue  # the rest of a name with a line end in it
        kind, mode, owner, group, size, first, second, name = match.groups()
        path, _, target = name.partition(" -> ") if kind == "l" else (name, "", "")
        yield path, File(kind, mode, f"{owner}:{group}", int(size), second or first, target)


def compare_roots(old: CommittedRoot, new: CommittedRoot) -> list[Change]:
    """Every path that differs, sorted."""
    paths = sorted(
        path for path in {*old.files, *new.files} if old.files.get(path) != new.files.get(path)
    )
    if not paths:
        return []
    owners = {**old.family.shipped_files(old), **new.family.shipped_files(new)}
    return [
        Change(path, old.files.get(path), new.files.get(path), owner.package if owner else "")
        for path in paths
        for owner in (owners.get(original(path)),)
    ]


def original(path: str) -> str:
    """What a package ships for `path`: itself, or the source of Python's bytecode."""
    match = COMPILED.fullmatch(path)
    return f"{match[1]}/{match[2]}.py" if match else path.removesuffix("/__pycache__")


def tell(change: Change, old: CommittedRoot, new: CommittedRoot) -> str:
    """How a path differs, in words."""
    before, after = change.old, change.new
    if before is None or after is None:
        there = before or after
        assert there
        return describe(there)
    if before.kind != after.kind:
        return f"{describe(before)} -> {describe(after)}"
    told: list[str] = []
    if before.target != after.target:
        told.append(f"-> {after.target}, was {before.target}")
    if before.mode != after.mode:
        told.append(f"mode {before.mode} -> {after.mode}")
    if before.owner != after.owner:
        told.append(f"owner {before.owner} -> {after.owner}")
    if after.kind == "-" and (content := tell_content(old.place(before), new.place(after))):
        told.append(content)
    return ", ".join(told) or "attributes changed"


def describe(file: File) -> str:
    if file.kind == "l":
        return f"link -> {file.target}"
    size = f", {format_size(file.size)}" if file.kind == "-" else ""
    owner = "" if file.owner == "0:0" else f", owner {file.owner}"
    return f"{KINDS.get(file.kind, 'special file')}{size}, mode {file.mode}{owner}"


def tell_content(old: Path, new: Path) -> str:
    """How two contents differ: lines of small texts, else sizes; empty when they are the same.

    Raises OSError when the repository is damaged.
    """
    before, after = old.stat().st_size, new.stat().st_size
    if before == after and digest_of_file(old) == digest_of_file(new):
        return ""
    first, second = lines_of(old), lines_of(new)
    if first is None or second is None:
        sizes = f"{format_size(before)} -> {format_size(after)}"
        return f"content, {format_size(after)}" if before == after else f"content, {sizes}"
    told = [line[0] for line in difflib.unified_diff(first, second, n=0, lineterm="")][2:]
    return f"text, +{told.count('+')} -{told.count('-')} lines"


def lines_of(path: Path) -> list[str] | None:
    """The lines of a small text; None of anything else."""
    if path.stat().st_size > MOST_TEXT:
        return None
    content = read_plain(path)
    try:
        return None if b"\0" in content else content.decode().splitlines(keepends=True)
    except UnicodeDecodeError:
        return None
