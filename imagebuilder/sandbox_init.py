# SPDX-License-Identifier: Apache-2.0
"""First process of a sandbox: builds its world from a JSON table, runs one command, reaps, ends.

Started by `unshare` as pid 1 of fresh mount, pid, ipc and uts (and mostly network) namespaces, with
the table as the first argument and the command after it.  Everything here dies with the namespace,
so nothing is undone.  Uses the standard library only: it runs isolated (`python -I -S`).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import socket
import stat
import struct
import sys
from pathlib import Path
from typing import TypedDict

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND = 1, 2, 4, 8, 32, 4096
MNT_DETACH = 2
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
PR_CAPBSET_DROP = 24
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1

# capabilities(7) that reach through a namespace to the host's kernel, clock or hardware.
DROPPED = {
    "sys_module": 16, "sys_rawio": 17, "sys_boot": 22, "sys_time": 25,
    "mac_override": 32, "mac_admin": 33, "syslog": 34, "wake_alarm": 35,
}  # fmt: skip
DEVICES = {
    "null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9),
    "tty": (5, 0),
}  # fmt: skip
LINKS = {
    "ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
}  # fmt: skip
NO_SERVICES = Path("/usr/sbin/policy-rc.d")

libc = ctypes.CDLL(None, use_errno=True)


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
    hostname: str
    binds: list[BindRow]
    resolver: str


def mount(source: str, target: str | Path, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2).  Raises OSError naming the target."""
    done = libc.mount(
        source.encode(), os.fspath(target).encode(), kind.encode() or None,
        ctypes.c_ulong(flags), data.encode() or None,
    )  # fmt: skip
    if done != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mount {kind or 'bind'}: {os.strerror(code)}", os.fspath(target))


def bind(source: str, target: str | Path, *, writable: bool) -> None:
    """Bind `source` (file or directory) over `target`, made when missing."""
    place = Path(target)
    place.parent.mkdir(parents=True, exist_ok=True)
    if Path(source).is_dir():
        place.mkdir(exist_ok=True)
    else:
        place.touch(exist_ok=True)
    mount(source, place, flags=MS_BIND)
    if not writable:
        mount("", place, flags=MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)


def mount_root(table: Table) -> Path:
    """The overlay of the layers; relative names, because mount data is limited to one page."""
    os.chdir(table["work"])
    options = {
        "lowerdir": ":".join(table["lower"]),
        "upperdir": table["upper"],
        "workdir": table["scratch"],
        # Whiteouts and opaque directories only, so that an upper can be read without the kernel.
        "redirect_dir": "off", "metacopy": "off", "index": "off", "xino": "off",
    }  # fmt: skip
    # volatile: no sync reaches the disk; a layer is synced once, when the store takes it.
    data = ",".join(f"{key}={value}" for key, value in options.items()) + ",volatile"
    mount("overlay", table["merged"], "overlay", data=data)
    return Path(table["work"], table["merged"])


def mount_kernel_trees(root: Path) -> None:
    """Fresh /proc, read-only /sys, our own /dev, empty /run and /tmp."""
    for name in ("proc", "sys", "dev", "run", "tmp"):
        place = root / name
        if place.is_symlink():
            raise OSError(0, "is a symlink: refusing to mount over it", f"/{name}")
        place.mkdir(exist_ok=True)
    mount("proc", root / "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for name in ("sys", "sysrq-trigger", "irq", "bus"):
        place = root / "proc" / name
        if place.exists():
            bind(os.fspath(place), place, writable=False)
    mount("sysfs", root / "sys", "sysfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount("tmpfs", root / "run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    mount("tmpfs", root / "tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    make_devices(root / "dev")


def make_devices(dev: Path) -> None:
    """A tmpfs with the few nodes programs need; the host's /dev is never seen."""
    mount("tmpfs", dev, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=0755")
    for name, (major, minor) in DEVICES.items():
        os.mknod(dev / name, stat.S_IFCHR | 0o666, os.makedev(major, minor))
        (dev / name).chmod(0o666)
    for name, target in LINKS.items():
        (dev / name).symlink_to(target)
    (dev / "pts").mkdir()
    mount("devpts", dev / "pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,gid=5")
    (dev / "shm").mkdir()
    mount("tmpfs", dev / "shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")


def enter(root: Path) -> None:
    """Make `root` the root and drop every way back (pivot_root(2), the `.`, `.` form)."""
    os.chdir(root)
    if libc.syscall(SYS_PIVOT_ROOT[os.uname().machine], b".", b".") != 0:
        raise OSError(ctypes.get_errno(), "pivot_root", os.fspath(root))
    if libc.umount2(b".", MNT_DETACH) != 0:
        raise OSError(ctypes.get_errno(), "umount of the host's root")
    os.chdir("/")


def make_resolver(text: str) -> None:
    """Give /etc/resolv.conf inside the host's content, without writing into the root.

    A symlink is followed inside the root only, and only into /run, which is ours; a plain file is
    covered by a bind mount.
    """
    place = Path("/etc/resolv.conf")
    real = Path(os.path.realpath(place))
    if real.is_relative_to("/run"):
        real.parent.mkdir(parents=True, exist_ok=True)
        real.write_text(text)
        return
    given = Path("/run/imagebuilder/resolv.conf")
    given.parent.mkdir(parents=True, exist_ok=True)
    given.write_text(text)
    if real.is_file():
        mount(os.fspath(given), real, flags=MS_BIND)


def raise_loopback() -> None:
    """`ip link set lo up`, for programs that talk to themselves."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sh", b"lo", 0).ljust(40, b"\0")
        flags = struct.unpack_from("h", fcntl.ioctl(sock, SIOCGIFFLAGS, request), 16)[0]
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sh", b"lo", flags | IFF_UP).ljust(40, b"\0"))


def run_to_end(argv: list[str]) -> int:
    """Run the command as a child, reap orphans as pid 1 must, and return its exit status."""
    child = os.fork()
    if child == 0:
        try:
            os.execvp(argv[0], argv)
        except OSError as error:
            print(f"{argv[0]}: {error.strerror}", file=sys.stderr)
            os._exit(127)
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def main() -> int:
    """Build the world of the table, then run the command."""
    table: Table = json.loads(sys.argv[1])
    socket.sethostname(table["hostname"])
    with contextlib.suppress(OSError):  # in a sandbox with the host's network it is up already
        raise_loopback()
    if not table["enter"]:
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        bind(table["work"], table["work"], writable=True)
        mount("", "/", flags=MS_BIND | MS_REMOUNT | MS_RDONLY)
        mount_root(table)
        return run_to_end(sys.argv[2:])
    root = mount_root(table)
    mount_kernel_trees(root)
    for row in table["binds"]:
        bind(row["source"], f"{root}{row['target']}", writable=row["writable"])
    enter(root)
    if table["resolver"]:
        make_resolver(table["resolver"])
    for number in DROPPED.values():
        libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    os.umask(0o022)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    guarded = NO_SERVICES.parent.is_dir() and not os.path.lexists(NO_SERVICES)
    if guarded:
        NO_SERVICES.write_text("#!/bin/sh\nexit 101\n")
        NO_SERVICES.chmod(0o755)
    try:
        return run_to_end(sys.argv[2:])
    finally:
        if guarded:
            NO_SERVICES.unlink(missing_ok=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as error:
        print(f"sandbox: {error}", file=sys.stderr)
        sys.exit(126)
