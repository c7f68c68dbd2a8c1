# SPDX-License-Identifier: Apache-2.0
"""Lists of interfaces to leave out: they replace a default with the loopback interface in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.image.proof import Level
from imagebuilder.proof.reading.environment import uses_loopback
from imagebuilder.proof.services.devices import prove_sessions
from tests.unit.proof.trees import make_tree, subject, warnings

NCCL, MPI = "/etc/nccl.conf", "/etc/openmpi/openmpi-mca-params.conf"


@pytest.mark.parametrize(
    ("name", "value", "is_told"),
    [
        ("NCCL_SOCKET_IFNAME", "^docker0", True),
        ("NCCL_SOCKET_IFNAME", "^docker,veth,cni", True),
        ("NCCL_SOCKET_IFNAME", "^=docker0,loop", True),
        ("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "^docker0", True),
        ("OMPI_MCA_btl_tcp_if_exclude", "docker0", True),
        ("oob_tcp_if_exclude", "docker0,virbr0", True),
        # NCCL leaves out what begins with a name.
        ("NCCL_SOCKET_IFNAME", "^docker0,l", False),
        ("NCCL_SOCKET_IFNAME", " ^lo,docker ", False),
        ("NCCL_SOCKET_IFNAME", "^=docker0,lo", False),
        ("NCCL_SOCKET_IFNAME", "enp1s0", False),
        ("NCCL_SOCKET_IFNAME", "=enp1s0", False),
        ("NCCL_IB_HCA", "^mlx5_1", False),
        ("OMPI_MCA_btl_tcp_if_exclude", "docker0,127.0.0.1/8", False),
        ("OMPI_MCA_btl_tcp_if_exclude", "", False),
        ("OMPI_MCA_btl_tcp_if_include", "docker0", False),
    ],
)
def test_lists_without_the_loopback_interface(name: str, value: str, *, is_told: bool) -> None:
    assert uses_loopback(name, value) is is_told


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        (NCCL, "# Not Docker's bridge.\nNCCL_SOCKET_IFNAME=^docker0\n", "=^docker0 of every prog"),
        ("/home/ann/.nccl.conf", "NCCL_SOCKET_IFNAME=^docker0\n", "does not exclude lo"),
        (NCCL, "NCCL_SOCKET_IFNAME=eth0\n", "no NIC of a node has that name"),
        (MPI, "btl_tcp_if_exclude = docker0\n", "btl_tcp_if_exclude=docker0 of every"),
        ("/etc/environment", "NCCL_SOCKET_IFNAME=^docker0\n", "of everybody who logs in"),
        (NCCL, "NCCL_SOCKET_IFNAME=^docker0,lo\nNCCL_DEBUG=WARN\n", ""),
        (NCCL, "# NCCL_SOCKET_IFNAME=^docker0\n", ""),
        (MPI, "btl_tcp_if_exclude = lo,docker0\n", ""),
    ],
)
def test_files_that_every_program_reads(path: str, text: str, said: str, tmp_path: Path) -> None:
    found = list(prove_sessions(subject(make_tree(tmp_path, {path: text}))))
    assert [each.level for each in found] == ([Level.WARNING] if said else [])
    assert [said in what for what in warnings(found)] == ([True] if said else [])
