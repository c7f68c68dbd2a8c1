# SPDX-License-Identifier: Apache-2.0
"""mkosi(1), run as a program that only installs the packages.

After that, mkosi makes a bootable image with tools of the host (systemd's presets, users and
hardware database, in the host's version), which later steps do with the root's own tools.  So its
format is `none`, with which it stops there, and a prepare script, which runs just before, copies
the root out.
"""

from __future__ import annotations

from pathlib import Path

from imagebuilder.families.apt.engines.request import ON_HOST, BootstrapRequest, remove_excluded
from imagebuilder.families.apt.install import NO_INITRD
from imagebuilder.families.tool import Tool, check_path, find_tool
from imagebuilder.workspace import Workspace

MKOSI = Tool("mkosi", "mkosi", "imagebuilder setup --engines", least=24)
# mkosi's names of architectures, by Debian's.
ARCHITECTURES = {"amd64": "x86-64", "arm64": "arm64"}
# mkosi(1), PrepareScripts= and BuildSources=: the paths inside.  It is also the build script,
# without which mkosi 25 and newer have nothing to do; as such it gets other arguments.
PREPARE = """\
#!/bin/sh
[ "${1:-}" = final ] || exit 0
exec cp --archive /buildroot/. /work/src/merged/
"""
# mkosi sets these to 1, but hooks of packages must run as with every other engine.
HOOKS = {"SYSTEMD_HWDB_UPDATE_BYPASS": "0", "KERNEL_INSTALL_BYPASS": "0"}


def run_mkosi(request: BootstrapRequest, workspace: Workspace) -> None:
    """Fill `workspace.merged`.  Raises HostError without mkosi, WorkError if it fails."""
    check_path(MKOSI, workspace.work)
    work = workspace.work / f"{workspace.upper}.mkosi"
    for name in ("config", "workspace", "cache", "out"):
        (work / name).mkdir(parents=True)
    script = work / "prepare"
    script.write_text(PREPARE)
    script.chmod(0o755)
    words = options(request, workspace, work, script)
    workspace.run_engine([find_tool(MKOSI), *words, "build"], sees=ON_HOST, writes=[work])
    remove_excluded(workspace, request.path_excludes)


def options(request: BootstrapRequest, workspace: Workspace, work: Path, script: Path) -> list[str]:
    """Everything is on the command line: sections of its files differ between versions of mkosi.

    The distribution only chooses the mirrors, which the local one replaces: `debian` works for
    every distribution with apt.
    """
    environment = {**NO_INITRD, **HOOKS}
    return [
        f"--directory={work / 'config'}",
        "--distribution=debian", f"--release={request.suite}",
        f"--architecture={ARCHITECTURES[request.architecture]}",
        f"--local-mirror=file://{request.repository}",
        "--repository-key-check=no",
        "--format=none", "--bootable=no",
        *(f"--package={name}" for name in request.packages),
        "--with-recommends=no", "--with-docs=yes",
        f"--prepare-script={script}", f"--build-script={script}",
        f"--build-sources={workspace.merged}:merged",
        f"--workspace-dir={work / 'workspace'}", f"--package-cache-dir={work / 'cache'}",
        f"--output-dir={work / 'out'}",
        f"--source-date-epoch={workspace.epoch}",
        *(f"--environment={name}={value}" for name, value in environment.items()),
    ]  # fmt: skip
