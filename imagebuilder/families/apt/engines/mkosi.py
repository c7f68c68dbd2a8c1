# SPDX-License-Identifier: Apache-2.0
"""mkosi(1), run as a program: it installs the packages, and no more.

Of what mkosi does we want the part up to the installed packages.  The rest makes a bootable image
with tools of the host (systemd's presets, users and hardware database, in the host's version), and
the steps above this one do that from the root itself.  So its format is `none`, with which it stops
there, and a prepare script, which it runs just before, hands the root over.
"""

from __future__ import annotations

from pathlib import Path

from imagebuilder.families.apt.engines.excluded import remove_excluded
from imagebuilder.families.apt.engines.request import BootstrapRequest
from imagebuilder.families.apt.install import NO_INITRD
from imagebuilder.families.tool import Tool, check_path, find_tool
from imagebuilder.workspace import Workspace

MKOSI = Tool("mkosi", "mkosi", "imagebuilder setup --engines", least=24)
# mkosi's names of architectures, by Debian's.
ARCHITECTURES = {"amd64": "x86-64", "arm64": "arm64"}
# mkosi(1), PrepareScripts= and BuildSources=: what they are seen as.  It is the build script too,
# without which mkosi 25 and newer see nothing to do; then it is called with other words.
PREPARE = """\
#!/bin/sh
[ "${1:-}" = final ] || exit 0
exec cp --archive /buildroot/. /work/src/merged/
"""
# What mkosi sets to 1 otherwise: hooks of packages are to run here as with every engine.
HOOKS = {"SYSTEMD_HWDB_UPDATE_BYPASS": "0", "KERNEL_INSTALL_BYPASS": "0"}


def run_mkosi(request: BootstrapRequest, workspace: Workspace) -> None:
    """Fill `workspace.merged`.  Raises HostError without mkosi, WorkError when it fails."""
    check_path(MKOSI, workspace.work)
    room = workspace.work / f"{workspace.upper}.mkosi"
    for name in ("config", "workspace", "cache", "out"):
        (room / name).mkdir(parents=True)
    script = room / "prepare"
    script.write_text(PREPARE)
    script.chmod(0o755)
    workspace.run_engine([find_tool(MKOSI), *options(request, workspace, room, script), "build"])
    remove_excluded(workspace, request.path_excludes)


def options(request: BootstrapRequest, workspace: Workspace, room: Path, script: Path) -> list[str]:
    """Everything on the command line: the sections of settings differ between versions of mkosi.

    The distribution only chooses the mirrors, which the local one replaces: `debian` is right for
    all that have apt.
    """
    environment = {**NO_INITRD, **HOOKS}
    return [
        f"--directory={room / 'config'}",
        "--distribution=debian", f"--release={request.suite}",
        f"--architecture={ARCHITECTURES[request.architecture]}",
        f"--local-mirror=file://{request.repository}",
        "--repository-key-check=no",
        "--format=none", "--bootable=no",
        *(f"--package={name}" for name in request.packages),
        "--with-recommends=no", "--with-docs=yes",
        f"--prepare-script={script}", f"--build-script={script}",
        f"--build-sources={workspace.merged}:merged",
        f"--workspace-dir={room / 'workspace'}", f"--package-cache-dir={room / 'cache'}",
        f"--output-dir={room / 'out'}",
        f"--source-date-epoch={workspace.epoch}",
        *(f"--environment={name}={value}" for name, value in environment.items()),
    ]  # fmt: skip
