# SPDX-License-Identifier: Apache-2.0
"""A root filesystem that is read from outside: symlinks lead where they lead inside it.

The tree is somebody's: `/etc/x -> /etc/shadow` must not show us the host's.  Paths here are texts,
absolute in the root; only `host()` gives the path out here, of a file that is no symlink.
"""

from __future__ import annotations

import fnmatch
import mmap
import os
import posixpath
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from imagebuilder.errors import WorkError
from imagebuilder.limited import map_limited, read_limited
from imagebuilder.untrusted import fit

# As the kernel (path_resolution(7)).
MOST_LINKS = 40
MOST_MATCHES = 1 << 17
MOST_REMEMBERED = 1 << 17  # paths; a file of an image may name any number
VOID = re.compile(r"\s{512,}")


@dataclass(frozen=True)
class Root:
    """A root filesystem at `path`, which nobody changes meanwhile."""

    path: Path

    def resolve(self, name: str) -> str | None:
        """The path that `name` leads to with all symlinks followed inside the root.

        None when something is missing on the way or the links go in a circle.
        """
        return follow_links(name, self.link_at)

    def end_of(self, name: str) -> str:
        """Where the links of `name` end, even if nothing is there."""
        return follow_links(name, self.link_at, dangling=True) or name

    def link_at(self, name: str) -> str | None:
        """What the symlink `name` says, "" for what is none, None when nothing is there.

        Nothing has a name with a zero byte, or with half of a surrogate pair, which texts may have.
        """
        try:
            info = os.lstat(f"{self.path}{name}")
        except (OSError, ValueError):
            return None
        linked = stat.S_ISLNK(info.st_mode)
        return os.fspath(Path(f"{self.path}{name}").readlink()) if linked else ""

    def host(self, name: str) -> Path | None:
        """The path on this host of what `name` leads to; None when that is not there."""
        found = self.resolve(name)
        return None if found is None else Path(f"{self.path}{found}")

    def is_file(self, name: str) -> bool:
        found = self.host(name)
        return found is not None and stat.S_ISREG(found.lstat().st_mode)

    def is_dir(self, name: str) -> bool:
        found = self.host(name)
        return found is not None and stat.S_ISDIR(found.lstat().st_mode)

    def read(self, name: str) -> bytes | None:
        """The content of the regular file `name` leads to, else None.  Raises WorkError if it is
        too large (MOST_READ).
        """
        found = self.host(name)
        return None if found is None else read_limited(found, name)

    def map(self, name: str) -> mmap.mmap | bytes | None:
        """The same, also of a file that is larger than the memory (MOST_MAPPED)."""
        found = self.host(name)
        return None if found is None else map_limited(found, name)

    def text(self, name: str) -> str:
        """The text of a file, "" when there is none; what is not UTF-8 is replaced.

        Of hundreds of blanks or empty lines one is left: patterns begin with them, and look for
        their end from each anew.  Raises WorkError as read().
        """
        text = (self.read(name) or b"").decode(errors="replace")
        return VOID.sub(lambda void: "\n" if "\n" in void[0] else " ", text)

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; none when it is no folder."""
        found = self.host(folder)
        if found is None or not stat.S_ISDIR(found.lstat().st_mode):
            return []
        return sorted(entry.name for entry in found.iterdir())

    def glob(self, *patterns: str) -> list[str]:
        """The paths that match each of some absolute globs in turn, sorted (see matching())."""
        return [path for pattern in patterns for path in self.matching(pattern)]

    def matching(self, pattern: str) -> list[str]:
        """The paths that match an absolute glob (`*`, `?`, `[...]` within one name), sorted.

        Folders on the way may be symlinks; a match may be one too, also a dangling one.  Raises
        WorkError for more than MOST_MATCHES: with links to itself, or `..`, a root has any number.
        """
        found = [""]
        for part in pattern.strip("/").split("/"):
            found = list(islice(self.matches(found, part), MOST_MATCHES + 1))
            if len(found) > MOST_MATCHES:
                what = f"a pattern of the image matches more than {MOST_MATCHES} paths"
                hint = "look for it in the image (imagebuilder shell), and for links to folders"
                raise WorkError(what, where=fit(pattern), hint=hint)
        return sorted(found)

    def matches(self, folders: Iterable[str], part: str) -> Iterator[str]:
        """The paths in folders with a name that is `part`, or matches it."""
        for folder in folders:
            if not any(mark in part for mark in "*?["):
                if self.lies(f"{folder}/{part}"):
                    yield f"{folder}/{part}"
                continue
            for name in self.names(folder or "/"):
                is_hidden = name.startswith(".") and not part.startswith(".")
                if not is_hidden and fnmatch.fnmatchcase(name, part):
                    yield f"{folder}/{name}"

    def lies(self, name: str) -> bool:
        """Whether there is something at `name`, if only a dangling symlink."""
        place = self.place(name)
        return place is not None and os.path.lexists(place)

    def place(self, name: str) -> Path | None:
        """The path on this host of `name` itself, no link followed; None without its folder."""
        folder = self.host(posixpath.dirname(name))
        return folder and folder / posixpath.basename(name)

    def walk(self, folder: str) -> Iterator[str]:
        """Every regular file below a folder, symlinks not followed, in a stable order."""
        top = self.host(folder)
        if top is None or not stat.S_ISDIR(top.lstat().st_mode):
            return
        prefix = len(os.fspath(self.path))
        todo = [os.fspath(top)]
        while todo:
            here = todo.pop()
            with os.scandir(here) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
            for entry in listed:
                if entry.is_file(follow_symlinks=False):
                    yield entry.path[prefix:]
            todo.extend(e.path for e in reversed(listed) if e.is_dir(follow_symlinks=False))


@dataclass(frozen=True)
class FinishedRoot(Root):
    """A root that nothing changes any more: what is at a path is looked up once.

    A proof asks 30 times for each folder on the way to what it reads.
    """

    links: dict[str, str | None] = field(default_factory=dict, compare=False, repr=False)
    ends: dict[str, str | None] = field(default_factory=dict, compare=False, repr=False)

    def link_at(self, name: str) -> str | None:
        return remembered(self.links, name, super().link_at)

    def resolve(self, name: str) -> str | None:
        return remembered(self.ends, name, super().resolve)


def remembered(
    known: dict[str, str | None], name: str, find: Callable[[str], str | None]
) -> str | None:
    """What `find` returns for a name; asked again only for names beyond MOST_REMEMBERED."""
    try:
        return known[name]
    except KeyError:
        found = find(name)
    if len(known) < MOST_REMEMBERED:
        known[name] = found
    return found


def follow_links(
    name: str, link_at: Callable[[str], str | None], *, dangling: bool = False
) -> str | None:
    """The path that `name` leads to in a root of which `link_at` tells as Root.link_at() does.

    None when nothing is there, but with `dangling` where it would be.
    """
    todo = [part for part in reversed(name.split("/")) if part not in ("", ".")]
    done, links = "", 0
    while todo:
        part = todo.pop()
        if part == "..":
            done = posixpath.dirname(done) if done else ""
            done = "" if done == "/" else done
            continue
        here = f"{done}/{part}"
        target = link_at(here)
        if target is None:
            return "/".join([here, *reversed(todo)]) if dangling else None
        if not target:
            done = here
            continue
        links += 1
        if links > MOST_LINKS:
            return None
        done = "" if target.startswith("/") else done
        todo.extend(p for p in reversed(target.split("/")) if p not in ("", "."))
    return done or "/"
