# SPDX-License-Identifier: Apache-2.0
"""What is read for a page without rights: the same as it would read as root, and nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from imagebuilder.tree import Tree
from imagebuilder.web.read import MOST_QUESTION, RemoteReader, answer_questions, write_all
from imagebuilder.web.tree_reader import TreeReader
from tests.fleet_world import FleetWorld, address_of, mac_of

IDLE = 2.0


@contextmanager
def reading(tree: Tree) -> Iterator[tuple[Path, list[socket.socket]]]:
    """A socket of a program that reads in threads of this process, and its connections."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        place = Path(folder, "read.socket")
        listening.bind(str(place))
        listening.listen()
        threads: list[threading.Thread] = []
        taken: list[socket.socket] = []

        def answer(sock: socket.socket) -> None:
            with sock:
                answer_questions(tree, sock.fileno(), sock.fileno(), IDLE)

        def serve() -> None:
            while True:
                try:
                    sock, _ = listening.accept()
                except OSError:
                    return
                taken.append(sock)
                threads.append(threading.Thread(target=answer, args=(sock,)))
                threads[-1].start()

        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield place, taken
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            for thread in (serving, *threads):
                thread.join()


@contextmanager
def remote(tree: Tree) -> Iterator[tuple[RemoteReader, list[socket.socket]]]:
    with reading(tree) as (place, taken):
        reader = RemoteReader(place, TreeReader(tree))
        try:
            yield reader, taken
        finally:
            reader.hang_up()


def ask(tree: Tree, *pieces: bytes, pause: float = 0.0) -> bytes:
    """What is answered to these bytes until it hangs up."""
    with reading(tree) as (place, _), socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(place))
        for piece in pieces:
            time.sleep(pause)
            with contextlib.suppress(OSError):
                sock.sendall(piece)
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
        found = b""
        with contextlib.suppress(ConnectionResetError):
            while more := sock.recv(65536):
                found += more
        return found


def test_it_is_what_the_page_reads_as_root(world: FleetWorld) -> None:
    world.plant_history()
    world.plant_boots(40)
    world.set_node(3, "netconsole: true")
    world.plant_console(3, ["first"], ["second", "<b>é\ud7ff</b>", "x" * 5000])
    world.plant_health(3, "ok", "missing device")
    own = TreeReader(world.tree)
    with remote(world.tree) as (reader, taken):
        for name in ("node003", "node040", "node007"):
            assert reader.story(name) == own.story(name)
        rows = [[each.as_json() for each in r.releases().releases] for r in (reader, own)]
        assert rows[0] == rows[1]
        assert reader.fleet() == own.fleet()
        assert len(taken) == 1  # one program, however many questions
        assert reader.story("node040").boots
        assert reader.story("node003").consoles
        assert reader.releases().known


def test_a_report_that_was_not_taken_in_yet_is_known(world: FleetWorld) -> None:
    """As it is for a minute where systemd has the daemons."""
    assert TreeReader(world.tree).fleet().seen == {}
    world.tree.nodes_file.write_text(
        f"nodes:\n  n5: {{macs: ['{mac_of(5)}'], profile: rx7600xt, address: {address_of(5)}}}\n"
    )
    secret, said = "5" * 32, {"time": "2026-11-24T00:00:00+00:00", "address": address_of(5)}
    uri = f"/report/{secret}/rx7600xt/2026?stage=root&node={mac_of(5)}"
    lines = (
        {**said, "uri": f"/nodes/{mac_of(5).replace(':', '-')}/boot.ipxe", "ticket": secret},
        {**said, "uri": uri, "agent": "curl"},
        {**said, "uri": uri.replace("stage=root", "stage=x").replace("5" * 32, "6" * 32),
         "agent": "nobody"},
    )  # fmt: skip
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    world.tree.reports_log.write_text(text)
    before = sorted(world.tree.path.rglob("*"))
    record = world.tree.seen(mac_of(5)).read_bytes()
    with remote(world.tree) as (reader, _):
        (seen,) = reader.fleet().seen.values()
    assert (seen.mac, seen.stage) == (mac_of(5), "root")
    assert sorted(world.tree.path.rglob("*")) == before
    assert world.tree.seen(mac_of(5)).read_bytes() == record


@pytest.mark.parametrize(
    "name",
    ["", "..", "../node003", "node003/../node003", "node999", "node003\n", "/etc/passwd", "\0"],
    ids=repr,
)
def test_no_name_but_those_of_nodes_is_read(world: FleetWorld, name: str) -> None:
    question = json.dumps({"verb": "story", "node": name}).encode()
    answer = json.loads(ask(world.tree, question + b"\n"))
    assert answer == {"error": f"no node named {name!r} in nodes.yaml"}


@pytest.mark.parametrize(
    "question",
    [
        b"{}", b"[]", b"story", b'{"verb":"act"}', b'{"verb":"story","node":"x","path":"/"}',
        b'{"verb":["fleet"]}', b'{"verb":"story","node":{"a":1}}', b"\xff\xfe", b'{"verb":NaN}',
        b'{"verb":"story","node":"' + b"x" * 300 + b'"}', b"[" * 3000,
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_no_question(world: FleetWorld, question: bytes) -> None:
    answer = json.loads(ask(world.tree, question + b"\n"))
    assert [*answer] == ["error"]
    assert len(answer["error"]) < 1000


def test_a_long_question_is_not_read(world: FleetWorld) -> None:
    assert ask(world.tree, b"x" * (MOST_QUESTION + 1)) == b""
    assert ask(world.tree, *[b"x" * 1000] * 100, pause=0.001) == b""


def test_who_asks_slowly_or_never_is_not_waited_for(world: FleetWorld) -> None:
    with reading(world.tree) as (place, _), socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(place))
        begun = time.monotonic()
        sock.sendall(b'{"verb":')
        assert sock.recv(100) == b""
        assert IDLE * 0.9 < time.monotonic() - begun < IDLE + 30


def test_who_does_not_take_its_answer_is_not_waited_for() -> None:
    ours, its = socket.socketpair()
    with ours, its:
        its.settimeout(0.0)
        assert not write_all(its.fileno(), b"x" * 8_000_000, 0.2)
        ours.close()
        assert not write_all(its.fileno(), b"x" * 8_000_000, 5.0)


def test_many_ask_at_a_time(world: FleetWorld) -> None:
    world.plant_boots(40)
    found: list[int] = []

    def look(reader: RemoteReader) -> None:
        found.append(len(reader.story("node040").boots or ()))

    with remote(world.tree) as (reader, taken):
        threads = [threading.Thread(target=look, args=(reader,)) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(taken) == 1
    assert found == [2] * 16


def test_a_connection_that_ended_is_made_again(world: FleetWorld) -> None:
    world.plant_boots(40)
    with remote(world.tree) as (reader, taken):
        reader.fleet()
        taken[0].shutdown(socket.SHUT_RDWR)
        state = reader.state
        assert reader.story("node040").boots
        assert len(taken) == 2
        assert reader.state != state


@pytest.mark.parametrize(
    "said",
    [b"", b"\n", b"{}\n", b'{"answer":{"trace":1}}\n', b"x" * 100, b'{"answer":[1]}\n'],
    ids=repr,
)
def test_what_is_no_answer_is_read_by_the_page_itself(world: FleetWorld, said: bytes) -> None:
    world.plant_boots(40)
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        place = Path(folder, "read.socket")
        reader = RemoteReader(place, TreeReader(world.tree))
        assert reader.story("node040").boots  # there is no socket
        listening.bind(str(place))
        listening.listen()
        reader = RemoteReader(place, TreeReader(world.tree))

        def answer() -> None:
            sock, _ = listening.accept()
            with sock:
                sock.recv(1000)
                sock.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        assert reader.story("node040").boots
        thread.join()
        reader.hang_up()


def test_what_a_link_leads_to_is_not_a_console(world: FleetWorld, tmp_path: Path) -> None:
    """The receiver of consoles runs as an ordinary user, who can link to a file of root's."""
    secret = tmp_path / "shadow"
    secret.write_text("root:secret\n")
    world.plant_console(3, ["real"])
    folder = world.tree.consoles("node003")
    (folder / "20261101T000000Z.log").symlink_to(secret)
    os.link(secret, folder / "20261102T000000Z.log.1")  # a kernel refuses this to other users
    (folder / "20261102T000000Z.log.1").unlink()
    (folder / "20261102T000000Z.log.1").symlink_to(secret)
    (folder / "20261102T000000Z.log").write_text("later\n")
    os.mkfifo(folder / "20261103T000000Z.log")
    world.tree.consoles("node004").symlink_to(folder)
    reader = TreeReader(world.tree)
    said = [line for each in reader.story("node003").consoles or () for line in each.lines]
    assert sorted(line.partition("] ")[2] or line for line in said) == ["later", "real"]
    assert reader.story("node004").consoles == ()
