# SPDX-License-Identifier: Apache-2.0
"""Which file networkd uses for the NIC that a node booted from, and what it must have."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.image.proof import Level
from imagebuilder.proof.reading.networkd import fits
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.system.network.nic import prove_nic, prove_waiting
from imagebuilder.root import Root
from tests.unit.proof.trees import Content, Link, make_tree

ETC, USR = "/etc/systemd/network", "/usr/lib/systemd/network"
BARE = "[Match]\nName=en* eth*\n\n[Network]\nDHCP=ipv4\n"
KEPT = BARE + "KeepConfiguration=yes\n"
WHOLE = KEPT + "[DHCPv4]\nClientIdentifier=mac\n"
MAC = "[DHCPv4]\nClientIdentifier=mac\n"
BOOT = "71-default.network"


@pytest.mark.parametrize(
    "files",
    [
        {f"{ETC}/20-wired.network": WHOLE},
        {f"{ETC}/80-wired.network": BARE},
        {f"{USR}/{BOOT}": BARE},
        # The initrd's drop-in extends a file with that name too.
        {f"{ETC}/{BOOT}": BARE},
        {f"{ETC}/{BOOT}.d/10-mtu.conf": "[Link]\nMTUBytes=9000\n"},
        {f"{ETC}/20-wired.network": BARE, f"{ETC}/20-wired.network.d/keep.conf":
         f"[Network]\nKeepConfiguration=dynamic\n{MAC}"},
        {f"{USR}/20-wired.network": BARE, f"{ETC}/20-wired.network": Link("/dev/null")},
        {f"{USR}/20-wired.network": BARE, f"{ETC}/20-wired.network": WHOLE},
        {f"{ETC}/20-fabric.network": BARE.replace("[Network]", "Driver=mlx5_core\n[Network]")},
        {f"{ETC}/20-vm.network": BARE.replace("[Network]", "Virtualization=vm\n[Network]")},
        {f"{ETC}/{BOOT}": Link("/dev/null"), f"{USR}/85-netboot.network": WHOLE},
    ],
)  # fmt: skip
def test_files_that_keep_the_address_or_are_not_used(
    tmp_path: Path, files: dict[str, Content]
) -> None:
    assert list(prove_nic(make_tree(tmp_path, files))) == []


@pytest.mark.parametrize(
    ("files", "level", "path", "said"),
    [
        ({f"{ETC}/20-wired.network": BARE}, Level.FAULT, f"{ETC}/20-wired.network",
         "20-wired.network is used for the NIC that the node booted from, but without KeepConf"),
        ({f"{USR}/20-wired.network": BARE + MAC}, Level.FAULT, f"{USR}/20-wired.network",
         "without KeepConfiguration=yes"),
        ({f"{ETC}/20-wired.network": KEPT}, Level.WARNING, f"{ETC}/20-wired.network",
         "without ClientIdentifier=mac"),
        ({f"{ETC}/{BOOT}": BARE.replace("ipv4", "no")}, Level.FAULT, f"{ETC}/{BOOT}",
         "loses its DHCP lease"),
        ({f"{ETC}/{BOOT}.d/90-static.conf": "[Network]\nDHCP=no\n"}, Level.FAULT,
         f"{ETC}/{BOOT}.d/90-static.conf", "loses its DHCP lease"),
        ({f"{ETC}/{BOOT}.d/90-site.conf": "[Network]\nKeepConfiguration=no\n"}, Level.FAULT,
         f"{ETC}/{BOOT}.d/90-site.conf", "without KeepConfiguration=yes"),
        ({f"{ETC}/{BOOT}": Link("/dev/null"), f"{USR}/85-wired.network": BARE}, Level.FAULT,
         f"{USR}/85-wired.network", "without KeepConfiguration=yes"),
        ({f"{ETC}/20-wired.network": f"{WHOLE}[Link]\nActivationPolicy=always-down\n"},
         Level.FAULT, f"{ETC}/20-wired.network", "loses its link"),
        ({f"{ETC}/20-wired.network": f"{WHOLE}[Link]\nMTUBytes=9000\n"}, Level.WARNING,
         f"{ETC}/20-wired.network", "MTUBytes=9000: if its switch takes no jumbo frames"),
        ({f"{ETC}/10-jumbo.link": "[Match]\nType=ether\n[Link]\nMTUBytes=9K\n"}, Level.WARNING,
         f"{ETC}/10-jumbo.link", "MTUBytes=9K: if its switch takes no jumbo frames"),
        ({f"{ETC}/20-wired.network": BARE.replace("Name=en* eth*", "Driver=!mlx5_core")},
         Level.FAULT, f"{ETC}/20-wired.network", "without KeepConfiguration=yes"),
    ],
)  # fmt: skip
def test_files_that_lose_the_address(
    tmp_path: Path, files: dict[str, Content], level: Level, path: str, said: str
) -> None:
    make_tree(tmp_path, files)
    (found,) = prove_nic(Root(tmp_path))
    assert (found.level, found.evidence[0].path, said in found.what) == (level, path, True)


LINK = f"{ETC}/10-nic.link"


@pytest.mark.parametrize(
    ("match", "lines", "said"),
    [
        ("Type=ether", "BitsPerSecond=100M\nAutoNegotiation=no", "from: BitsPerSecond=100M"),
        ("OriginalName=*", "BitsPerSecond=100000K\nDuplex=half", "00K and Duplex=half"),
        ("Type=ether", "BitsPerSecond=10G", ""),
        ("Type=ether", "BitsPerSecond=1000M\nDuplex=full", ""),
        ("Type=ether", "BitsPerSecond=fast", ""),
        ("Type=wlan", "BitsPerSecond=100M", ""),
    ],
)
def test_links_that_are_made_slow(tmp_path: Path, match: str, lines: str, said: str) -> None:
    make_tree(tmp_path, {LINK: f"[Match]\n{match}\n[Link]\n{lines}\n"})
    found = list(prove_nic(Root(tmp_path)))
    assert [said in one.what for one in found] == ([True] if said else [])


@pytest.mark.parametrize(
    ("patterns", "values", "fitting"),
    [
        ("en* eth*", ("eno1",), True),
        ("!en* eth*", ("eno1",), False),
        ("!lo wl*", ("eno1",), True),
        ("wl* en*", ("eno1",), True),
        ("!*", (), True),
        ("bond", (), False),
        ("en* !eno1", ("eno1",), False),
    ],
)
def test_patterns(patterns: str, values: tuple[str, ...], fitting: bool) -> None:  # noqa: FBT001
    assert fits(patterns, values) == fitting


WAIT = "/usr/lib/systemd/systemd-networkd-wait-online"
ONLINE = "systemd-networkd-wait-online.service"


@pytest.mark.parametrize(
    ("words", "level", "said"),
    [
        (("--any", "--timeout=30"), None, ""),
        (("--any", "--ipv4", "--timeout=0"), None, ""),
        (("--timeout=0",), Level.FAULT, "waits for every NIC for ever: a node with a NIC without"),
        (("--timeout", "0"), Level.FAULT, "waits for every NIC for ever"),
        (
            ("--interface=eth0", "--timeout=0"),
            Level.FAULT,
            "for eth0 for ever: a node without eth0",
        ),
        (("-i", "eth0", "--any", "--timeout=0"), Level.FAULT, "waits for eth0 for ever"),
        (("--interface=eth0",), None, ""),
        ((), Level.WARNING, "boot waits 120 s for every NIC"),
        (("--timeout=20",), Level.WARNING, "boot waits 20 s for every NIC"),
    ],
)
def test_what_boot_waits_for(words: tuple[str, ...], level: Level | None, said: str) -> None:
    unit = LoadedUnit(ONLINE, ("/etc/w.conf",), {}, {"ExecStart": (("/old",), (WAIT, *words))})
    found = list(prove_waiting(Startup(frozenset((ONLINE,)), {}, {ONLINE: unit}, ())))
    assert [one.level for one in found] == ([level] if level else [])
    assert all(said in one.what for one in found)
    assert list(prove_waiting(Startup(frozenset(), {}, {ONLINE: unit}, ()))) == []


def test_boot_that_waits_for_nothing() -> None:
    assert list(prove_waiting(Startup(frozenset((ONLINE,)), {}, {}, ()))) == []
