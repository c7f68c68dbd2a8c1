# SPDX-License-Identifier: Apache-2.0
"""Add the locked packages of one overlay with apt, from a repository that holds nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.digest import Json
from imagebuilder.lock.repository import make_repository
from imagebuilder.lock.types import LockedPackage
from imagebuilder.lock.verified import Locked
from imagebuilder.process import check_tools
from imagebuilder.sandbox import INSIDE, Bind
from imagebuilder.steps import clean
from imagebuilder.steps.bytecode import run_uncheck
from imagebuilder.steps.clean import run_clean
from imagebuilder.steps.step import Counted, Step
from imagebuilder.workspace import Workspace

VERSION = 1
# What dpkg says of a package it sets up, and what debootstrap makes of that.
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

# The kernel hooks of dracut and initramfs-tools leave the initrd alone when they see this: it is
# made once, from the finished packages (steps/initrd.py), and not at every trigger.
NO_INITRD = {"INITRD": "No"}


def check_apt() -> None:
    """Raise HostError unless the host has what packages are served with."""
    check_tools("apt-get", "dpkg-deb")


def inputs_of(packages: tuple[LockedPackage, ...]) -> Json:
    """Packages as a digest sees them: exact name, version, architecture and content."""
    return {p.name: f"{p.version} {p.architecture} {p.sha256}" for p in packages}


def render_excludes(globs: tuple[str, ...]) -> str:
    """dpkg(1) --path-exclude options as entries of DPkg::Options."""
    return " ".join(f'"--path-exclude={glob}";' for glob in globs)


@dataclass(frozen=True)
class PackagesStep(Step):
    """The packages that an overlay adds to those below."""

    overlay: str
    suite: str
    architecture: str
    packages: tuple[LockedPackage, ...]
    path_excludes: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"packages {self.overlay}"

    def inputs(self) -> Mapping[str, Json]:
        return {
            "step": f"packages {VERSION}.{clean.VERSION}",
            "packages": inputs_of(self.packages),
            "path-excludes": list(self.path_excludes),
            "epoch": self.epoch,
        }

    @property
    def takes(self) -> tuple[Locked, ...]:
        return self.packages

    @property
    def checks(self) -> tuple[Callable[[], object], ...]:
        return (check_apt,)

    @property
    def counted(self) -> Counted:
        return Counted(len(self.packages), "packages", SET_UP)

    def apply(self, workspace: Workspace) -> None:
        given = workspace.work / f"{workspace.upper}.apt"
        make_repository(
            self.packages,
            workspace.pool,
            given / "repository",
            suite=self.suite,
            architecture=self.architecture,
            epoch=self.epoch,
        )
        make_apt_files(given, self.suite, self.path_excludes)
        binds = [
            Bind(given / name, INSIDE / name) for name in ("repository", "apt.conf", "sources.list")
        ]
        names = [f"{p.name}:{p.architecture}={p.version}" for p in self.packages]
        script = (
            f"mkdir -p {INSIDE}/lists/partial {INSIDE}/cache/archives/partial {INSIDE}/log && "
            'apt-get update && exec apt-get install --yes "$@"'
        )
        workspace.run(
            ["sh", "-c", script, "sh", *qualified(names)],
            binds=binds,
            env={"APT_CONFIG": f"{INSIDE}/apt.conf", **NO_INITRD},
        )
        run_clean(workspace)
        run_uncheck(workspace)


def qualified(names: list[str]) -> list[str]:
    """apt's spelling: architecture `all` is not written."""
    return [name.replace(":all=", "=") for name in names]


def make_apt_files(folder: Path, suite: str, path_excludes: tuple[str, ...]) -> None:
    """apt.conf and sources.list for the sandbox, in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "apt.conf").write_text(APT_CONF % render_excludes(path_excludes))
    (folder / "sources.list").write_text(
        f"deb [trusted=yes] file:{INSIDE}/repository {suite} main\n"
    )
