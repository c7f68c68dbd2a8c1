# SPDX-License-Identifier: Apache-2.0
"""Add packages to a root from outside, with the host's rpm(8).

rpm chooses nothing: it gets exactly these files.  It is the host's because that of Enterprise Linux
9 writes the time of day into its database, and 4.18 and newer take SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from imagebuilder.errors import InputError
from imagebuilder.families.protocol import Engine, Packages
from imagebuilder.families.rpm.canonical import make_canonical
from imagebuilder.families.tool import Tool
from imagebuilder.families.unpacked import link_or_copy, remove_traces
from imagebuilder.lock.types import LockedPackage
from imagebuilder.phrases import list_first
from imagebuilder.process import check_tools
from imagebuilder.root import Root
from imagebuilder.workspace import Workspace

ENGINES: Mapping[str, Engine] = {
    "rpm": Engine(Tool("rpm", "rpm", "imagebuilder setup --rpm", least=4))
}
DATABASE = "/var/lib/rpm"
# The folders of which rpm gets no say: file systems of the sandbox are mounted there.
MOUNTED = "/proc:/dev:/sys"
# What rpm of Enterprise Linux 9 has and other builds of it do not.
MACROS = (
    f"_dbpath {DATABASE}", "_transaction_color 3", "_prefer_color 2", f"_netsharedpath {MOUNTED}",
)  # fmt: skip
# A package of modules alone may be built for a kernel that the root does not have.
DEPMOD = """\
for release; do
    [ ! -d "/usr/lib/modules/$release/kernel" ] || depmod "$release"
done
"""
# rpm takes paths for globs, which names of packages are not: it works where they lie.
SCRIPT = """\
root=$1; cd "$2"; shift 2
mkdir -p -m 0555 "$root/proc" "$root/sys"
mkdir -p -m 0755 "$root/dev"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
exec rpm --root "$root" "$@"
"""
# rpm's line for a package that it installs: its name, version, release and architecture.
SET_UP = re.compile(r"(\S+)-[^-\s]+-[^-\s]+\.(?:noarch|x86_64|aarch64)$")
# A scriptlet after the installation that fails is a warning for rpm.
FAILED = re.compile(r"warning: (%\w+\(\S+\)) scriptlet failed")
# The packages' signatures were verified when they were fetched; their digests are verified here.
# `--noplugins`: without them no daemon is called, and no label of this host gets into the root.
OPTIONS = ("--install", "--verbose", "--nosignature", "--noplugins")
# With this kernel-install(8) neither makes an initrd, which is made once, from the finished
# packages (steps/initrd.py), nor entries for a boot loader.
NO_INITRD = {"KERNEL_INSTALL_BYPASS": "1"}
# A folder and everything below it: all that rpm can leave out.
BELOW = re.compile(r"((?:/[^/*?\[\]]+)+)/\*")
# Any program of a package may print such lines without an end.
MOST_FAILED, MOST_NAMED = 1000, 3


def run_bootstrap(engine: str, first: Packages, workspace: Workspace) -> None:
    """Make the first layer: it begins with an empty folder, and is no different else."""
    assert engine in ENGINES
    run_install(first, workspace)


def run_install(added: Packages, workspace: Workspace) -> None:
    """Install exactly `added` into the stacked root.  Raises WorkError."""
    folder = workspace.work / f"{workspace.upper}.rpms"
    names = serve_rpms(added, workspace, folder)
    failed: list[str] = []
    watching(workspace, failed).run_engine(
        [
            "sh", "-ec", SCRIPT, "sh", workspace.merged, folder,
            *(f"--define={macro}" for macro in MACROS), *OPTIONS,
            *excludes(added.path_excludes), *names,
        ],
        env={"RPM_FORCE_DEBIAN": "1", **NO_INITRD},
    )  # fmt: skip
    remove_traces(workspace.tree, ())
    make_canonical(workspace)
    finish(workspace, failed)


def watching(workspace: Workspace, failed: list[str]) -> Workspace:
    """The workspace, which also adds the scriptlets that fail to `failed`."""

    def on_line(line: str) -> None:
        if len(failed) < MOST_FAILED and (match := FAILED.search(line)):
            failed.append(match[1])
        if workspace.on_line:
            workspace.on_line(line)

    return replace(workspace, on_line=on_line)


def finish(workspace: Workspace, failed: Sequence[str]) -> None:
    """What kernel-install(8) would have done, and a note on scriptlets that failed."""
    modules = Root(workspace.tree).names("/usr/lib/modules")
    if modules:
        workspace.run(["sh", "-ec", DEPMOD, "sh", *modules])
    if failed and workspace.on_note:
        workspace.on_note(f"failed: {list_first(failed, MOST_NAMED)}; rpm goes on without them")


def serve_rpms(served: Packages, workspace: Workspace, folder: Path) -> list[str]:
    """Link the packages into `folder`; returns their names there, in order."""
    folder.mkdir()
    ordered = sorted(served.packages, key=lambda each: (each.name, each.version))
    for package, path in zip(ordered, workspace.pool.take(ordered), strict=True):
        link_or_copy(path, folder / file_name(package))
    return [file_name(package) for package in ordered]


def file_name(package: LockedPackage) -> str:
    return f"{package.name}-{package.version.replace(':', '_')}.{package.architecture}.rpm"


def excludes(globs: Sequence[str]) -> list[str]:
    """rpm's options that leave paths out.  Raises InputError for a glob that is no whole folder."""
    folders = []
    for glob in globs:
        match = BELOW.fullmatch(glob)
        if match is None:
            raise InputError(
                f"rpm leaves out whole folders alone, and {glob} is not one",
                where="path-excludes of the base",
                hint="write /FOLDER/*, or remove the paths with `prune` in an overlay",
            )
        folders.append(f"--excludepath={match[1]}")
    return folders


def check_rpm() -> None:
    """Raise HostError unless the host has the programs that fetch, verify and install packages."""
    check_tools("rpm", "rpmkeys", "curl", "gpgv")
