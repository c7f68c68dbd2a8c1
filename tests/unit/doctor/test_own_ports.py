# SPDX-License-Identifier: Apache-2.0
"""What the doctor says of ports beside our daemons; ss, rpcinfo and dnsmasq are fakes."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from ipaddress import IPv4Interface
from pathlib import Path

import pytest

from imagebuilder.doctor.finding import HostFinding, Severity
from imagebuilder.doctor.serve import examine_ports
from imagebuilder.serve import nfs
from imagebuilder.serve.interface import Interface
from imagebuilder.tree import Tree

WIRE = Interface("lan0", "52:54:00:77:00:01", IPv4Interface("10.77.0.1/24"))
# The kernel's NFS server is no process: ss names nobody, as for sockets of other users.
SOCKETS = """\
udp UNCONN 0 0 10.77.0.1:69 0.0.0.0:* {dnsmasq}
tcp LISTEN 0 32 10.77.0.1:53 0.0.0.0:* {dnsmasq}
tcp LISTEN 0 64 {nfs}:2049 0.0.0.0:*
"""
NFS = "tcp port 2049, NFS: listens on"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Tree, int]]:
    """A tree that dnsmasq serves, its process, and a kernel whose NFS server runs."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(nfs, "KERNEL_THREADS", tmp_path / "threads")
    (tmp_path / "threads").write_text("8\n")
    files = tmp_path / "tree/serve/installed"
    files.mkdir(parents=True)
    sleep = shutil.which("sleep")
    assert sleep
    shutil.copy(sleep, tmp_path / "bin/dnsmasq")
    with subprocess.Popen([tmp_path / "bin/dnsmasq", "60"]) as dnsmasq:
        # The kernel closes Popen's pipe, which says that the program runs, before it gives the
        # process its new name.
        name = Path(f"/proc/{dnsmasq.pid}/comm")
        give_up = time.monotonic() + 60
        while name.read_text() != "dnsmasq\n" and time.monotonic() < give_up:
            time.sleep(0.01)
        (files / "dnsmasq.pid").write_text(f"{dnsmasq.pid}\n")
        yield Tree(tmp_path / "tree"), dnsmasq.pid
        dnsmasq.kill()


def examine(tree: Tree, user: str, nfs_address: str) -> list[HostFinding]:
    """What is said of ports when ss names `user` as the owner of dnsmasq's sockets."""
    said = {"ss": SOCKETS.format(dnsmasq=user, nfs=nfs_address), "rpcinfo": ""}
    for name, text in said.items():
        program = tree.path.parent / "bin" / name
        program.write_text(f"#!/bin/sh\ncat <<'.'\n{text}.\n")
        program.chmod(0o755)
    return list(examine_ports(tree, WIRE))


@pytest.mark.parametrize("user", ['users:(("dnsmasq",pid={pid},fd=4))', ""], ids=["root", "other"])
@pytest.mark.parametrize(
    ("address", "level", "where"),
    [
        ("10.77.0.1", Severity.OK, "10.77.0.1"),
        (
            "0.0.0.0",
            Severity.WARNING,
            "every address: networks other than 10.77.0.0/24 can reach it",
        ),
    ],
)
def test_the_kernels_nfs_server_is_listed_beside_our_daemons(
    tree: tuple[Tree, int], user: str, address: str, level: Severity, where: str
) -> None:
    found = examine(tree[0], user.format(pid=tree[1]), address)
    assert [f.level for f in found if f.subject == "ports"] == [Severity.OK], found
    (said,) = (f for f in found if f.what.startswith(NFS))
    assert (said.level, said.what) == (level, f"{NFS} {where}")
    assert {f.what.partition(",")[0] for f in found if f.subject == "listening"} == {
        "udp port 69", "tcp port 53", "tcp port 2049",
    }  # fmt: skip
