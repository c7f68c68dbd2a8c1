# SPDX-License-Identifier: Apache-2.0
"""Who asks our DHCP server and is no node, from lines as dnsmasq and the journal have them."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from imagebuilder.nodes.evidence.dhcp_clients import (
    MOST,
    DhcpClient,
    read_dhcp_clients,
    write_dhcp_clients,
)
from imagebuilder.nodes.types import Node, Nodes
from imagebuilder.serve.dhcp_clients import PAUSE, DhcpClientWatch, note_journal, read_journal
from imagebuilder.tree import Tree, make_tree
from tests.unit.nodes_world import MAC1, MAC2

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
UEFI = "PXEClient:Arch:00007:UNDI:003016"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_tree(tmp_path / "tree")


def asks(mac: str, vendor: str, number: int = 11, address: str = "") -> list[str]:
    said = f"{address} {mac}" if address else mac
    return [
        f"dnsmasq-dhcp[7]: {number} vendor class: {vendor}",
        f"dnsmasq-dhcp[7]: {number} DHCP{'ACK' if address else 'DISCOVER'}(br0) {said}",
    ]


def hear(watch: DhcpClientWatch, lines: list[str], at: datetime = NOON) -> None:
    for line in lines:
        watch.hear(line, at)


def test_a_stranger_is_noted_with_its_first_and_last_question(tree: Tree) -> None:
    watch = DhcpClientWatch(tree, lambda mac: mac == MAC1)
    hear(watch, [*asks(MAC1, UEFI), *asks(MAC2, UEFI, 12)])
    later = NOON + timedelta(hours=1)
    hear(watch, [*asks(MAC2, UEFI, 13, "10.77.0.130"), "10.77.0.130 200 1 0.0 /boot.ipxe"], later)
    watch.save(PAUSE)
    assert read_dhcp_clients(tree) == (
        DhcpClient(MAC2, UEFI, 7, "10.77.0.130", NOON.isoformat(), later.isoformat()),
    )


def test_what_its_system_says_later_hides_no_firmware(tree: Tree) -> None:
    watch = DhcpClientWatch(tree, lambda _: False)
    hear(watch, [*asks(MAC2, UEFI), *asks(MAC2, "dracut", 12, "10.77.0.130")])
    watch.save(PAUSE)
    (asked,) = read_dhcp_clients(tree)
    assert (asked.vendor, asked.architecture, asked.address) == (UEFI, 7, "10.77.0.130")
    hear(watch, asks(MAC1, "udhcp 1.36"))
    hear(watch, asks(MAC1, "PXEClient:Arch:00000:UNDI:002001", 13))
    watch.save(2 * PAUSE)
    assert [each.architecture for each in read_dhcp_clients(tree)] == [7, 0]


def test_our_own_question_is_no_machine(tree: Tree) -> None:
    watch = DhcpClientWatch(tree, lambda _: False)
    hear(watch, asks(MAC2, "imagebuilder"))
    watch.save(PAUSE)
    assert not tree.dhcp_clients.exists()


def test_it_is_written_now_and_then_and_read_again(tree: Tree) -> None:
    watch = DhcpClientWatch(tree, lambda _: False)
    hear(watch, asks(MAC1, UEFI))
    watch.save(PAUSE)
    hear(watch, asks(MAC2, UEFI, 12))
    watch.save(PAUSE + 1)
    assert [each.mac for each in read_dhcp_clients(tree)] == [MAC1]
    watch.save(2 * PAUSE)
    again = DhcpClientWatch(tree, lambda mac: mac == MAC1)  # it has become a node
    hear(again, asks(MAC2, UEFI, 13), NOON + timedelta(days=1))
    again.save(PAUSE)
    (asked,) = read_dhcp_clients(tree)
    assert (asked.mac, asked.first) == (MAC2, NOON.isoformat())


def test_strangers_push_out_each_other_and_last_those_that_netboot(tree: Tree) -> None:
    watch = DhcpClientWatch(tree, lambda _: False)
    hear(watch, asks(MAC1, UEFI))
    for number in range(MOST + 50):
        hear(watch, asks(f"52:54:01:00:{number // 256:02x}:{number % 256:02x}", "phone", number))
    watch.save(PAUSE)
    found = read_dhcp_clients(tree)
    assert len(found) == MOST
    assert MAC1 in {each.mac for each in found}


def test_nodes_push_out_nobody(tree: Tree) -> None:
    watch = DhcpClientWatch(tree, lambda mac: mac != MAC1)
    hear(watch, asks(MAC1, "phone"))
    for number in range(MOST + 1):
        hear(watch, asks(f"52:54:01:00:{number // 256:02x}:{number % 256:02x}", UEFI, number))
    watch.save(PAUSE)
    assert [each.mac for each in read_dhcp_clients(tree)] == [MAC1]


@pytest.mark.parametrize(
    "line",
    [
        "dnsmasq-dhcp[7]: 11 DHCPDISCOVER(br0) 52-54-00-77-00-02",
        "dnsmasq-dhcp[7]: 11 DHCPACK(br0) 10.77.0.999999 52:54:00:77:00:02",
        "dnsmasq-dhcp[7]: 11 vendor class: \x1b[31m\u202e" + "x" * 5000,
    ],
)
def test_no_line_makes_a_file_that_cannot_be_read(tree: Tree, line: str) -> None:
    watch = DhcpClientWatch(tree, lambda _: False)
    hear(watch, [line, *asks(MAC1, UEFI, 12), "dnsmasq-dhcp[7]: 11 DHCPDISCOVER(br0) " + MAC2])
    watch.save(PAUSE)
    assert MAC1 in {each.mac for each in read_dhcp_clients(tree)}
    assert "\x1b" not in tree.dhcp_clients.read_text()


def test_a_damaged_file_is_made_anew(tree: Tree) -> None:
    tree.dhcp_clients.write_text("{")
    watch = DhcpClientWatch(tree, lambda _: False)
    hear(watch, asks(MAC1, UEFI))
    watch.save(PAUSE)
    assert [each.mac for each in read_dhcp_clients(tree)] == [MAC1]


def test_the_journal_has_the_time_of_each_line(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `journalctl --output=json` prints it; text that is no UTF-8 comes as a list of numbers."""
    stamp = str(int(NOON.timestamp() * 1e6))
    lines = [{"__REALTIME_TIMESTAMP": stamp, "MESSAGE": line} for line in asks(MAC2, UEFI)]
    odd: list[object] = [{"__REALTIME_TIMESTAMP": stamp, "MESSAGE": [255]}, {"MESSAGE": "x"}, []]
    (tmp_path / "said").write_text("".join(f"{json.dumps(e)}\n" for e in [*odd, *lines]) + "{\n")
    program = tmp_path / "bin/journalctl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\ncat {tmp_path}/said\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    write_dhcp_clients(tree, [DhcpClient(MAC1, UEFI, 7, "", NOON.isoformat(), NOON.isoformat())])
    note_journal(tree, Nodes(nodes=(Node("n1", (MAC1,), "generic"),)))
    (asked,) = read_dhcp_clients(tree)
    assert (asked.mac, asked.last) == (MAC2, NOON.isoformat())
    assert f"--cursor-file={tree.serve}/asked.cursor" in (tmp_path / "asked").read_text()


# As journalctl: the first lines after a cursor, or the last ones without; a damaged cursor fails.
JOURNALCTL = """\
#!{python}
import json, sys
from pathlib import Path
given = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
cursor, most = Path(given["--cursor-file"]), int(given["--lines"])
lines = Path({said!r}).read_text().splitlines()
start = int(cursor.read_text()) if cursor.exists() else max(0, len(lines) - most)
shown = lines[start : start + most]
for line in shown:
    print(json.dumps({{"MESSAGE": line, "__REALTIME_TIMESTAMP": {stamp!r}}}))
cursor.write_text(str(start + len(shown)))
"""


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lines of the journal that the program reads."""
    said, program = tmp_path / "said", tmp_path / "bin/journalctl"
    program.parent.mkdir()
    stamp = str(int(NOON.timestamp() * 1e6))
    program.write_text(JOURNALCTL.format(python=sys.executable, said=str(said), stamp=stamp))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setattr("imagebuilder.serve.dhcp_clients.MOST_LINES", 100)
    said.write_text("")
    return said


def append(journal: Path, lines: list[str]) -> None:
    with journal.open("a") as stream:
        stream.writelines(f"{line}\n" for line in lines)


def test_a_machine_that_asks_after_a_flood_is_found_at_once(tree: Tree, journal: Path) -> None:
    append(journal, asks(MAC1, UEFI))
    note_journal(tree, Nodes())
    append(journal, ["dnsmasq-dhcp[7]: 12 DHCPDISCOVER(br0) a flood"] * 5000)
    append(journal, asks(MAC2, UEFI, 13))
    note_journal(tree, Nodes())
    assert [each.mac for each in read_dhcp_clients(tree)] == [MAC1, MAC2]


def test_lines_are_read_once(tree: Tree, journal: Path) -> None:
    append(journal, asks(MAC1, UEFI))
    assert len([*read_journal(tree)]) == 2
    append(journal, asks(MAC2, UEFI))
    assert [MAC2 in line for line, _ in read_journal(tree)] == [False, True]
    assert not [*read_journal(tree)]


def test_a_damaged_cursor_is_forgotten(tree: Tree, journal: Path) -> None:
    (tree.serve / "asked.cursor").write_bytes(b"\0" * 100)
    append(journal, asks(MAC1, UEFI))
    note_journal(tree, Nodes())
    assert [each.mac for each in read_dhcp_clients(tree)] == [MAC1]
    assert not [*read_journal(tree)]
