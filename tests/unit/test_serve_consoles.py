# SPDX-License-Identifier: Apache-2.0
"""Consoles of nodes over UDP: whose they are, where a boot begins, and what nobody can exceed."""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from imagebuilder.nodes.evidence.consoles import (
    ConsoleBoot,
    find_consoles,
    follow_console,
    hide_tickets,
    parse_name,
)
from imagebuilder.nodes.types import NETCONSOLE_PORT, Node
from imagebuilder.process import Word
from imagebuilder.program import program
from imagebuilder.serve.consoles import (
    BOOTS,
    BURST,
    MOST_BYTES,
    NAMES,
    READY,
    SHORTEST,
    Owners,
    Receiver,
    give,
    open_socket,
    parse_packet,
    receive,
)
from imagebuilder.serve.render import render_consoles
from imagebuilder.tree import Tree, make_tree
from tests.unit.nodes_world import MAC1, MAC2

HERE = "127.0.0.1"


class Clock:
    """Seconds that pass when a test says so."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_tree(tmp_path / "tree")


@pytest.fixture
def receiver(tree: Tree, clock: Clock) -> Receiver:
    return Receiver(tree, "n1", clock)


def message(seconds: float, text: str) -> bytes:
    """As netconsole sends it with a plus before its parameter."""
    return f"6,339,{int(seconds * 1e6)},-;{text}\n SUBSYSTEM=pci\n".encode()


def lines(tree: Tree, node: str = "n1") -> list[list[str]]:
    return [boot.lines() for boot in find_consoles(tree, node)]


def past(tree: Tree, clock: Clock, minutes: int) -> None:
    """Let time pass: the boots that there are began earlier, as their names say."""
    clock.now += 60 * minutes
    for boot in find_consoles(tree, "n1"):
        start = datetime.fromtimestamp(boot.start.timestamp() - 60 * minutes, UTC)
        boot.path.rename(boot.path.with_name(f"{start:%Y%m%dT%H%M%SZ}.log"))


@pytest.mark.parametrize(
    ("packet", "at", "text"),
    [
        (b"6,339,5140900,-;NET: Registered\n SUBSYSTEM=x\n", 5.1409, b"NET: Registered"),
        (b"4,1,0,-,ncfrag=0/2000;first half", 0.0, b"first half"),
        (b"30,12,70,-,caller=T1;imagebuilder: stage root\n", 7e-05, b"imagebuilder: stage root"),
        (b"plain words\n", None, b"plain words"),
        (b"", None, b""),
        (b"6,1,99999999999999999999999,-;x", None, b"6,1,99999999999999999999999,-;x"),
        (b"\xff\xfe;\n\n", None, b"\xff\xfe;"),
    ],
)
def test_a_packet_has_a_time_and_a_text(packet: bytes, at: float | None, text: bytes) -> None:
    assert parse_packet(packet) == (at, text)


def test_a_boot_begins_when_the_clock_goes_back(
    tree: Tree, receiver: Receiver, clock: Clock
) -> None:
    for at in (0.0, 3.0, 2.5, 40.0):  # two messages of different processors in between
        receiver.take(message(at, f"at {at}"))
        clock.now += 10
    assert receiver.began == 100
    past(tree, clock, 10)
    receiver.take(message(0.0, "again"))
    receiver.take(message(9.0, "and on"))
    assert lines(tree) == [
        [f"[{at:12.6f}] at {at}" for at in (0.0, 3.0, 2.5, 40.0)],
        ["[    0.000000] again", "[    9.000000] and on"],
    ]


def test_linux_says_its_version_at_the_start_of_a_boot(
    tree: Tree, receiver: Receiver, clock: Clock
) -> None:
    receiver.take(message(0.5, "too early a crash"))
    past(tree, clock, 1)
    receiver.take(message(0.0, "Linux version 6.12"))
    assert len(lines(tree)) == 2


def test_whoever_starts_again_goes_on_with_the_boot(tree: Tree, clock: Clock) -> None:
    Receiver(tree, "n1", clock).take(message(50.0, "before"))
    past(tree, clock, 1)
    again = Receiver(tree, "n1", clock)
    again.take(message(51.0, "after"))
    assert lines(tree) == [["[   50.000000] before", "[   51.000000] after"]]
    past(tree, clock, 1)
    Receiver(tree, "n1", clock).take(message(0.0, "another boot"))
    assert len(lines(tree)) == 2


def test_few_boots_are_kept(tree: Tree, receiver: Receiver, clock: Clock) -> None:
    for number in range(BOOTS + 3):
        receiver.take(message(100.0, f"boot {number}"))
        past(tree, clock, 10)
        receiver.take(message(0.0, "Linux version"))
    assert len(lines(tree)) == BOOTS
    assert len([*tree.consoles("n1").iterdir()]) == BOOTS


def test_a_node_that_makes_up_boots_makes_no_files(
    tree: Tree, receiver: Receiver, clock: Clock
) -> None:
    for number in range(1000):
        clock.now += SHORTEST / 1000
        receiver.take(message(number % 2 * 1000, "Linux version"))
    assert len(lines(tree)) <= 2
    assert receiver.began < 100 + 2 * SHORTEST / 1000  # the first of them


def test_a_node_that_sends_without_end_fills_no_disk(
    tree: Tree, receiver: Receiver, clock: Clock
) -> None:
    for number in range(20_000):
        clock.now += 0.01
        receiver.take(message(100 + number, f"{number} {'x' * 900}"))
    sizes = [path.stat().st_size for path in tree.consoles("n1").iterdir()]
    assert len(sizes) == 2
    assert sum(sizes) <= 2 * MOST_BYTES
    assert " 19999 xxx" in lines(tree)[0][-1]  # the end of a boot is what tells why


def test_a_flood_is_cut_and_says_so(tree: Tree, receiver: Receiver, clock: Clock) -> None:
    for number in range(int(BURST) + 2000):
        receiver.take(message(1, f"{number}"))
    clock.now += 1
    receiver.take(message(1, "after"))
    said = lines(tree)[0]
    assert said[-2:] == ["(dropped 2000 lines that came too fast)", "[    1.000000] after"]


def test_what_a_node_sends_is_text(tree: Tree, receiver: Receiver) -> None:
    receiver.take(message(1, "\x1b[31mred\x1b]0;title\x07 \u202e\x00 end"))
    (said,) = lines(tree)[0]
    assert said.isprintable()
    assert "red" in said


def nodes_file(tree: Tree, *nodes: Node) -> Path:
    path = tree.serve / "names"
    path.write_text(render_consoles(nodes))
    return path


def test_only_nodes_that_want_it_are_received(tree: Tree, clock: Clock) -> None:
    fixed = Node("n1", (MAC1,), "p", address="10.77.0.11", netconsole=True)
    leased = Node("n2", (MAC2, "52:54:00:77:00:03"), "p", netconsole=True)
    other = Node("n3", ("52:54:00:77:00:04",), "p", address="10.77.0.13")
    owners = Owners(nodes_file(tree, fixed, leased, other), tree, clock)
    assert owners.find("10.77.0.11") == "n1"
    assert owners.find("10.77.0.13") == ""
    assert owners.find("10.77.0.140") == ""
    # A moment later it has asked for an address.
    (tree.serve / "leases").write_text("0 52:54:00:77:00:03 10.77.0.140 * *\n")
    assert owners.find("10.77.0.140") == "n2"
    assert nodes_file(tree, leased, other)
    assert owners.find("10.77.0.11") == "n1"  # what was found holds for a while
    clock.now += 60
    assert owners.find("10.77.0.11") == ""


def test_where_a_router_gives_addresses_the_kernel_knows_whose_they_are(
    tree: Tree, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin/ip"
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/sh\necho x >> {tmp_path}/asked\n"
        f"echo '10.77.0.140 dev br0 lladdr {MAC1} REACHABLE'\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    owners = Owners(nodes_file(tree, Node("n1", (MAC1,), "p", netconsole=True)), tree, clock)
    assert owners.find("10.77.0.140") == "n1"
    for number in range(500):  # strangers
        assert owners.find(f"10.77.1.{number % 256}") == ""
    assert len((tmp_path / "asked").read_text().split()) == 1


@contextmanager
def receiving(tree: Tree, *nodes: Node) -> Iterator[int]:
    """A receiver on the loopback interface; its port."""
    end = open_socket(HERE, "", 0)
    owners = Owners(nodes_file(tree, *nodes), tree, time.monotonic)
    thread = threading.Thread(target=receive, args=(end, tree, owners), daemon=True)
    thread.start()
    yield end.getsockname()[1]


def send(port: int, source: str, packets: list[bytes]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.bind((source, 0))
        for packet in packets:
            end.sendto(packet, (HERE, port))


def wait_for(tree: Tree, node: str, text: str) -> None:
    end = time.monotonic() + 20
    while not any(text in line for boot in lines(tree, node) for line in boot):
        assert time.monotonic() < end, f"{text} did not come"
        time.sleep(0.01)


def test_packets_are_received_from_a_node_and_from_nobody_else(tree: Tree) -> None:
    node = Node("n1", (MAC1,), "p", address="127.0.0.11", netconsole=True)
    with receiving(tree, node) as port:
        # Fewer than fit into the buffer of an ordinary user's socket, were nobody to read them.
        send(port, "127.0.0.99", [message(1, "stranger")] * 100)
        send(port, "127.0.0.11", [message(1, "Linux version 6.12"), message(2, "Kernel panic")])
        wait_for(tree, "n1", "Kernel panic")
    assert lines(tree) == [["[    1.000000] Linux version 6.12", "[    2.000000] Kernel panic"]]
    assert [path.name for path in (tree.serve / "consoles").iterdir()] == ["n1"]


# The receiver, once it has given up root's rights: it can import nothing, because Python may be in
# root's home.
ALONE = """
import sys
from imagebuilder.serve import consoles
give_up = consoles.drop_rights
def drop_rights(tree, user):
    give_up(tree, user)
    sys.meta_path.clear()
consoles.drop_rights = drop_rights
consoles.main(sys.argv[1:])
"""


def test_no_packet_needs_what_only_root_may_read(tree: Tree, tmp_path: Path) -> None:
    here, address = "127.0.77.1", "127.0.77.11"
    node = Node("n1", (MAC1,), "p", address=address, netconsole=True)
    (tmp_path / NAMES).write_text(render_consoles([node]))
    packets = [
        *(f"a {odd} b".encode() for odd in ("\x1b[2J", "\u202e", "\x80", "\ufeff", "\U000e0001")),
        bytes(range(256)),
        b"",
        message(1, "\ue000"),
        b"6,1,999999999999999999,-;x",
        b"Linux version " + b"\xff" * 1000,
        b"the last",
    ]
    argv: list[Word] = [sys.executable, "-c", ALONE, tmp_path, tree.path, here, ""]
    with program("consoles", argv, tmp_path / "log") as started:
        started.wait_for(READY, 20)
        for source in ("127.0.77.12", address):  # of a stranger, and of the node
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
                end.bind((source, 0))
                for packet in packets:
                    end.sendto(packet, (here, NETCONSOLE_PORT))
        wait_for(tree, "n1", "the last")
        assert started.status is None
    assert r"a \u202e b" in lines(tree)[0]


@pytest.mark.root  # who alone may have a buffer of that size (socket(7), SO_RCVBUFFORCE)
def test_a_whole_boot_that_comes_at_once_is_received(tree: Tree) -> None:
    node = Node("n1", (MAC1,), "p", address="127.0.0.11", netconsole=True)
    with receiving(tree, node) as port:
        send(port, "127.0.0.11", [message(n / 1000, f"line {n}: {'x' * 80}") for n in range(1500)])
        wait_for(tree, "n1", "line 1499:")
    assert len(lines(tree)[0]) == 1500


def test_a_console_is_followed_over_its_files_and_boots(
    tree: Tree, receiver: Receiver, clock: Clock
) -> None:
    for number in range(30):
        receiver.take(message(10, f"old {number}"))
    past(tree, clock, 1)
    steps: list[list[str]] = [["one"], [], ["two", "three"], ["boot"], ["four"]]

    def pause(_: float) -> None:
        for text in steps.pop(0):
            if text == "boot":
                past(tree, clock, 1)
                receiver.take(message(0, "Linux version"))
            else:
                receiver.take(message(20, text))

    told = follow_console(tree, "n1", pause)
    said = [next(told).rpartition("] ")[2] for _ in range(27)]
    assert said[0].startswith("--- boot of ")
    assert said[1:21] == [f"old {n}" for n in range(10, 30)]
    assert said[21:24] == ["one", "two", "three"]
    assert said[24].startswith("--- boot of ")
    assert said[25:] == ["Linux version", "four"]


def test_other_files_are_no_boots(tree: Tree) -> None:
    folder = tree.consoles("n1")
    folder.mkdir(parents=True)
    for name in ("20261123T120000Z.log", "20261123T120000Z.log.1", "notes", ".log", "x.log"):
        (folder / name).write_text(f"{name}\n")
    (boot,) = find_consoles(tree, "n1")
    assert boot == ConsoleBoot(
        datetime(2026, 11, 23, 12, tzinfo=UTC), folder / "20261123T120000Z.log"
    )
    assert boot.lines() == ["20261123T120000Z.log.1", "20261123T120000Z.log"]
    assert parse_name("20261399T000000Z.log") is None


SECRET = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize("lost", [None, 0, 1])
def test_no_part_of_a_ticket_is_shown_wherever_a_line_is_cut(
    tmp_path: Path, clock: Clock, lost: int | None
) -> None:
    line = (
        f"Kernel command line: quiet imagebuilder.report=http://10.0.0.1/report/{SECRET}/{'e' * 16}"
    )
    for cut in range(line.index("/report/") - 2, len(line) - 14):
        tree = make_tree(tmp_path / f"{cut}")
        receiver = Receiver(tree, "n1", clock)
        packets = [
            f"6,1,100,-,ncfrag=0/{len(line)};{line[:cut]}".encode(),
            f"6,1,100,-,ncfrag={cut}/{len(line)};{line[cut:]}".encode(),
            message(2, "facade0 beef1"),
        ]
        for packet in packets[:lost] + packets[lost + 1 :] if lost is not None else packets:
            receiver.take(packet)
        receiver.close()
        told = follow_console(tree, "n1", lambda _: None)
        (shown,) = lines(tree)
        assert [next(told) for _ in range(len(shown) + 1)][1:] == shown
        assert not [start for start in range(29) if SECRET[start : start + 4] in "".join(shown)]
        assert "beef1" in shown[-1]


def open_files(folder: Path) -> int:
    """How many files below a folder this process has open."""
    found = 0
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += path.readlink().is_relative_to(folder)
    return found


def test_more_nodes_than_open_files_are_received(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imagebuilder.serve.consoles.MOST_OPEN", 3)
    nodes = [
        Node(f"n{n}", (f"52:54:00:77:01:{n:02x}",), "p", address=f"127.0.1.{n}", netconsole=True)
        for n in range(1, 9)
    ]
    with receiving(tree, *nodes) as port:
        for text in ("first", "second"):
            for node in nodes:
                send(port, node.address, [message(1, text)])
        for node in nodes:
            wait_for(tree, node.name, "second")
        end = time.monotonic() + 20
        while open_files(tree.serve / "consoles") > 3:
            assert time.monotonic() < end, "no file is closed"


def test_what_cannot_be_recorded_of_a_node_ends_nothing(tree: Tree) -> None:
    nodes = [
        Node(f"n{n}", (mac,), "p", address=f"127.0.0.{n}", netconsole=True)
        for n, mac in ((11, MAC1), (12, MAC2))
    ]
    tree.consoles("n11").parent.mkdir(parents=True)
    tree.consoles("n11").write_text("a file where the folder should be\n")
    with receiving(tree, *nodes) as port:
        send(port, "127.0.0.11", [message(1, "lost")])
        send(port, "127.0.0.12", [message(1, "kept")])
        wait_for(tree, "n12", "kept")
        tree.consoles("n11").unlink()
        send(port, "127.0.0.11", [message(2, "kept too")])
        wait_for(tree, "n11", "kept too")


@pytest.mark.root
def test_root_gives_away_no_file_but_those_of_the_consoles(tmp_path: Path) -> None:
    consoles, own = tmp_path / "consoles", tmp_path / "own"
    (consoles / "n1").mkdir(parents=True)
    (consoles / "n1/1.log").touch()
    own.mkdir()
    (own / "secret").touch()
    (consoles / "n2").symlink_to(own)
    (consoles / "n1/link").symlink_to(own / "secret")
    (consoles / "n1/twin").hardlink_to(own / "secret")
    entry = pwd.getpwnam("nobody")
    walk = os.fwalk

    def swapping(top: Path) -> Iterator[tuple[str, list[str], list[str], int]]:
        """As its owner may: a folder is a link once its files have been listed."""
        for found in walk(top):
            if found[0].endswith("n1"):
                (consoles / "n1").rename(consoles / "moved")
                (consoles / "n1").symlink_to(own)
                found[2].extend(["secret", "vanished"])
            yield found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fwalk", swapping)
        give(consoles, entry)
    assert [path.stat().st_uid for path in (own, own / "secret")] == [0, 0]
    given = [consoles, consoles / "moved", consoles / "moved/1.log"]
    assert [path.stat().st_uid for path in given] == [entry.pw_uid] * 3


def test_lines_that_may_begin_in_a_ticket_are_not_tried_with_each_length() -> None:
    def seconds(text: str) -> float:
        begun = time.process_time()
        hide_tickets(text)
        return time.process_time() - begun

    # 4 times as long as text without a digit; with a cut allowed behind each of 32 digits, 36.
    plain = min(seconds("--" * 250_000) for _ in range(3))
    assert min(seconds("a\n" * 250_000) for _ in range(3)) < 15 * plain


def test_a_boot_from_the_future_is_older_than_one_of_today(tree: Tree) -> None:
    folder = tree.consoles("n1")
    folder.mkdir(parents=True)
    names = ("21240101T000000Z.log", "20240101T000000Z.log", "20250101T000000Z.log")
    for name in names:
        (folder / name).write_text("line\n")
    assert [boot.path.name for boot in find_consoles(tree, "n1")] == list(names)
