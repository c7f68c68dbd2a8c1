# SPDX-License-Identifier: Apache-2.0
"""Builds the world of a sandbox from a table, runs one command in it, reaps, ends.

Started by `unshare` in a fresh mount namespace, with the table as the first argument and the
command after it; without one it says READY and stays until it is killed.  Three processes share
the work:

    builder's side   root of the host: mounts what the table names, then only waits
      holder         makes the user namespace and all that it owns, then only waits
        process 1    root of the sandbox alone: runs the command, or stays

Nothing of the sandbox is the host's root: uid 0 inside is uid SHIFT outside, and mounts with mapped
ids make SHIFT write uid 0 into the layers (mount_setattr(2), MOUNT_ATTR_IDMAP).  Capabilities count
for what the user namespace owns.  Mounts that it inherits are locked (user_namespaces(7)).

Everything here dies with the namespaces, so nothing is undone.  Uses the standard library only, and
of it only what loads at once (mounts.py): it runs isolated (`python -I -S`).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import marshal
import os
import stat
import struct
import sys
import warnings  # noqa: F401 - os.execvp() asks for it

from imagebuilder.sandbox.mounts import (
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_RDONLY,
    MS_REMOUNT,
    SHIFT,
    USERS,
    attach,
    check,
    clone,
    enter,
    libc,
    limits,
    make_resolver,
    mount,
    mount_kernel_trees,
    mount_layers,
    mount_view,
    remove_resolver,
    write_text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from imagebuilder.sandbox.mounts import Table

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
SYS_KEYCTL = {"x86_64": 250, "aarch64": 219}
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP = 1, 4, 22
PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP = 28, 4
SECCOMP_MODE_FILTER = 2
KEYCTL_JOIN_SESSION_KEYRING = 1
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
REFUSED = 126  # exit status: the sandbox could not be made
READY = "ready"
NO_SERVICES = "/usr/sbin/policy-rc.d"
AF_INET, SOCK_DGRAM = 2, 2
# signal(7) and signal.h; the module of that name is slow to load.
SIGINT, SIGKILL, SIGTERM, SIGCHLD = 2, 9, 15, 17
SIG_DFL, SIG_IGN, SIG_BLOCK = None, ctypes.c_void_p(1), 0
SIGSET = 128  # bytes of a sigset_t


def raise_loopback() -> None:
    """`ip link set lo up`, for programs that talk to themselves."""
    sock = check(libc.socket(AF_INET, SOCK_DGRAM, 0), "socket")
    request = struct.pack("16sh", b"lo", 0).ljust(40, b"\0")
    flags = struct.unpack_from("h", fcntl.ioctl(sock, SIOCGIFFLAGS, request), 16)[0]
    fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sh", b"lo", flags | IFF_UP).ljust(40, b"\0"))
    os.close(sock)


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
            return exit_status(status)


def stay() -> int:
    """Say that others may enter, and wait for SIGTERM; the kernel reaps what they leave behind.

    No program of the root takes part: it may have none, or none that works.  The signal is
    blocked, because the kernel throws away what a first process neither handles nor blocks.
    """
    libc.signal(SIGCHLD, SIG_IGN)
    awaited = ctypes.create_string_buffer(SIGSET)
    check(libc.sigemptyset(awaited), "sigemptyset")
    check(libc.sigaddset(awaited, SIGTERM), "sigaddset")
    check(libc.sigprocmask(SIG_BLOCK, awaited, None), "sigprocmask")
    print(READY, flush=True)
    libc.sigwait(awaited, ctypes.byref(ctypes.c_int()))
    return 0


def exit_status(status: int) -> int:
    """What a shell would say of a child that ended."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def end(work: Callable[[], int | None]) -> NoReturn:
    """Do `work` and end with the status it returns, whatever happens: for a process that forked."""
    try:
        status = work() or 0
    except OSError as error:
        complain(error)
        status = REFUSED
    finally:
        sys.stdout.flush()
    os._exit(status)


def complain(error: OSError) -> None:
    """Say why there is no sandbox."""
    print(f"sandbox: {error}", file=sys.stderr, flush=True)


def await_word(stream: int) -> None:
    """Wait until the process at the other end says go; end with it."""
    if not os.read(stream, 1):
        os._exit(REFUSED)


def become_root_inside() -> None:
    """Root of the user namespace, and of nothing else; ended when the parent ends."""
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    check(libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0), "prctl")


def hold(table: Table, argv: list[str], words: int, answers: int) -> int:
    """The holder: makes the namespaces, starts process 1, and returns its exit status."""
    if libc.unshare(CLONE_NEWUSER) != 0:  # its words are of a disk without space
        raise OSError(0, "cannot make a user namespace", "user.max_user_namespaces")
    os.write(answers, b"\n")
    await_word(words)  # the ids are mapped
    become_root_inside()
    own = CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS
    check(libc.unshare(own | (0 if table["network"] else CLONE_NEWNET)), "unshare")
    hears, says = os.pipe()
    first = os.fork()
    if first == 0:
        os.close(says)
        end(lambda: first_process(table, argv, hears))
    os.write(answers, b"%d\n" % first)
    await_word(words)  # the root is mounted
    os.write(says, b"\n")
    return exit_status(os.waitpid(first, 0)[1])


def first_process(table: Table, argv: list[str], hears: int) -> int:
    """Process 1 of the sandbox: runs the command, if any, in the root that the builder mounted."""
    check(libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0), "prctl")
    await_word(hears)
    check(libc.unshare(CLONE_NEWNS), "unshare")  # every mount so far is locked from here on
    os.chdir("/")
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    name = table["hostname"].encode()
    check(libc.sethostname(name, len(name)), "sethostname")
    if not table["network"]:
        raise_loopback()
    # Like any program here: /proc/1 is what others look at to see where they are.
    check(libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), "prctl")
    join_session_keyring()
    install_filter(table["filter"])
    os.umask(0o022)
    libc.signal(SIGINT, SIG_DFL)
    there = os.path.isdir(os.path.dirname(NO_SERVICES))
    guarded = table["enter"] and there and not os.path.lexists(NO_SERVICES)
    if guarded:
        write_text(NO_SERVICES, "#!/bin/sh\nexit 101\n")
        os.chmod(NO_SERVICES, 0o755)
    try:
        return run_to_end(argv) if argv else stay()
    finally:
        if guarded:
            remove(NO_SERVICES)
        if table["enter"]:
            remove_resolver()


def remove(path: str) -> None:
    """Remove a file that the command may have removed."""
    if os.path.lexists(path):
        os.unlink(path)


def join_session_keyring() -> None:
    """A new session keyring for this thread and what it starts: the caller's is not theirs."""
    call = SYS_KEYCTL[os.uname().machine]
    if libc.syscall(call, KEYCTL_JOIN_SESSION_KEYRING, None) < 0:
        code = ctypes.get_errno()
        if code != errno.ENOSYS:  # a kernel without keyrings has none to hide
            raise OSError(code, f"keyctl: {os.strerror(code)}")


def install_filter(program: bytes) -> None:
    """Let the kernel check the system calls of this process and what it starts with `program`."""
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header, 0, 0), "seccomp")


class SandboxHolder:
    """The builder's side of hold(): the process, its first process, and their user namespace."""

    def __init__(self, table: Table, argv: list[str]) -> None:
        """Start it and map its ids.  Raises OSError."""
        hears, self.says = os.pipe()
        self.answers, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.says)
            end(lambda: hold(table, argv, hears, answers))
        os.close(hears)
        os.close(answers)
        self.answer()
        try:
            for name in ("uid_map", "gid_map"):
                write_text(f"/proc/{self.pid}/{name}", f"0 {SHIFT} {USERS}\n")
        except OSError as error:
            raise OSError(error.errno, "cannot map users for a sandbox", name) from error
        self.go()
        self.first = int(self.answer())
        self.user = self.namespace("user")

    def answer(self) -> bytes:
        """The holder's next word; ends with it."""
        word = os.read(self.answers, 32)
        if not word:  # it has said why
            sys.exit(self.wait())
        return word

    def go(self) -> None:
        os.write(self.says, b"\n")

    def namespace(self, kind: str) -> int:
        """A descriptor of a namespace of the first process."""
        return os.open(f"/proc/{self.first}/ns/{kind}", os.O_RDONLY)

    def wait(self) -> int:
        """Its exit status, at its end."""
        return exit_status(os.waitpid(self.pid, 0)[1])


def make_root(table: Table, holder: SandboxHolder) -> None:
    """Mount everything and make it our root, as the user who is root inside.

    The capabilities stay (SECBIT_NO_SETUID_FIXUP): only what is made belongs to SHIFT.
    """
    binds = [
        (row, clone(row["source"], user=holder.user, attributes=limits(row)))
        for row in table["binds"]
    ]
    pids = holder.namespace("pid")
    if not table["network"]:  # sysfs shows the network of who mounts it
        check(libc.setns(holder.namespace("net"), CLONE_NEWNET), "setns")
    check(libc.prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0), "prctl")
    libc.setfsgid(ctypes.c_uint(SHIFT))
    parent = os.getppid()
    libc.setfsuid(ctypes.c_uint(SHIFT))
    # A change of users takes this back.
    check(libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0), "prctl")
    if os.getppid() != parent:
        sys.exit(REFUSED)
    if table["enter"]:
        mount_layers(table, holder.user, table["work"])
        root = f"{table['work']}/{table['merged']}"
        mount_kernel_trees(root)
        mount_proc(f"{root}/proc", pids)
    else:  # what is named may lie below /tmp
        root = f"{table['work']}/view"
        mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
        mount_kernel_trees(root)
        mount_proc(f"{root}/proc", pids)
        mount_view(root, table["view"], resolver=bool(table["resolver"]))
        mount_layers(table, holder.user, f"{root}{table['work']}")
    for row, copy in binds:
        attach(copy, row["source"], f"{root}{row['target']}")
    if not table["enter"]:
        mount("", root, flags=MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)
    enter(root)
    if table["resolver"]:
        make_resolver(table["resolver"])


def mount_proc(place: str, pids: int) -> None:
    """A fresh /proc of the process numbers `pids`, which a child of ours must have for that."""
    check(libc.setns(pids, CLONE_NEWPID), "setns")
    child = os.fork()
    if child == 0:
        end(lambda: mount("proc", place, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC))
    if os.waitpid(child, 0)[1] != 0:
        sys.exit(REFUSED)


def read_table(word: str) -> Table:
    """The table that sandbox.py wrote (Sandbox.encode_table())."""
    table: Table = marshal.loads(bytes.fromhex(word))
    return table


def main() -> int:
    """Build the world of the table, then run the command."""
    table = read_table(sys.argv[1])
    if not os.isatty(0):  # nothing inside reaches the terminal of whoever runs us
        os.setsid()
    holder = SandboxHolder(table, sys.argv[2:])
    for stream in range(3):
        if stat.S_ISFIFO(os.fstat(stream).st_mode):  # /dev/stdout is opened by name, too
            os.fchown(stream, SHIFT, SHIFT)
    make_root(table, holder)
    holder.go()
    return holder.wait()


def import_nothing_more() -> None:
    """What is not imported yet would come from the root of the sandbox, which may be hostile."""
    sys.path.clear()


def start() -> NoReturn:
    """What sandbox.py runs."""
    import_nothing_more()
    try:
        sys.exit(main())
    except OSError as error:
        complain(error)
        sys.exit(REFUSED)
