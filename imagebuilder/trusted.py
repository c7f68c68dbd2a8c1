# SPDX-License-Identifier: Apache-2.0
"""Whether only trusted users can change where a path leads: checked before anything is written.

Whoever can rename a folder on the way, or put a link there, decides where our files end up; as
root we would write any file of the host for them.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from imagebuilder.errors import HostError
from imagebuilder.rights import ACCESS, DEFAULT, MOST_LINKS, name_of_user, owner_of, read_writers

OVERFLOW = Path("/proc/sys/kernel/overflowuid")
UID_MAP = Path("/proc/self/uid_map")
EVERY_UID = 2**32 - 1


@dataclass(frozen=True)
class Trusted:
    """Users who may change where our files are written, and folders that were named as trusted.

    `named` are the project and the folders above it: who can change those can have us run programs.
    """

    users: frozenset[int]
    named: frozenset[Path] = frozenset()

    @classmethod
    def of(cls, users: Iterable[int], project: Path) -> Self:
        return cls(frozenset((*users, *find_unmapped())), frozenset((project, *project.parents)))

    def check_folders(self, top: Path, hint: str) -> None:
        """check() for a folder and for each folder and link in it."""
        self.check(top, hint)
        try:
            with os.scandir(top) as entries:
                found = [
                    Path(entry.path)
                    for entry in entries
                    if entry.is_symlink() or entry.is_dir(follow_symlinks=False)
                ]
        except OSError:
            return  # whoever uses it says so
        for path in sorted(found):
            self.check(path, hint)

    def check(self, path: Path, hint: str) -> None:
        """Raise HostError if another user can change where `path` leads.

        What does not exist is ours to make.
        """
        here, todo, links = Path("/"), deque(path.absolute().parts[1:]), 0
        self.check_one(here, hint, is_last=not todo)
        while todo:
            name = todo.popleft()
            here = here.parent if name == ".." else here / name
            try:
                self.check_one(here, hint, is_last=not todo)
            except FileNotFoundError:
                self.check_list(here.parent, DEFAULT, hint)  # what is made there inherits it
                return
            except OSError:
                return
            try:
                target = os.fspath(here.readlink()) if here.is_symlink() else ""
            except OSError:
                return
            if target:
                links += 1
                if links > MOST_LINKS:
                    return
                parts = Path(target).parts
                here = Path("/") if target.startswith("/") else here.parent
                todo.extendleft(reversed(parts[1:] if target.startswith("/") else parts))

    def check_one(self, path: Path, hint: str, *, is_last: bool) -> None:
        """check() for one name on the way.  Raises OSError too."""
        found = path.lstat()
        if path in self.named:
            return
        if found.st_uid not in self.users:
            is_link = stat.S_ISLNK(found.st_mode)
            what = f"is a link to {path.readlink()} that" if is_link else "is a folder that"
            raise HostError(
                f"{what} {owner_of(path)} can change, so nothing is written there",
                where=os.fspath(path),
                hint=hint,
            )
        # In a sticky folder, such as /tmp, nobody can replace what is a trusted user's already.
        if not stat.S_ISDIR(found.st_mode) or (found.st_mode & stat.S_ISVTX and not is_last):
            return
        if who := self.find_writers(path, found):
            raise HostError(
                f"{who} can change what is in this folder, so nothing is written there",
                where=os.fspath(path),
                hint=f"{hint}, or take the right away: chmod go-w {path}",
            )
        self.check_list(path, ACCESS, hint)
        if is_last:
            self.check_list(path, DEFAULT, hint)

    def find_writers(self, path: Path, found: os.stat_result) -> str:
        """Whom the mode lets change the names in a folder, "" for nobody."""
        if found.st_mode & stat.S_IWOTH:
            return "every user"
        if found.st_mode & stat.S_IWGRP and found.st_gid != 0:
            listed = read_writers(path)  # with a list, the bit is that of its mask
            return self.find_member(found.st_gid) if listed is None or listed.own_group else ""
        return ""

    def check_list(self, path: Path, name: str, hint: str) -> None:
        """Raise HostError if an ACL of a folder lets other users write.  Raises OSError too."""
        listed = None if path in self.named else read_writers(path, name)
        if listed is None:
            return
        others = [name_of_user(uid) for uid in listed.users if uid not in self.users]
        others += [who for gid in listed.groups if gid and (who := self.find_member(gid))]
        if others:
            is_in = "is in" if name == ACCESS else "is made in"
            what = f"by its ACL, {others[0]} can change what {is_in} this folder, so nothing is "
            raise HostError(
                f"{what}written there",
                where=os.fspath(path),
                hint=f"{hint}, or remove the list: setfacl -b {path}",
            )

    def find_member(self, gid: int) -> str:
        """A user of a group who is not trusted: many distributions give each user their own group,
        which may write to what the user makes.
        """
        try:
            group = grp.getgrgid(gid)
        except KeyError:
            named, name = [], str(gid)
        else:
            named, name = group.gr_mem, group.gr_name
        trusted = {user.pw_name for user in pwd.getpwall() if user.pw_uid in self.users}
        users = [*named, *(user.pw_name for user in pwd.getpwall() if user.pw_gid == gid)]
        other = next((user for user in users if user not in trusted), "")
        return f"group {name}, to which {other} belongs," if other else ""

    def check_links(self, top: Path, folder: Path) -> None:
        """Raise HostError if a link between `top` and `folder`, or that itself, is another's."""
        for path in (folder, *folder.parents):
            if path == top:
                return
            if path.is_symlink() and path.lstat().st_uid not in self.users:
                raise HostError(
                    f"is a link of {owner_of(path)} to {path.readlink()}, so nothing is written "
                    "there",
                    where=os.fspath(path),
                    hint="put a folder in its place, or the same link, made by you",
                )


def make_new(folder: Path, mode: int = 0o777) -> bool:
    """Make a folder; False if another command made it meanwhile.

    Raises OSError, also if another user made it, or a link, as in /tmp anybody can.
    """
    try:
        folder.mkdir(mode)
    except FileExistsError:
        found, above = folder.lstat(), folder.parent.stat()
        ours = found.st_uid in (0, os.geteuid(), above.st_uid)
        if ours and stat.S_ISDIR(found.st_mode):
            return False
        raise
    return True


def find_unmapped() -> tuple[int, ...]:
    """The number that stands for users of the host who do not exist in our user namespace.

    There, the system's folders belong to it; none of its users can be such a user.
    """
    try:
        (_, _, count), *others = (line.split() for line in UID_MAP.read_text().splitlines())
        if not others and int(count) == EVERY_UID:
            return ()
        return (int(OVERFLOW.read_text()), EVERY_UID)  # an ACL has the latter for them
    except (OSError, ValueError):
        return ()
