# SPDX-License-Identifier: Apache-2.0
"""`imagebuilder serve` under what strangers on the wire send, with the real daemons."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from imagebuilder.program import Program
from imagebuilder.serve.rotate import MOST_REPORTS
from tests.integration.started import PATIENCE, wait_until
from tests.integration.wire_room import CLIENT, MAC, SERVER, Room, wire_room

pytestmark = pytest.mark.root

NODES = f"nodes: {{n1: {{macs: ['{MAC}'], profile: generic, address: {CLIENT}}}}}\n"
# Requests that no client sends by mistake; the first one ended `serve`.
SPITE = (
    b"GET //[ HTTP/1.0",
    b"GET //[::1 HTTP/1.0",
    b"GET /report//[?node=[&stage=[ HTTP/1.0",
    b"GET /report/g/1?stage=failed&at=%1b[2J%0aforged:%20line&node=52-54-00-77-00-07 HTTP/1.0",
    b"GET /report/g/1?stage=switch-root&node=\xc2\x9b2J\xe2\x80\xae HTTP/1.0",
    b"GET /dnsmasq-dhcp[7]: 1 DHCPACK(wire0) 10.77.0.9 52:54:00:77:00:01 HTTP/1.0",
    b"GET http://[/vmlinuz HTTP/1.0",
    b"\x1b[2J\x1b]0;owned\x07",
    b"GET /\x1b[2J\x00\xff HTTP/1.0",
)
SEND = """\
import socket, sys
for line in sys.argv[2:]:
    with socket.create_connection((sys.argv[1], 80), 60) as wire:
        wire.sendall(bytes.fromhex(line) + b"\\r\\n\\r\\n")
        answer = b""
        try:
            while more := wire.recv(65536):
                answer += more
        except ConnectionResetError:
            pass
        print(answer[9:12].decode(errors="replace"))
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Room, Program]]:
    """A wire that is served with one node."""
    with wire_room(tmp_path_factory.mktemp("attack")) as made:
        made.tree.nodes_file.write_text(NODES)
        with made.serving() as started:
            yield made, started


def send(room: Room, *requests: bytes) -> list[str]:
    """Send each as it is, over a connection of its own; return the statuses of the answers."""
    done = room.at_client(sys.executable, "-c", SEND, SERVER, *(one.hex() for one in requests))
    assert done.status == 0, done.stderr
    return done.stdout.splitlines()


def test_no_request_ends_it_or_reaches_the_terminal(served: tuple[Room, Program]) -> None:
    room, started = served
    send(room, *SPITE)
    send(room, f"GET /report/generic/1?stage=switch-root&node={MAC} HTTP/1.0".encode())
    started.wait_for(r"^n1 +root ", PATIENCE)
    assert started.status is None
    said = (room.work / "serve.log").read_bytes() + b"".join(
        path.read_bytes() for path in (room.tree.serve / "logs").iterdir()
    )
    assert b"forged: line" in said
    assert all(line.isprintable() for line in said.decode().replace("\t", " ").split("\n"))


def test_a_full_disk_ends_nothing_and_is_over_with_the_next_free_byte(
    tmp_path: Path,
) -> None:
    report = f"GET /report/generic/{{}}?stage=switch-root&node={MAC} HTTP/1.0"
    with wire_room(tmp_path) as room:
        room.tree.nodes_file.write_text(NODES)
        place = room.tree.serve
        done = room.at_server("mount", "-t", "tmpfs", "-o", "size=2m,mode=755", "tmpfs", place)
        assert done.status == 0, done.stderr
        inside = Path(f"/proc/{room.server}/root") / str(place).lstrip("/")
        with room.serving(verbose=False) as started:
            with contextlib.suppress(OSError):
                (inside / "ballast").write_bytes(bytes(4 << 20))
            send(room, *(f"GET /missing/{'x' * 3000}/{n} HTTP/1.0".encode() for n in range(50)))
            started.wait_for(r"warning: could not write .*/nginx.log, so lines are lost", PATIENCE)
            assert room.fetch("/boot.ipxe").stdout.startswith("HTTP/1.1 200 ")
            (inside / "ballast").unlink()
            send(room, report.format(7).encode())
            started.wait_for(r"^n1 +root ", PATIENCE)
            log = inside / "logs/nginx.log"
            wait_until(lambda: b"/report/generic/7" in log.read_bytes(), "not logged")
            assert re.search(rb"\n\(\d+ lines could not be written\)\n", log.read_bytes())
            noted = room.tree.path / "seen/strangers.json"  # it comes without a ticket
            wait_until(noted.is_file, "the report is not noted")
            # Another daemon may have had something to write, too.
            assert len(started.said("warning: could not write .*/nginx.log, so")) == 1
            assert started.status is None


def test_a_daemon_is_missed_though_its_workers_live_on(tmp_path: Path) -> None:
    with wire_room(tmp_path) as room, room.serving() as started:
        os.kill(int((room.tree.serve / "foreground/nginx.pid").read_text()), signal.SIGKILL)
        assert started.wait(PATIENCE) == 1
        assert started.said(r"error: nginx stopped unexpectedly \(exit status 137\)")
        wait_until(
            lambda: room.at_server("ss", "-Hlnt", "sport = 80").stdout == "", "workers live on"
        )


def test_the_log_of_reports_is_rotated_and_none_is_lost(served: tuple[Room, Program]) -> None:
    room, started = served
    log = room.tree.reports_log
    old = log.with_name("reports.log.1")
    with log.open("a") as stream:
        stream.write(("x" * 999 + "\n") * (MOST_REPORTS // 1000))
    answered = 0
    for n in range(60):
        uri = f"/report/generic/9?stage=root&n={n}&node=52:54:00:77:00:aa"
        answered += send(room, f"GET {uri} HTTP/1.0".encode()).count("204")
        time.sleep(0.2 if n < 15 else 0)
    assert answered > 20

    def noted() -> int:
        return sum(path.read_text().count("/report/generic/9?") for path in (old, log))

    # The web server writes of a request after it has answered it.
    wait_until(lambda: log.stat().st_size > 0 and noted() >= answered, "a report is lost")
    assert noted() == answered
    assert old.stat().st_size >= MOST_REPORTS
    assert log.stat().st_size < 100_000
    assert [path.stat().st_mode & 0o777 for path in (old, log)] == [0o600, 0o600]
    assert log.stat().st_uid == 0
    assert started.status is None
