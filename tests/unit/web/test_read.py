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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from imagebuilder.fleet.overview import SILENT
from imagebuilder.fleet.state import Condition
from imagebuilder.nodes.evidence.boots import NodeBoots, write_boots
from imagebuilder.tree import Tree
from imagebuilder.web.read import (
    MOST_ANSWER,
    MOST_QUESTION,
    RemoteReader,
    answer_questions,
    write_all,
)
from imagebuilder.web.tree_reader import TreeReader
from tests.fleet_world import OLD, FleetWorld, address_of, mac_of, make_site

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
        b"[" * 3000, b'{"verb":"fleet","path":"/"}',
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


@contextmanager
def answering(tree: Tree, serve: Callable[[socket.socket], None]) -> Iterator[RemoteReader]:
    """Who has a program read that serves each of its connections in that way."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        place = Path(folder, "read.socket")
        listening.bind(str(place))
        listening.listen()

        def take() -> None:
            with contextlib.suppress(OSError):
                while True:
                    sock, _ = listening.accept()
                    with sock, contextlib.suppress(OSError):
                        serve(sock)

        thread = threading.Thread(target=take)
        thread.start()
        reader = RemoteReader(place, TreeReader(tree))
        try:
            yield reader
        finally:
            reader.hang_up()
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def plant_report(world: FleetWorld) -> None:
    """Node 5 reports, and nobody has taken that in yet."""
    world.set_node(5, f"address: {address_of(5)}")
    secret, uri = "5" * 32, f"/nodes/{mac_of(5).replace(':', '-')}/boot.ipxe"
    now = datetime.now(UTC).isoformat(timespec="seconds")
    said = {"time": now, "address": address_of(5)}
    report = f"/report/{secret}/rx7600xt/2026?stage=root&node={mac_of(5)}"
    lines = ({**said, "uri": uri, "ticket": secret}, {**said, "uri": report, "agent": "curl"})
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    world.tree.reports_log.write_text(text)


def test_without_the_program_the_page_reads_everything_itself(
    world: FleetWorld, tmp_path: Path
) -> None:
    world.plant_history()
    plant_report(world)
    reader = RemoteReader(tmp_path / "none", TreeReader(world.tree))
    assert [*reader.fleet().seen] == [mac_of(5)]
    assert len(reader.releases().releases) == 4


@pytest.mark.parametrize(("pause", "times"), [(600.0, 1), (0.0, 5)])
def test_who_fails_is_left_alone_for_a_while(
    world: FleetWorld, monkeypatch: pytest.MonkeyPatch, pause: float, times: int
) -> None:
    monkeypatch.setattr("imagebuilder.web.read.PAUSE", pause)
    met: list[socket.socket] = []
    with answering(world.tree, met.append) as reader:
        for _ in range(5):
            reader.fleet()
        assert len(met) == times


def test_a_program_that_ends_before_it_answers_is_started_again(world: FleetWorld) -> None:
    said = {"answer": {"seen": {}, "warnings": {"node005": ["read for us"]}}}
    met: list[socket.socket] = []

    def end_early(sock: socket.socket) -> None:
        met.append(sock)
        sock.recv(1000)
        sock.sendall(json.dumps(said).encode() + b"\n")
        sock.recv(1000)

    with answering(world.tree, end_early) as reader:
        for times in (1, 2, 3):
            assert reader.fleet().warnings == {"node005": ("read for us",)}
            assert len(met) == times


def test_an_answer_that_comes_too_slowly_is_not_waited_for(
    world: FleetWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imagebuilder.web.read.SECONDS", 0.5)
    cut_off = threading.Event()

    def drip(sock: socket.socket) -> None:
        sock.recv(1000)
        try:
            for _ in range(300):
                sock.sendall(b" ")
                time.sleep(0.05)
        except OSError:
            cut_off.set()

    with answering(world.tree, drip) as reader:
        assert reader.fleet() == TreeReader(world.tree).fleet()
        assert cut_off.wait(5)


def test_an_answer_that_does_not_end_is_not_read_whole(world: FleetWorld) -> None:
    cut_off = threading.Event()

    def flood(sock: socket.socket) -> None:
        sock.recv(1000)
        try:
            sock.sendall(b" " * (MOST_ANSWER + 16 * 1024 * 1024))
        except OSError:
            cut_off.set()

    with answering(world.tree, flood) as reader:
        assert reader.fleet() == TreeReader(world.tree).fleet()
        assert cut_off.wait(30)


def test_the_snapshot_has_what_nobody_has_taken_in_yet(world: FleetWorld) -> None:
    plant_report(world)
    world.answers.pop("node005", None)
    row = make_site(world).watcher.snapshot.by_name["node005"]
    assert row.condition is Condition.BOOTING
    assert "reached stage root" in row.view.words


def test_a_report_that_nobody_has_taken_in_yet_counts_for_warnings(world: FleetWorld) -> None:
    """A node whose last boot, which the record does not have, sent nothing of its console."""
    world.set_node(5, "netconsole: true")
    config = world.serve_nodes(5)
    begun = datetime.now(UTC) - timedelta(seconds=30)
    write_boots(world.tree, {"node005": NodeBoots("node005", asked=begun.isoformat())})
    plant_report(world)
    text = world.tree.reports_log.read_text()
    text = text.replace("stage=root", "stage=switch-root").replace("/rx7600", f"/{config}/rx7600")
    world.tree.reports_log.write_text(text)
    assert TreeReader(world.tree).fleet().warnings == {"node005": (SILENT,)}


def test_logs_are_read_once_for_many_stories(
    world: FleetWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.plant_boots(40)
    reader, log = TreeReader(world.tree), world.tree.serve / "logs/nginx.log"

    def lines() -> int:
        return len(reader.story("node040").trace.lines)

    before = lines()
    monkeypatch.setattr("imagebuilder.web.tree_reader.FRESH", 600.0)
    more = f"{address_of(40)} 200 1 0.000 /releases/rx7600xt/{OLD}/root.squashfs\n"
    log.write_text(log.read_text() + more)
    assert lines() == before
    monkeypatch.setattr("imagebuilder.web.tree_reader.FRESH", 0.0)
    assert lines() == before + 1


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
