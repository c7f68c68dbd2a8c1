# SPDX-License-Identifier: Apache-2.0
"""Let the kernel's NFS server listen only on the nodes' interface, if it has no other use, and take
as many nodes as there are.

`host=` applies to the whole server.  On a host with other exports, other networks could no longer
mount them; so nothing is written there, nor if `host=` is already set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from imagebuilder.nodes.scripts import render_template
from imagebuilder.serve.config import ServeConfig
from imagebuilder.serve.units import UNITS, UnitFile, is_ours

NFS_CONF = Path("etc/nfs.conf.d/imagebuilder.conf")
RETRY = UNITS / "nfs-server.service.d/imagebuilder.conf"
COMMAND = "serve"
# The kernel closes the oldest of more connections; its own limit is 20 for each thread and 60 more
# (svc_check_conn_limits()), so that with 8 threads 220 nodes are too many.
CONNECTIONS = 10000
FEWEST_THREADS, THREADS_PER_CPU, MOST_THREADS = 16, 8, 128


def nfs_server_files(config: ServeConfig, root: Path) -> tuple[UnitFile, ...]:
    """The files for the kernel's NFS server of the system below `root`."""
    threads = None if is_set(root, "threads") else plan_threads(os.cpu_count() or 1)
    return (
        UnitFile(
            NFS_CONF, render_template("nfs.conf.j2", config=config, threads=threads),
            f"the NFS server listens only on {config.server}", starts=False,
        ),
        UnitFile(
            RETRY, render_template("nfs-server.conf.j2", connections=CONNECTIONS),
            "restarts it until that address exists, and takes more nodes", starts=False,
        ),
    )  # fmt: skip


def plan_threads(cpus: int) -> int:
    """How many threads serve NFS: more than the 8 of old defaults, each with 1 MiB of memory."""
    return max(FEWEST_THREADS, min(THREADS_PER_CPU * cpus, MOST_THREADS))


def find_other_use(root: Path) -> str:
    """What else uses the NFS server of the system below `root`; empty if nothing."""
    exports = [root / "etc/exports", *sorted((root / "etc/exports.d").glob("*.exports"))]
    for path in not_ours(exports):
        lines = path.read_text().splitlines()
        if any(line.partition("#")[0].strip() for line in lines):  # more than comments
            return f"{path} exports something else"
    elsewhere = is_set(root, "host")
    return f"{elsewhere} already sets host=" if elsewhere else ""


def is_set(root: Path, key: str) -> Path | None:
    """The file of nfs.conf(5) that sets a key below [nfsd] and is not ours."""
    settings = [root / "etc/nfs.conf", *sorted((root / "etc/nfs.conf.d").glob("*.conf"))]
    return next((path for path in not_ours(settings) if has_key(path.read_text(), key)), None)


def not_ours(paths: Iterable[Path]) -> list[Path]:
    """The existing files that we have not written."""
    return [path for path in paths if path.is_file() and not is_ours(path, COMMAND)]


def has_key(text: str, key: str) -> bool:
    """Whether a file of nfs.conf(5) sets a key below [nfsd]."""
    section = ""
    for line in text.splitlines():
        if found := re.match(r"\s*\[\s*(\w+)", line):
            section = found[1].lower()
        elif section == "nfsd" and re.match(rf"\s*{key}\s*=\s*\S", line):
            return True
    return False


def find_nfs_files(root: Path) -> set[Path]:
    """Those of nfs_server_files() that were installed below a root."""
    return {root / path for path in (NFS_CONF, RETRY) if is_ours(root / path, COMMAND)}


def tell_left_alone(reason: str) -> str:
    """The line that says that the file was not changed."""
    return f"unchanged  {os.fspath('/' / NFS_CONF)}: {reason}, so NFS listens on every address"
