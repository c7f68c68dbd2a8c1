# SPDX-License-Identifier: Apache-2.0
"""Checks of rights, made before anything is changed; they raise RootError.

With a POSIX ACL, acl(5), the group's bits of a folder's mode are only its mask: the list says whom
it lets write beside the owner and everybody.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import HostError, InputError, RootError

MOST_LINKS = 40  # as the kernel (path_resolution(7))
ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
# linux/posix_acl_xattr.h: a version, then tag, permissions and id of each entry.
VERSION, ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
USER, OWN_GROUP, GROUP, MASK = 0x02, 0x04, 0x08, 0x10
WRITE = 2
ABSENT = (errno.ENODATA, errno.EOPNOTSUPP, errno.ENOENT)


def check_root(doing: str) -> None:
    """Raise RootError unless we are root; `doing` is the subject: `building an image`."""
    if os.geteuid() != 0:
        raise RootError(f"{doing} needs root")


def check_enterable(folder: Path) -> None:
    """Raise RootError for an existing folder of images that we may not read."""
    try:
        os.scandir(folder).close()
    except (FileNotFoundError, NotADirectoryError):
        return  # the code that makes it checks its own rights
    except PermissionError as error:
        raise RootError(
            f"only root may read {folder}, because it contains the setuid programs of images"
        ) from error


def check_writable(folder: Path) -> None:
    """Raise RootError for a folder that we may not write, HostError on a read-only file system."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if os.access(there, os.W_OK):
        return
    if os.statvfs(there).f_flag & os.ST_RDONLY:
        hint = f"see the mount with findmnt --target {there}, and mount it writable"
        raise HostError("is on a read-only file system", where=os.fspath(folder), hint=hint)
    raise RootError(f"the command writes to {folder}, but {there} belongs to {owner_of(there)}")


def is_noexec(folder: Path) -> bool:
    """Whether programs in an existing folder cannot run, because of how it is mounted."""
    return bool(os.statvfs(folder).f_flag & os.ST_NOEXEC)


def check_executable(folder: Path) -> None:
    """Raise HostError for a folder on a file system whose programs do not run."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if is_noexec(there):
        what = "is on a file system that is mounted noexec: programs of images cannot run there"
        hint = f"see the mount with findmnt --target {there} and mount it with exec, or name "
        hint += "another place with --state or IMAGEBUILDER_STATE"
        raise HostError(what, where=os.fspath(folder), hint=hint)


def check_roots_alone(folder: Path) -> None:
    """Raise HostError for a folder in which, or above which, others than root may change names.

    Root would write wherever their symlinks lead.  What does not exist yet is root's to make.
    """
    for path in (folder, Path(os.path.realpath(folder))):
        there = [each for each in (path, *path.parents) if each.exists()]
        for number, each in enumerate(there):
            found = each.stat()
            writers = stat.S_IWOTH | (stat.S_IWGRP if found.st_gid else 0)
            # In a sticky folder, such as /tmp, nobody can replace what is root's already.
            kept = found.st_mode & stat.S_ISVTX and number > 0
            others = found.st_mode & writers or names_writers(each)
            if found.st_uid != 0 or (others and not kept):
                raise HostError(
                    f"users other than root may change {each}, so root writes nothing there",
                    where=os.fspath(folder),
                    hint="choose a folder that root alone may change, such as /srv/netboot",
                )


def check_links(path: Path, env: Mapping[str, str]) -> None:
    """Raise InputError if another user left `path` as a symlink in a folder that all may write.

    The kernel follows none there (protected_symlinks in proc_sys_fs(5)), but whoever finds out
    where it leads has gone around that.  Links of the caller of sudo are ours.
    """
    caller, place = env.get("SUDO_UID", ""), path.absolute()
    ours = {os.geteuid(), *([int(caller)] if caller.isdecimal() else ())}
    for _ in range(MOST_LINKS):
        if not place.is_symlink():
            return
        folder, owner = place.parent.stat(), place.lstat().st_uid
        shared = folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH
        if shared and owner not in (*ours, folder.st_uid):
            raise InputError(
                f"is a link of {owner_of(place)} to {place.readlink()}",
                where=os.fspath(place),
                hint="name another file, in a folder that only you may write",
            )
        place = place.parent / place.readlink()


def owner_of(path: Path) -> str:
    """The name or the number of the owner."""
    return name_of_user(path.lstat().st_uid)


def name_of_user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


@dataclass(frozen=True)
class AclWriters:
    """The users and groups that a list names and lets write; `own_group` is the folder's."""

    users: tuple[int, ...]
    groups: tuple[int, ...]
    own_group: bool


def read_writers(folder: Path, name: str = ACCESS) -> AclWriters | None:
    """Whom a list of a folder lets write; None without one.  Raises OSError."""
    try:
        value = os.getxattr(folder, name)
    except OSError as error:
        if error.errno in ABSENT:
            return None
        raise
    entries = list(ENTRY.iter_unpack(value[VERSION.size :]))
    masked = all(perm & WRITE for tag, perm, _ in entries if tag == MASK)
    writing = [(tag, number) for tag, perm, number in entries if perm & WRITE and masked]
    return AclWriters(
        users=tuple(number for tag, number in writing if tag == USER),
        groups=tuple(number for tag, number in writing if tag == GROUP),
        own_group=any(tag == OWN_GROUP for tag, _ in writing),
    )


def names_writers(folder: Path) -> bool:
    """Whether a list of a folder, or one that is inherited, lets others than root write."""
    found = (read_writers(folder, name) for name in (ACCESS, DEFAULT))
    return any(any((*each.users, *each.groups)) for each in found if each)
