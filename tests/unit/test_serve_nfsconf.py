# SPDX-License-Identifier: Apache-2.0
"""Whether the host's NFS server is ours to bind, and what is written for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.serve.install import EXPORTS, leftovers, uninstall
from imagebuilder.serve.nfsconf import (
    NFS_CONF,
    RETRY,
    find_other_use,
    nfs_server_files,
    plan_threads,
)
from imagebuilder.serve.options import Nfs
from imagebuilder.serve.render import render_exports
from imagebuilder.serve.units import UnitFile, place_units
from tests.unit.test_serve_render import FULL

KERNEL = replace(FULL, nfs=Nfs.KERNEL)


def write(root: Path, path: str, text: str) -> Path:
    """A file of the system."""
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return place


@pytest.mark.parametrize(
    ("path", "text", "reason"),
    [
        ("etc/exports", "# nothing\n\n", ""),
        ("etc/exports", "/srv/data 10.9.0.0/24(rw)\n", "exports something else"),
        ("etc/exports.d/data.exports", "/srv/data *(ro)\n", "exports something else"),
        ("etc/exports.d/data.disabled", "/srv/data *(ro)\n", ""),
        ("etc/nfs.conf", "[nfsd]\n# host=\nthreads=8\n[nfsdcld]\nhost=a\n", ""),
        ("etc/nfs.conf", "[nfsd]\nthreads=8\n host = 10.9.0.1\n", "already sets host="),
        ("etc/nfs.conf.d/local.conf", "[ nfsd ]\nhost=10.9.0.1\n", "already sets host="),
    ],
)
def test_the_server_is_ours_if_nobody_else_uses_it(
    tmp_path: Path, path: str, text: str, reason: str
) -> None:
    place = write(tmp_path, path, text)
    assert find_other_use(tmp_path) == (f"{place} {reason}" if reason else "")


def test_what_we_wrote_is_no_other_use_and_is_removed(tmp_path: Path) -> None:
    export = UnitFile(EXPORTS, render_exports(KERNEL), "roots")
    place_units(tmp_path, (export, *nfs_server_files(KERNEL, tmp_path)))
    assert find_other_use(tmp_path) == ""
    assert leftovers(tmp_path) == {tmp_path / path for path in (EXPORTS, NFS_CONF, RETRY)}
    assert f"removed    {tmp_path / RETRY}" in uninstall(tmp_path, live=False)
    assert not (tmp_path / RETRY).parent.exists()
    assert leftovers(tmp_path) == set()


@pytest.mark.parametrize(("cpus", "threads"), [(1, 16), (2, 16), (8, 64), (64, 128)])
def test_threads_for_the_processors(cpus: int, threads: int) -> None:
    assert plan_threads(cpus) == threads


def test_more_connections_than_nodes_are_kept(tmp_path: Path) -> None:
    retry = next(file for file in nfs_server_files(KERNEL, tmp_path) if file.path == RETRY)
    assert "'echo 10000 > /proc/fs/nfsd/max_connections'" in retry.text
