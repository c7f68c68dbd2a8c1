# SPDX-License-Identifier: Apache-2.0
"""Check the host itself: programs, rights, kernel, disk, memory.

Trials run in a private namespace or in a temporary folder.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.doctor.finding import HostFinding, Severity, fine, problem, warning
from imagebuilder.errors import HostError
from imagebuilder.families.tool import Tool, check_tool, find_tool
from imagebuilder.files import scratch
from imagebuilder.folders import matching, read_mounts
from imagebuilder.playbook.step import check_ansible, find_ansible
from imagebuilder.process import run
from imagebuilder.rights import is_noexec
from imagebuilder.sandbox.sandbox import check_sandbox
from imagebuilder.share import INSTALLED, SHARE
from imagebuilder.ui import format_size

OLDEST_PYTHON = (3, 11)
SPACE_LOW = 10 * 10**9  # bytes; needed for the largest root, with ROCm
SPACE_NONE = 3 * 10**9  # bytes
MEMORY_LOW = 2 * 10**9  # bytes
# These cannot hold the upper directory of an overlayfs (it needs trusted xattrs and d_type: the
# kernel's filesystems/overlayfs.rst), or have no hard links.
UNFIT_TYPES = frozenset(
    ("9p", "cifs", "ecryptfs", "exfat", "fuseblk", "msdos", "nfs", "nfs4", "ntfs", "ntfs3",
     "overlay", "smb3", "vboxsf", "vfat")
)  # fmt: skip
HOST_SETUP = {
    "build": "imagebuilder setup",
    "rpm": "imagebuilder setup --rpm",
    "serve": "imagebuilder setup --serve",
    "nfs": "imagebuilder setup --serve",
    "boot": "imagebuilder setup --boot",
    "clone": "scripts/host-setup --clone",
    "dev": "scripts/host-setup --dev",
    "tests": "scripts/host-setup --tests",
}
# Groups that not every host needs, and what needs them.
ONLY = {"rpm": "bases with `package-manager: rpm`"}
SERVE_GROUPS = frozenset(("serve", "nfs"))  # checked by `doctor --serve`
CLONE_GROUPS = frozenset(("clone", "dev", "tests"))  # of no use to an installed program
NAMESPACES = ("unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--")
OVERLAY_PROBE = """
mount -t tmpfs tmpfs /tmp && cd /tmp && mkdir lower upper work merged && : >lower/gone
mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged
rm merged/gone && test -c upper/gone
"""


@dataclass(frozen=True)
class Need:
    """A line of host-packages.txt; its header explains the fields."""

    group: str
    tool: str
    package: str
    least: str
    purpose: str


def load_needs() -> tuple[Need, ...]:
    """What imagebuilder needs on its host, from the table that scripts/host-setup also reads."""
    text = (SHARE / "scripts/host-packages.txt").read_text()
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    needs = (Need(*line.split(maxsplit=4)) for line in lines)
    return tuple(need for need in needs if not (INSTALLED and need.group in CLONE_GROUPS))


def examine_python(version: tuple[int, ...]) -> HostFinding:
    text = ".".join(map(str, version))
    if version < OLDEST_PYTHON:
        return problem("python", f"{text} is too old", "use Python 3.11 or newer")
    return fine("python", text)


def examine_need(need: Need, path: str, *, required: bool = False) -> HostFinding:
    """Whether one tool is installed and new enough; only those of a build are always `required`."""
    level = Severity.PROBLEM if required or need.group in ("build", "clone") else Severity.WARNING
    fix = HOST_SETUP[need.group]
    subject = need.package if need.tool.startswith(("/", "module:")) else need.tool
    if not is_present(need.tool, path):
        if need.group in ONLY:
            return fine(subject, f"is not installed; only {ONLY[need.group]} need it: {fix}")
        return HostFinding(subject, level, f"is not installed: {need.purpose}", fix)
    if need.least == "-" or not is_present("setpriv", path):  # no program runs without setpriv
        return fine(subject, need.purpose)
    version = find_tool_version(need.tool)
    if version is None:
        return warning(subject, "does not print its version", fix)
    if numbers(version) < numbers(need.least):
        return HostFinding(
            subject, level, f"{version} is older than {need.least}, the oldest version tested",
            "update the distribution to Debian 12 or Ubuntu 24.04, or newer",
        )  # fmt: skip
    return fine(subject, f"{version}: {need.purpose}")


def examine_ansible() -> HostFinding:
    """Ansible, which only recipes with playbooks need."""
    try:
        find_ansible()
    except HostError as error:
        what = "is not installed; only recipes with playbooks need it"
        return fine("ansible", f"{what}: {error.faults[0].hint}")
    try:
        return fine("ansible", f"{check_ansible()}: runs recipes' playbooks")
    except HostError as error:
        fault = error.faults[0]
        return warning("ansible", fault.what, fault.hint)


def examine_engine(tool: Tool) -> HostFinding:
    """The program of an engine that only some bases need."""
    try:
        find_tool(tool)
    except HostError:
        what = f"is not installed; only bases with `engine: {tool.engine}` need it"
        return fine(tool.program, f"{what}: {tool.install}")
    try:
        return fine(tool.program, f"{check_tool(tool)}: makes first layers on request")
    except HostError as error:
        fault = error.faults[0]
        return warning(tool.program, fault.what, tool.install)


def is_present(tool: str, path: str) -> bool:
    """Whether a tool of host-packages.txt is installed; programs are searched on `path`."""
    if tool.startswith("module:"):
        return importlib.util.find_spec(tool.removeprefix("module:")) is not None
    if tool.startswith("/"):
        patterns = (pattern.lstrip("/") for pattern in tool.split("|"))
        return any(any(matching(Path("/"), pattern)) for pattern in patterns)
    return shutil.which(tool, os.F_OK, path=path) is not None  # others may not run it


def find_tool_version(tool: str) -> str | None:
    option = "-version" if tool == "mksquashfs" else "--version"
    done = run([tool, option], check=False)
    found = re.search(r"(?<!\d)\d+(\.\d+)+", done.stdout + done.stderr)
    return found.group() if found else None


def numbers(version: str) -> tuple[int, ...]:
    """`2022.7` as (2022, 7), for comparisons of versions."""
    return tuple(map(int, version.split(".")))


def examine_root(path: str, *, is_root: bool) -> HostFinding:
    if is_root:
        return fine("root", "this is root")
    if is_present("sudo", path):
        return fine("root", "sudo is available for the steps that need root")
    return problem("root", "not root, and sudo is not installed", "su -c 'imagebuilder …'")


def examine_kernel(path: str, *, is_root: bool) -> tuple[HostFinding, ...]:
    """Whether namespaces and overlayfs work, by trying both."""
    if not is_root:
        text = "not tested: this needs root"
        return fine("namespaces", text), fine("overlayfs", text)
    if not (is_present("unshare", path) and is_present("setpriv", path)):
        return ()  # reported by examine_need
    namespaces = examine_probe("namespaces", ("true",), "allow mount, pid, ipc and uts namespaces")
    if not namespaces.ok:
        return (namespaces,)  # overlayfs can only be tried in a namespace
    return namespaces, examine_probe("overlayfs", ("sh", "-euc", OVERLAY_PROBE), "modprobe overlay")


def examine_probe(subject: str, argv: tuple[str, ...], fix: str) -> HostFinding:
    """The result of a command in its own namespaces."""
    done = run([*NAMESPACES, *argv], check=False)
    if done.status == 0:
        return fine(subject, "works")
    said = done.stderr.strip().splitlines()
    return problem(subject, said[-1] if said else f"status {done.status}", fix)


def examine_sandbox(state: Path, path: str, *, is_root: bool) -> HostFinding:
    if not is_root:
        return fine("sandbox", "not tested: this needs root")
    if not (is_present("unshare", path) and is_present("setpriv", path)):
        return problem("sandbox", "not tested: unshare or setpriv is missing")
    try:
        check_sandbox(state)
    except HostError as error:
        fault = error.faults[0]
        return problem("sandbox", fault.what, fault.hint)
    return fine("sandbox", "works: its root user has no rights on this host")


def examine_state(state: Path, *, is_root: bool) -> tuple[HostFinding, ...]:
    """The file system that holds, or will hold, the store and the package pool."""
    there = nearest_folder(state)
    kind = type_of_mount(there.resolve(), read_mounts())
    space = examine_space(shutil.disk_usage(there).free, there)
    fitness = examine_type(kind, there)
    if fitness.level is not Severity.PROBLEM and is_noexec(there):
        what = f"{there} is mounted noexec: programs of images cannot run there"
        fix = f"mount it with exec (findmnt --target {there} shows the mount), "
        fix += "or set IMAGEBUILDER_STATE to another folder"
        fitness = problem("state", what, fix)
    elif fitness.ok and os.access(there, os.W_OK):
        fitness = examine_features(there, kind, is_root=is_root)
    return space, fitness


def nearest_folder(path: Path) -> Path:
    """The last existing folder on the way to `path`, as far as this user may read."""
    return next(p for p in (path, *path.parents) if os.path.isdir(p))  # noqa: PTH112 - never raises


def examine_space(free: int, folder: Path) -> HostFinding:
    """Whether there is space for roots and packages; `free` in bytes."""
    what = f"{format_size(free)} free in {folder}"
    if free >= SPACE_LOW:
        return fine("space", what)
    level = Severity.WARNING if free >= SPACE_NONE else Severity.PROBLEM
    return HostFinding(
        "space", level, f"{what}, but a large image needs {format_size(SPACE_LOW)}",
        "run imagebuilder gc, or set IMAGEBUILDER_STATE to a larger disk",
    )  # fmt: skip


def examine_type(kind: str, folder: Path) -> HostFinding:
    """Whether a file system of this type can hold the state directory."""
    fix = "set IMAGEBUILDER_STATE to a folder on ext4, xfs or btrfs"
    if kind in UNFIT_TYPES or kind.startswith("fuse."):
        return problem("state", f"{folder} is on {kind}, which cannot hold an overlayfs", fix)
    if kind in ("tmpfs", "ramfs"):
        return warning("state", f"{folder} is in memory ({kind})", fix)
    return fine("state", f"{folder} is on {kind}")


def examine_features(folder: Path, kind: str, *, is_root: bool) -> HostFinding:
    """Whether hard links and extended attributes work in `folder`, by trying them."""
    names = ("user.imagebuilder", "trusted.imagebuilder") if is_root else ("user.imagebuilder",)
    doing = "write"
    try:
        with scratch(folder, ".imagebuilder-doctor-") as trial:
            file = trial / "file"
            file.touch()
            doing = "make hard links"
            (trial / "link").hardlink_to(file)
            doing = "set extended attributes"
            for name in names:
                os.setxattr(file, name, b"1")
    except OSError as error:
        return problem(
            "state",
            f"could not {doing} in {folder} ({kind}): {error.strerror}",
            "set IMAGEBUILDER_STATE to a folder on ext4, xfs or btrfs",
        )
    return fine("state", f"{folder} is on {kind}: hard links and attributes work")


def type_of_mount(folder: Path, mounts: Iterable[tuple[str, str]]) -> str:
    """The file system type of `folder` (no symlinks), given read_mounts()."""
    best, kind = Path("/"), "unknown"
    for mounted, type_ in mounts:
        point = Path(mounted)
        if folder.is_relative_to(point) and point.is_relative_to(best):
            best, kind = point, type_
    return kind


def examine_memory(meminfo: str) -> HostFinding:
    """Total memory, from the text of /proc/meminfo (its kB are 1024 bytes)."""
    found = re.search(r"^MemTotal:\s+(\d+) kB$", meminfo, re.MULTILINE)
    total = int(found[1]) * 1024 if found else 0
    if total < MEMORY_LOW:
        return warning(
            "memory",
            f"{format_size(total)} in total, too little to pack images",
            f"build on a machine with {format_size(MEMORY_LOW)} or more",
        )
    return fine("memory", f"{format_size(total)} in total")


def examine_kvm(device: Path) -> HostFinding:
    """For information only: an existing device may still not run a kernel."""
    if device.exists():
        return fine("kvm", f"{device} exists; a boot test shows whether it works")
    what = f"{device} does not exist: machines are emulated, which is slower"
    return fine("kvm", what)
