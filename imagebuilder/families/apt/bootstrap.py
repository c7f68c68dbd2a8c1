# SPDX-License-Identifier: Apache-2.0
"""The first layer: an engine turns the locked packages of the base into a root.

An engine is a function `run_NAME(packages, workspace)` in engines/: it fills `workspace.merged`
from an archive that holds exactly these packages.  What else it leaves behind (its sources list,
its logs) is removed here, so engines stay interchangeable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from imagebuilder.families.apt.engines.debootstrap import run_debootstrap
from imagebuilder.families.apt.engines.dib import DIB, run_dib
from imagebuilder.families.apt.engines.mkosi import MKOSI, run_mkosi
from imagebuilder.families.apt.engines.mmdebstrap import run_mmdebstrap
from imagebuilder.families.apt.engines.request import BootstrapRequest
from imagebuilder.families.apt.repository import make_repository
from imagebuilder.families.protocol import Engine, Packages
from imagebuilder.families.tool import Tool
from imagebuilder.families.unpacked import remove_traces
from imagebuilder.workspace import Workspace


@dataclass(frozen=True, kw_only=True)
class AptEngine(Engine):
    """An engine; `run` fills `workspace.merged`."""

    run: Callable[[BootstrapRequest, Workspace], None]


ENGINES: Mapping[str, AptEngine] = {
    "mmdebstrap": AptEngine(
        Tool("mmdebstrap", "mmdebstrap", "imagebuilder setup"), run=run_mmdebstrap
    ),
    "debootstrap": AptEngine(
        Tool("debootstrap", "debootstrap", "imagebuilder setup"), version=2, run=run_debootstrap
    ),
    "mkosi": AptEngine(MKOSI, run=run_mkosi),
    "dib": AptEngine(DIB, run=run_dib),
}
# What engines leave besides packages; finalise writes the root's sources.
TRACES = (
    "etc/apt/sources.list", "etc/apt/sources.list.d", "etc/apt/apt.conf.d/99mmdebstrap",
    "etc/dpkg/dpkg.cfg.d/99mmdebstrap", "etc/hostname",
    "etc/.resolv.conf.systemd-resolved.bak",  # the builder's, which the package found in the root
    "var/log/bootstrap.log", "debootstrap",
    "var/lib/dbus/machine-id", "var/lib/dpkg/available", "var/lib/dpkg/cmethopt",  # debootstrap
    "var/cache/debconf/tmp.ci",
    "efi", "boot/loader",  # mkosi, for a boot loader
)  # fmt: skip


def run_bootstrap(engine: str, first: Packages, workspace: Workspace) -> None:
    repository = workspace.work / f"{workspace.upper}.repository"
    make_repository(first, workspace.pool, repository)
    request = BootstrapRequest(
        suite=first.suite,
        architecture=first.architecture,
        packages=tuple(p.name for p in first.packages),
        repository=repository,
        path_excludes=first.path_excludes,
    )
    ENGINES[engine].run(request, workspace)
    remove_traces(workspace.tree, TRACES)
