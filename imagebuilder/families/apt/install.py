# SPDX-License-Identifier: Apache-2.0
"""Add packages with apt from a repository that has nothing else; unpack source packages."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from imagebuilder.families.apt.repository import make_repository
from imagebuilder.families.protocol import Packages
from imagebuilder.lock.builds import files_of
from imagebuilder.lock.types import LockedSourcePackage
from imagebuilder.process import check_tools
from imagebuilder.sandbox.sandbox import INSIDE, Bind
from imagebuilder.workspace import Workspace

FILES, SOURCES = INSIDE / "files", INSIDE / "source"
# dpkg's line for a package that it sets up, and debootstrap's.
SET_UP = re.compile(r"(?:Setting up|I: Configuring) ([^\s:]+?)(?::\w+)?(?: \(|\.\.\.)")

# The root's own apt state stays untouched: lists, caches and sources are elsewhere.
APT_CONF = f"""\
Dir::Etc::sourcelist "{INSIDE}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State::lists "{INSIDE}/lists";
Dir::State::extended_states "{INSIDE}/extended_states";
Dir::Cache "{INSIDE}/cache";
Dir::Log "{INSIDE}/log";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
APT::Get::AllowUnauthenticated "true";
Acquire::Languages "none";
DPkg::Use-Pty "false";
DPkg::Options {{ "--force-unsafe-io"; "--force-confold"; %s }};
"""

# With this the kernel hooks of dracut and initramfs-tools do not make an initrd: it is made once,
# from the finished packages (steps/initrd.py), and not at every trigger.
NO_INITRD = {"INITRD": "No"}


def check_apt() -> None:
    """Raise HostError unless the host has the programs that serve packages."""
    check_tools("apt-get", "dpkg-deb")


def run_install(added: Packages, workspace: Workspace) -> None:
    inputs = workspace.work / f"{workspace.upper}.apt"
    make_repository(added, workspace.pool, inputs / "repository")
    make_apt_files(inputs, added.suite, added.path_excludes)
    binds = [
        Bind(inputs / name, INSIDE / name) for name in ("repository", "apt.conf", "sources.list")
    ]
    # apt's spelling: without the architecture `all`.
    names = [f"{p.name}:{p.architecture}={p.version}".replace(":all=", "=") for p in added.packages]
    script = (
        f"mkdir -p {INSIDE}/lists/partial {INSIDE}/cache/archives/partial {INSIDE}/log && "
        'apt-get update && exec apt-get install --yes "$@"'
    )
    workspace.run(
        ["sh", "-c", script, "sh", *names],
        binds=binds,
        env={"APT_CONFIG": f"{INSIDE}/apt.conf", **NO_INITRD},
    )


def make_apt_files(folder: Path, suite: str, path_excludes: tuple[str, ...]) -> None:
    """apt.conf and sources.list for the sandbox, in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    excludes = " ".join(f'"--path-exclude={glob}";' for glob in path_excludes)  # dpkg(1)
    (folder / "apt.conf").write_text(APT_CONF % excludes)
    (folder / "sources.list").write_text(
        f"deb [trusted=yes] file:{INSIDE}/repository {suite} main\n"
    )


def unpack_source(package: LockedSourcePackage, sources: Path, tools: Workspace) -> None:
    """Unpack one source package at `sources`/NAME.

    Its files were verified against the lock; dpkg-source also checks them against the .dsc.
    """
    files = tools.work / f"{tools.upper}.files" / package.name
    files.mkdir(parents=True)
    for file, path in zip(package.files, tools.pool.take(files_of(package)), strict=True):
        shutil.copyfile(path, files / file.name)
    tools.run(
        ["dpkg-source", "--extract", FILES / package.files[0].name, SOURCES / package.name],
        binds=[Bind(files, FILES), Bind(sources, SOURCES, writable=True)],
    )
    shutil.rmtree(files)
