# SPDX-License-Identifier: Apache-2.0
"""Which files of networkd match the ends of containers' networks."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.system.network.nic import prove_ends
from tests.unit.proof.trees import Content, Program, make_tree, running, subject, warnings

ETC = "/etc/systemd/network"
WIRED = f"{ETC}/80-wired.network"
ENGINE: dict[str, Content] = {"/usr/bin/dockerd": Program()}
DHCP = "[Network]\nDHCP=yes\n"


def told(
    tree: Path, files: dict[str, Content], *, job: str = "systemd-networkd.service"
) -> list[str]:
    return warnings(
        prove_ends(running(subject(make_tree(tree, files)), Startup(frozenset((job,)), {}, {}, ())))
    )


@pytest.mark.parametrize(
    ("match", "network", "count"),
    [
        ("Type=ether", DHCP, 1),
        ("Name=*", DHCP, 1),
        ("Type=ether wlan", DHCP, 1),
        ("Driver=!mlx5_core", DHCP, 1),
        ("Type=ether", "[Network]\nAddress=10.0.0.2/24\n", 1),
        ("Type=ether\nKind=!*", DHCP, 0),
        ("Type=ether\nKind=!veth", DHCP, 0),
        ("Name=en* eth*", DHCP, 0),
        ("Type=ether\nName=!veth*", DHCP, 0),
        ("Type=ether\nPath=pci-*", DHCP, 0),
        ("MACAddress=52:54:00:00:00:01", DHCP, 0),
        ("Type=ether", "[Network]\nDHCP=no\nLinkLocalAddressing=no\n", 0),
        ("Type=ether", f"{DHCP}[Link]\nUnmanaged=yes\n", 0),
    ],
)
def test_files_that_match_the_ends(match: str, network: str, count: int, tmp_path: Path) -> None:
    found = told(tmp_path, {**ENGINE, WIRED: f"[Match]\n{match}\n{network}"})
    assert ["matches the ends of containers' networks" in what for what in found] == [True] * count


def test_the_first_file_counts(tmp_path: Path) -> None:
    files: dict[str, Content] = {**ENGINE, WIRED: f"[Match]\nType=ether\n{DHCP}"}
    files[f"{ETC}/10-containers.network"] = "[Match]\nKind=veth\n[Link]\nUnmanaged=yes\n"
    assert told(tmp_path, files) == []


def test_without_an_engine_or_networkd(tmp_path: Path) -> None:
    files: dict[str, Content] = {WIRED: f"[Match]\nType=ether\n{DHCP}"}
    assert told(tmp_path, files) == []
    assert told(tmp_path, {**files, **ENGINE}, job="NetworkManager.service") == []
