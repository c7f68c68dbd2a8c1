# SPDX-License-Identifier: Apache-2.0
"""Let the kernel's NFS server listen only on the nodes' interface, if it has no other use.

`host=` applies to the whole server.  On a host with other exports, other networks could no longer
mount them; so nothing is written there, nor if `host=` is already set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from imagebuilder.serve.config import ServeConfig
from imagebuilder.serve.render import render_template
from imagebuilder.serve.units import UNITS, UnitFile, is_ours

NFS_CONF = Path("etc/nfs.conf.d/imagebuilder.conf")
RETRY = UNITS / "nfs-server.service.d/imagebuilder.conf"
COMMAND = "serve"


def nfs_server_files(config: ServeConfig) -> tuple[UnitFile, ...]:
    """The files that make the kernel's NFS server listen only on the nodes' interface."""
    return (
        UnitFile(
            NFS_CONF, render_template("nfs.conf.j2", config=config),
            f"the NFS server listens only on {config.server}", starts=False,
        ),
        UnitFile(
            RETRY, render_template("nfs-server.conf.j2"),
            "restarts it until that address exists", starts=False,
        ),
    )  # fmt: skip


def find_other_use(root: Path) -> str:
    """What else uses the NFS server of the system below `root`; empty if nothing."""
    exports = [root / "etc/exports", *sorted((root / "etc/exports.d").glob("*.exports"))]
    for path in not_ours(exports):
        if has_words(path.read_text()):
            return f"{path} exports something else"
    settings = [root / "etc/nfs.conf", *sorted((root / "etc/nfs.conf.d").glob("*.conf"))]
    for path in not_ours(settings):
        if names_host(path.read_text()):
            return f"{path} already sets host="
    return ""


def not_ours(paths: Iterable[Path]) -> list[Path]:
    """The existing files that we have not written."""
    return [path for path in paths if path.is_file() and not is_ours(path, COMMAND)]


def has_words(text: str) -> bool:
    """Whether a file of exports(5) has more than comments."""
    return any(line.partition("#")[0].strip() for line in text.splitlines())


def names_host(text: str) -> bool:
    """Whether a file of nfs.conf(5) sets `host` below [nfsd]."""
    section = ""
    for line in text.splitlines():
        if found := re.match(r"\s*\[\s*(\w+)", line):
            section = found[1].lower()
        elif section == "nfsd" and re.match(r"\s*host\s*=\s*\S", line):
            return True
    return False


def find_nfs_files(root: Path) -> set[Path]:
    """Those of nfs_server_files() that were installed below a root."""
    return {root / path for path in (NFS_CONF, RETRY) if is_ours(root / path, COMMAND)}


def tell_left_alone(reason: str) -> str:
    """The line that says that the file was not changed."""
    return f"unchanged  {os.fspath('/' / NFS_CONF)}: {reason}, so NFS listens on every address"
