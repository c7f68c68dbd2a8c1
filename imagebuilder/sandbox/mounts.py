# SPDX-License-Identifier: Apache-2.0
"""The mounts of a sandbox, made by the builder's side (init.py) in its own mount namespace.

Uses the standard library only: it runs isolated (`python -I -S`).  A build starts dozens of
sandboxes, so nothing here loads pathlib, typing or json, which would cost each of them 20 ms.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    Name = str | os.PathLike[str]

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND = 1, 2, 4, 8, 32, 4096
MNT_DETACH = 2
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
# The same number on every architecture.
SYS_OPEN_TREE, SYS_MOVE_MOUNT, SYS_MOUNT_SETATTR = 428, 429, 442
OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH = 1, 4
AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x1000, 0x8000
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV, MOUNT_ATTR_IDMAP = 1, 2, 4, 0x100000
READ_ONLY = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV

# Where the sandbox's users are among the host's, which has none there: the upper half of all.
SHIFT, USERS = 1 << 31, (1 << 31) - 2

DEVICES = {
    "null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9),
    "tty": (5, 0),
}  # fmt: skip
LINKS = {
    "ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
}  # fmt: skip

# Where programs look for name servers, and what it may be a link to.
RESOLVER, RESOLVES = "/etc/resolv.conf", "/run/imagebuilder/resolv.conf"

libc = ctypes.CDLL(None, use_errno=True)


if TYPE_CHECKING:

    class BindRow(TypedDict):
        """One bind mount: `source` on the host, absolute `target` inside."""

        source: str
        target: str
        writable: bool

    class Table(TypedDict):
        """What sandbox.py asks for; see there."""

        work: str
        lower: list[str]
        upper: str
        scratch: str
        merged: str
        enter: bool
        view: list[str]
        writes: list[str] | None
        network: bool
        hostname: str
        binds: list[BindRow]
        resolver: str
        filter: bytes


def check(done: int, what: str, place: str = "") -> int:
    """The result of a call of libc.  Raises OSError that says what failed."""
    if done < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}", *([place] if place else []))
    return done


def mount(source: str, target: Name, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2).  Raises OSError naming the target."""
    done = libc.mount(
        source.encode(), os.fspath(target).encode(), kind.encode() or None,
        ctypes.c_ulong(flags), data.encode() or None,
    )  # fmt: skip
    check(done, f"mount {kind or 'bind'}", os.fspath(target))


def clone(source: str, *, user: int | None, recursive: bool = False, attributes: int = 0) -> int:
    """A copy of the mount at `source`, not attached yet, whose ids the namespace `user` maps."""
    deep = AT_RECURSIVE if recursive else 0
    flags = OPEN_TREE_CLONE | os.O_CLOEXEC | deep
    copy = check(libc.syscall(SYS_OPEN_TREE, AT_FDCWD, source.encode(), flags), "bind", source)
    mapped = MOUNT_ATTR_IDMAP if user is not None else 0
    change = struct.pack("4Q", attributes | mapped, 0, 0, user or 0)
    done = libc.syscall(SYS_MOUNT_SETATTR, copy, b"", AT_EMPTY_PATH | deep, change, len(change))
    check(done, "its file system does not map ids" if mapped else "mount_setattr", source)
    return copy


def attach(copy: int, source: str, target: Name) -> None:
    """Put what clone() made of `source` at `target`, made when missing."""
    place = os.fspath(target)
    if os.path.isdir(source):
        os.makedirs(place, exist_ok=True)
    elif not os.path.lexists(place):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.mknod(place, 0o666)
    done = libc.syscall(
        SYS_MOVE_MOUNT, copy, b"", AT_FDCWD, os.fsencode(place), MOVE_MOUNT_F_EMPTY_PATH
    )
    check(done, "move_mount", place)
    os.close(copy)


def mount_root(table: Table, lowers: list[str]) -> None:
    """The overlay of the layers; relative names, because mount data is limited to one page."""
    options = {
        "lowerdir": ":".join(lowers),
        "upperdir": table["upper"],
        "workdir": table["scratch"],
        # Whiteouts and opaque directories only, so that an upper can be read without the kernel.
        "redirect_dir": "off", "metacopy": "off", "index": "off", "xino": "off",
    }  # fmt: skip
    # volatile: no sync reaches the disk; a layer is synced once, when the store takes it.
    data = ",".join(f"{key}={value}" for key, value in options.items()) + ",volatile"
    mount("overlay", table["merged"], "overlay", data=data)


def mount_layers(table: Table, user: int, place: str) -> None:
    """Show `work` at `place` with mapped ids, and in it the stacked root.

    A layer that is a symlink leads out of `work`: it gets a mount of its own.  Files of layers are
    files of the store, and so of other images: nobody writes them.
    """
    elsewhere = {
        name: os.path.realpath(f"{table['work']}/{name}")
        for name in table["lower"]
        if os.path.islink(f"{table['work']}/{name}")
    }
    copies = {
        name: clone(path, user=user, attributes=MOUNT_ATTR_RDONLY)
        for name, path in elsewhere.items()
    }
    attach(clone(table["work"], user=user), table["work"], place)
    os.chdir(place)
    lowers = []
    for number, name in enumerate(table["lower"]):
        lowers.append(f"{table['scratch']}.{number}" if name in copies else name)
        if name in copies:
            attach(copies[name], elsewhere[name], lowers[-1])
    mount_root(table, lowers)
    if table["writes"] is not None:
        protect_work(table["writes"])


def protect_work(writes: list[str]) -> None:
    """Make the mount of `work`, the current folder, read-only but for `writes`, which exist.

    The root is a mount of its own: overlayfs keeps the mounts that it was given, as they were.
    """
    for name in writes:
        mount(name, name, flags=MS_BIND)
    mount("", ".", flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


def mount_kernel_trees(root: str) -> None:
    """/sys, our own /dev, empty /run and /tmp; the folder for /proc."""
    for name in ("proc", "sys", "dev", "run", "tmp"):
        place = f"{root}/{name}"
        if os.path.islink(place):
            raise OSError(0, "is a symlink: refusing to mount over it", f"/{name}")
        make_folder(place)
    mount("sysfs", f"{root}/sys", "sysfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount("tmpfs", f"{root}/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    mount("tmpfs", f"{root}/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    make_devices(f"{root}/dev")


def make_folder(place: str) -> None:
    """Make a folder if it is not there.  Raises OSError."""
    if not os.path.isdir(place):
        os.mkdir(place)


def make_devices(dev: str) -> None:
    """A tmpfs with the few nodes programs need; the host's /dev is never seen."""
    mount("tmpfs", dev, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=0755")
    for name, (major, minor) in DEVICES.items():
        os.mknod(f"{dev}/{name}", stat.S_IFCHR | 0o666, os.makedev(major, minor))
        os.chmod(f"{dev}/{name}", 0o666)
    for name, target in LINKS.items():
        os.symlink(target, f"{dev}/{name}")
    os.mkdir(f"{dev}/pts")
    mount("devpts", f"{dev}/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666")
    os.mkdir(f"{dev}/shm")
    mount("tmpfs", f"{dev}/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")


def mount_view(root: str, names: list[str], *, resolver: bool) -> None:
    """Show of the host's tree what is named, read-only, with the rights of others."""
    for name in names:
        target = f"{root}/{name.lstrip('/')}"
        if os.path.islink(name):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.symlink(os.readlink(name), target)
        elif os.path.exists(name):
            # No more limits: mkosi mounts these again with its own, and may take none away.
            copy = clone(name, user=None, recursive=True, attributes=MOUNT_ATTR_RDONLY)
            attach(copy, name, target)
    make_folder(f"{root}/root")
    if resolver:
        os.symlink("/run/resolv.conf", f"{root}/etc/resolv.conf")


def enter(root: str) -> None:
    """Make `root` the root and drop every way back (pivot_root(2), the `.`, `.` form)."""
    os.chdir(root)
    check(libc.syscall(SYS_PIVOT_ROOT[os.uname().machine], b".", b"."), "pivot_root")
    check(libc.umount2(b".", MNT_DETACH), "umount of the host's root")
    os.chdir("/")


def limits(row: BindRow) -> int:
    """What a bind mount does not allow."""
    return MOUNT_ATTR_NODEV if row["writable"] else READ_ONLY


def make_resolver(text: str) -> None:
    """Give /etc/resolv.conf inside the host's content, without writing into the root.

    A symlink is followed inside the root only, and only into /run, which is ours; a plain file is
    covered by a bind mount.  A root without the file gets a link, which first_process() removes.
    """
    real, folder = os.path.realpath(RESOLVER), os.path.dirname(RESOLVER)
    if real.startswith("/run/"):
        write_text(real, text)
        return
    write_text(RESOLVES, text)
    if os.path.isfile(real):
        mount(RESOLVES, real, flags=MS_BIND)
    elif not os.path.lexists(RESOLVER) and os.path.isdir(folder) and not os.path.islink(folder):
        os.symlink(RESOLVES, RESOLVER)


def write_text(path: str, text: str) -> None:
    """Write a file, in a folder that is made.  Raises OSError."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)


def remove_resolver() -> None:
    """Take away the link that make_resolver() made."""
    if os.path.islink(RESOLVER) and os.readlink(RESOLVER) == RESOLVES:
        os.unlink(RESOLVER)
