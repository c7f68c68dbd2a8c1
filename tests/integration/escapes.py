# SPDX-License-Identifier: Apache-2.0
"""Ways out of a sandbox; a program too: tries those that a JSON object names, says what became.

It is run with nothing but the standard library.  A function returns when the way is open, and
raises OSError when it is refused.  A way is harmless where its success changes nothing.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import pty
import socket
import stat
import struct
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypedDict

libc = ctypes.CDLL(None, use_errno=True)
X86 = os.uname().machine == "x86_64"
MS_REMOUNT, MS_BIND, MNT_DETACH = 32, 4096, 2
SIOCGIFFLAGS, SIOCSIFFLAGS = 0x8913, 0x8914


class Told(TypedDict):
    """What the test tells: names of ways, numbers of the root's disk, a key, a process."""

    names: list[str]
    disk: tuple[int, int]
    key: int
    host: int


def call(name: str, x86: int, arm: int, *words: object) -> int:
    """A system call.  Raises OSError."""
    done = libc.syscall(x86 if X86 else arm, *words)
    if done < 0:
        raise OSError(ctypes.get_errno(), name)
    return int(done)


def must_be_forbidden(name: str, x86: int, arm: int, *words: object) -> None:
    """A call that no builder's root may try either: only EPERM shows that it was refused."""
    try:
        call(name, x86, arm, *words)
    except OSError as error:
        if error.errno != errno.EPERM:
            raise RuntimeError(f"{name}: {error}") from error
        raise


def mount(source: str, kind: str, flags: int = 0, target: str = "m") -> None:
    """mount(2).  Raises OSError."""
    Path("m").mkdir(exist_ok=True)
    words = (source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags), None)
    if libc.mount(*words) != 0:
        raise OSError(ctypes.get_errno(), f"mount {kind}")


def node_of_null(_: Told) -> None:
    os.mknod("null", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    Path("null").write_text("x")


def node_of_disk(told: Told) -> None:
    os.mknod("disk", stat.S_IFBLK | 0o600, os.makedev(*told["disk"]))
    os.close(os.open("disk", os.O_RDONLY))


def node_of_memory(_: Told) -> None:
    os.mknod("mem", stat.S_IFCHR | 0o600, os.makedev(1, 1))


def mount_devices(_: Told) -> None:
    mount("none", "devtmpfs")


def mount_cgroups(_: Told) -> None:
    mount("none", "cgroup2")


def mount_disk(_: Told) -> None:
    must_be_forbidden("mount", 165, 40, b"none", b"/", b"ext4", 0, None)


def kernel_setting(_: Told) -> None:
    setting = Path("/proc/sys/kernel/core_pattern")
    setting.write_text(setting.read_text())


def kernel_setting_in_fresh_proc(_: Told) -> None:
    mount("proc", "proc")
    setting = Path("m/sys/kernel/core_pattern")
    setting.write_text(setting.read_text())


def proc_remounted(_: Told) -> None:
    mount("none", "", MS_REMOUNT | MS_BIND, "/sys")
    os.close(os.open("/sys/kernel/uevent_seqnum", os.O_WRONLY))


def sysrq(_: Told) -> None:
    os.close(os.open("/proc/sysrq-trigger", os.O_WRONLY))


def kernel_log(_: Told) -> None:
    os.close(os.open("/proc/kmsg", os.O_RDONLY))


def file_by_handle(_: Told) -> None:
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136)
    number = ctypes.c_int()
    call("name_to_handle_at", 303, 264, -100, b".", handle, ctypes.byref(number), 0)
    here = os.open(".", os.O_RDONLY)
    os.close(call("open_by_handle_at", 304, 265, here, handle, os.O_RDONLY))


def bpf_map(_: Told) -> None:
    attributes = struct.pack("5I", 2, 4, 4, 1, 0).ljust(120, b"\0")  # an array of one word
    os.close(call("bpf", 321, 280, 0, attributes, len(attributes)))


def key_of_the_host(told: Told) -> None:
    text = ctypes.create_string_buffer(64)
    call("keyctl", 250, 219, 11, told["key"], text, 64)  # KEYCTL_READ
    assert text.value == b"secret"


def signal_to_the_host(told: Told) -> None:
    os.kill(told["host"], 0)


def trace_of_the_host(told: Told) -> None:
    call("ptrace", 101, 117, 0x4206, told["host"], 0, 0)  # PTRACE_SEIZE


def shadow(_: Told) -> None:
    Path("/etc/shadow").read_text()


def shadow_through_proc(_: Told) -> None:
    Path("/proc/1/root/etc/shadow").read_text()


def shadow_out_of_chroot(_: Told) -> None:
    top = os.open("/", os.O_RDONLY)
    Path("jail").mkdir(exist_ok=True)
    os.chroot("jail")
    os.fchdir(top)
    for _step in range(40):
        os.chdir("..")
    os.chroot(".")
    Path("/etc/shadow").read_text()


def leaked_descriptor(_: Told) -> None:
    for link in list(Path("/proc/self/fd").iterdir()):
        # One is that of the list itself, closed by now; a pipe is this program's.
        leads = os.fspath(link.readlink()) if link.is_symlink() else "pipe:"
        if int(link.name) > 2 and not leads.startswith("pipe:"):
            return
    raise OSError(errno.EBADF, "no descriptor but the three")


def programs_writable(_: Told) -> None:
    mount("none", "", MS_REMOUNT | MS_BIND, "/usr")


def programs_uncovered(_: Told) -> None:
    if libc.umount2(b"/usr", MNT_DETACH) != 0:
        raise OSError(ctypes.get_errno(), "umount")


def letters_into_a_terminal(_: Told) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            fcntl.ioctl(0, termios.TIOCSTI, b"x")
        except OSError as error:
            os._exit(error.errno or 1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(terminal)
    if code:
        raise OSError(code, "TIOCSTI")


def terminal_of_the_caller(_: Told) -> None:
    os.close(os.open("/dev/tty", os.O_RDWR))


def interface(_: Told) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sh", b"lo", 0).ljust(40, b"\0")
        fcntl.ioctl(sock, SIOCSIFFLAGS, fcntl.ioctl(sock, SIOCGIFFLAGS, request))


def raw_socket(_: Told) -> None:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()


def clock(_: Told) -> None:
    time.clock_settime(time.CLOCK_REALTIME, time.time())


def module(_: Told) -> None:
    must_be_forbidden("init_module", 175, 105, b"", 0, b"")


def other_kernel(_: Told) -> None:
    must_be_forbidden("kexec_load", 246, 104, 0, 0, None, 0)


HARMLESS = (
    node_of_null, mount_devices, kernel_setting, kernel_setting_in_fresh_proc, kernel_log,
    file_by_handle, bpf_map, key_of_the_host, signal_to_the_host, shadow,
    shadow_out_of_chroot, letters_into_a_terminal, interface, raw_socket,
)  # fmt: skip
OTHERS = (
    sysrq, shadow_through_proc, node_of_disk, node_of_memory, mount_cgroups, mount_disk,
    proc_remounted, trace_of_the_host, leaked_descriptor, programs_writable, programs_uncovered,
    terminal_of_the_caller, clock, module, other_kernel,
)  # fmt: skip
# In a sandbox without network these are its own.
OF_NETWORK = ("interface", "raw_socket")
WAYS: Mapping[str, Callable[[Told], None]] = {way.__name__: way for way in (*HARMLESS, *OTHERS)}


def outcome(way: Callable[[Told], None], told: Told) -> str:
    """ "open", "refused: ..." or "broken: ..."; tried in a process of its own."""
    hears, says = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(hears)
        try:
            way(told)
            said = "open"
        except OSError as error:
            said = f"refused: {error}"
        except (RuntimeError, AssertionError, ValueError) as error:
            said = f"broken: {error!r}"
        os.write(says, said.encode())
        os._exit(0)
    os.close(says)
    with os.fdopen(hears, "rb") as stream:
        text = stream.read().decode()
    os.waitpid(pid, 0)
    return text


def main() -> None:
    """Try what is named."""
    told: Told = json.loads(sys.argv[1])
    print(json.dumps({name: outcome(WAYS[name], told) for name in told["names"]}))


if __name__ == "__main__":
    main()
