# SPDX-License-Identifier: Apache-2.0
"""Tunnels that take all traffic."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.proof.reading.networkd import NETWORKD
from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.system.network.nic import prove_netdevs
from tests.unit.proof.trees import make_tree, running, subject

NETDEV = "/etc/systemd/network/50-wg0.netdev"
STARTED = Startup(frozenset((NETWORKD,)), {}, {}, ())


def told(root: Path, tunnel: str, peer: str, startup: Startup = STARTED) -> list[str]:
    text = f"[NetDev]\nName=wg0\nKind=wireguard\n[WireGuard]\n{tunnel}\n[WireGuardPeer]\n{peer}\n"
    return [
        each.what
        for each in prove_netdevs(running(subject(make_tree(root, {NETDEV: text})), startup))
    ]


@pytest.mark.parametrize(
    ("tunnel", "peer"),
    [
        ("RouteTable=main", "AllowedIPs=0.0.0.0/0"),
        ("RouteTable=1000", "RouteTable=254\nAllowedIPs=10.0.0.0/8, 0.0.0.0/0"),
    ],
)
def test_everything_goes_through_it(tunnel: str, peer: str, tmp_path: Path) -> None:
    (what,) = told(tmp_path, tunnel, peer)
    assert what.startswith("all traffic of the node goes through wg0, the tunnel's own packets")


@pytest.mark.parametrize(
    ("tunnel", "peer"),
    [
        ("RouteTable=main", "AllowedIPs=10.0.0.0/8"),
        ("RouteTable=1000", "AllowedIPs=0.0.0.0/0"),
        ("", "AllowedIPs=0.0.0.0/0"),
    ],
)
def test_a_part_of_it_or_nothing(tunnel: str, peer: str, tmp_path: Path) -> None:
    assert told(tmp_path, tunnel, peer) == []


def test_nobody_makes_the_tunnel(tmp_path: Path) -> None:
    nobody = Startup(frozenset(), {}, {}, ())
    assert told(tmp_path, "RouteTable=main", "AllowedIPs=0.0.0.0/0", nobody) == []
