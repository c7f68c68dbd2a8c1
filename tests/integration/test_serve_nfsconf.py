# SPDX-License-Identifier: Apache-2.0
"""What `serve --install` writes for the kernel's NFS server, read by its own tools and systemd."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from imagebuilder.process import run
from imagebuilder.serve.nfsconf import FEWEST_THREADS, NFS_CONF, RETRY, nfs_server_files
from imagebuilder.serve.units import place_units
from tests.systemd import verify
from tests.unit.test_serve_nfsconf import KERNEL, write


@pytest.fixture
def placed(tmp_path: Path) -> Path:
    """A system with the files, and a server's own configuration."""
    write(tmp_path, "etc/nfs.conf", "[nfsd]\nthreads=8\n")
    place_units(tmp_path, nfs_server_files(KERNEL, tmp_path))
    return tmp_path


def look_up(root: Path, key: str) -> str:
    """What rpc.nfsd would find."""
    argv = ["nfsconf", "--file", os.fspath(root / "etc/nfs.conf"), "--get", "nfsd", key]
    return run(argv, check=False).stdout.strip()


def test_the_nfs_tools_read_the_address(placed: Path) -> None:
    for key, value in (("host", KERNEL.server), ("threads", "8")):
        assert look_up(placed, key) == value
    (placed / NFS_CONF).unlink()
    assert look_up(placed, "host") == ""


def test_the_server_has_threads_for_many_nodes(tmp_path: Path) -> None:
    write(tmp_path, "etc/nfs.conf", "[nfsd]\n# threads=8\n")
    place_units(tmp_path, nfs_server_files(KERNEL, tmp_path))
    assert int(look_up(tmp_path, "threads")) >= FEWEST_THREADS


def test_systemd_takes_the_restart_of_a_oneshot(placed: Path, tmp_path: Path) -> None:
    server = tmp_path / "imagebuilder-stand-in.service"
    for restart, said in (("", False), ("Restart=always\n", True)):
        text = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n"
        server.write_text(text + (placed / RETRY).read_text() + restart)
        scratch = tmp_path / f"scratch{said}"
        scratch.mkdir()
        assert bool(verify([server], scratch)) is said
