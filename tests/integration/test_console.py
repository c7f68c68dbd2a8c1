# SPDX-License-Identifier: Apache-2.0
"""Consoles of nodes: packets over a wire to the receiver that `serve` runs; a BMC's serial one."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from imagebuilder.process import Completed
from tests.bmc import make_bmc
from tests.integration.started import PATIENCE, find_descendants, wait_until
from tests.integration.wire_room import CLIENT, COMMAND, MAC, SERVER, Room, wire_room
from tests.systemd import verify

pytestmark = pytest.mark.root

NODES = """\
nodes:
  n1: {{macs: ["{mac}"], profile: generic, address: {address}{more}}}
"""
WITHOUT = NODES.format(mac=MAC, address=CLIENT, more="")
WANTED = NODES.format(mac=MAC, address=CLIENT, more=", netconsole: true")
RECEIVER = re.compile(r"-m imagebuilder\.serve\.consoles")
# As the kernel sends it, from its port.
SEND = """\
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
    end.bind((sys.argv[1], 6666))
    for text in sys.argv[3:]:
        end.sendto(text.encode(), (sys.argv[2], 6666))
"""
TAKE = """\
import socket, time
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end.bind(("", 6666))
print("up")
time.sleep(600)
"""
# A serial port: it answers to what is typed.
SERIAL = """\
import socket
end = socket.create_server(("127.0.0.1", 9624))
print("up")
talk, _ = end.accept()
while typed := talk.recv(100):
    talk.sendall(b"you typed " + typed + b"\\r\\n")
"""
# A person at a terminal, who waits for what it shows in the file $1; the rest is the command.
PERSON = """\
shown=$1 command=$2
: > "$shown"
see() { for try in $(seq 600); do ! grep -q "$1" "$shown" || return 0; sleep 0.1; done; exit 9; }
type() { see 'SOL Session operational'; printf 'root\\r'; see 'you typed root'; printf '\\r~.'; }
type | script --quiet --return --flush --command "$command" "$shown"
"""
BOOT = (
    "5,0,0,-;Linux version 6.12.48+deb13-amd64",
    "29,700,9100000,-;imagebuilder: stage root",
    "0,900,21000000,-;Kernel panic - not syncing: Attempted to kill init!",
)


@pytest.fixture
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    with wire_room(tmp_path_factory.mktemp("console")) as made:
        yield made


def send(room: Room, *texts: str, source: str = CLIENT) -> None:
    done = room.at_client(sys.executable, "-c", SEND, source, SERVER, *texts)
    assert done.status == 0, done.stderr


def typed(room: Room, *words: str) -> Completed:
    return room.at_server(*COMMAND, *words, "--tree", room.tree.path)


def said(room: Room) -> list[list[str]]:
    found = json.loads(typed(room, "console", "n1", "--boots", "9", "--json").stdout or "[]")
    return [boot["lines"] for boot in found]


def receivers() -> list[int]:
    """The receiver itself, without the shells around it."""
    found = find_descendants()
    return [pid for pid, line in found.items()
            if RECEIVER.search(line) and not re.search("setsid|setpriv|sh -c", line)]  # fmt: skip


def test_the_console_of_a_boot_that_failed_is_kept(room: Room) -> None:
    room.tree.nodes_file.write_text(WANTED)
    with room.serving():
        send(room, *BOOT)
        room.at_client("ip", "address", "add", "10.77.0.51/24", "dev", "wire1")
        send(room, "0,1,1,-;not a node", source="10.77.0.51")
        wait_until(lambda: said(room)[-1:] != [] and len(said(room)[0]) == 3, "no console came")
        (lines,) = said(room)
        assert lines[2].startswith("[   21.000000] Kernel panic - not syncing")
        printed = typed(room, "console", "n1").stdout
        assert re.match(
            r"--- boot of \d{4}-\d\d-\d\d [\d:]{8} UTC ---\n\[    0.000000\] Li", printed
        )
        explained = typed(room, "explain", "n1").stdout
        assert "last lines of its console, boot of " in explained
        assert "  [   21.000000] Kernel panic" in explained
        # What the port hears can neither run as root nor be read by others.
        (pid,) = receivers()
        status = Path(f"/proc/{pid}/status").read_text()
        assert not re.search(r"^Uid:\t0\t", status, re.MULTILINE), status
        (file,) = room.tree.consoles("n1").iterdir()
        assert (file.stat().st_mode & 0o77, file.parent.parent.stat().st_mode & 0o77) == (0, 0)
        sockets = room.at_server("ss", "-Hlun", "sport = :6666").stdout
        assert f"{SERVER}%wire0:6666" in sockets
    wait_until(lambda: not receivers(), "the receiver outlives serve")
    with room.serving():  # the boot goes on, then another one begins
        send(room, "4,901,21500000,-;Rebooting in 30 seconds..")
        wait_until(lambda: len(said(room)[0]) == 4, "the boot did not go on")
        send(room, *BOOT[:2])
        wait_until(lambda: len(said(room)) == 2, "no other boot began")
    assert [len(lines) for lines in said(room)] == [4, 2]
    assert typed(room, "console", "n1").stdout.count("--- boot") == 1
    assert typed(room, "console", "n1", "--boots", "2").stdout.count("--- boot") == 2


def test_nothing_listens_until_a_node_wants_it(room: Room) -> None:
    room.tree.nodes_file.write_text(WITHOUT)
    with room.serving() as started:
        assert receivers() == []
        assert ":6666" not in room.at_server("ss", "-Hlun").stdout
        done = typed(room, "console", "n1")
        assert done.status == 2
        assert "n1 does not send its messages" in done.stderr
        assert "set `netconsole: true` for n1 in nodes.yaml" in done.stderr
        room.tree.nodes_file.write_text(WANTED)
        started.wait_for("kernel messages of nodes", PATIENCE)
        send(room, BOOT[0])
        wait_until(lambda: len(said(room)) == 1, "no console came")
        script = (room.tree.served_node(MAC) / "boot.ipxe").read_text()
        assert " imagebuilder.netconsole=6666" in script
        # Who does not want it any more is not received any more.
        room.tree.nodes_file.write_text(WITHOUT)
        wait_until(lambda: not names(room), "nodes.yaml was not taken over")


def names(room: Room) -> str:
    return (room.tree.serve / "foreground/consoles").read_text()


def test_a_port_that_is_taken_is_told_and_ends_nothing(room: Room) -> None:
    room.tree.nodes_file.write_text(WITHOUT)
    argv = (sys.executable, "-uc", TAKE)
    with room.serving() as started, room.beside("other", room.server, *argv) as other:
        other.wait_for("up", PATIENCE)
        room.tree.nodes_file.write_text(WANTED)
        started.wait_for("could not receive consoles", PATIENCE)
        assert room.fetch("/nodes/x").stdout.startswith("HTTP/1.1 404")
        room.tree.nodes_file.write_text(WANTED + "# more\n")
        wait_until(lambda: len(started.said("could not receive consoles")) == 2, "it was not tried")
    done = room.try_serve("--check")
    assert done.status == 0, done.stderr


def test_systemd_takes_the_unit_of_the_receiver(room: Room, tmp_path: Path) -> None:
    room.tree.nodes_file.write_text(WANTED)
    done = room.try_serve("--install", "--root", tmp_path / "root")
    assert done.status == 0, done.stderr
    unit = tmp_path / "root/etc/systemd/system/imagebuilder-consoles.service"
    assert verify([unit], tmp_path) == ""
    (start,) = re.findall("^ExecStart=(.*)", unit.read_text(), re.MULTILINE)
    with room.beside("unit", room.server, *shlex.split(start)) as started:
        started.wait_for("^receiving consoles", PATIENCE)
        send(room, *BOOT)
        wait_until(lambda: said(room)[-1:] != [] and len(said(room)[0]) == 3, "no console came")
    refreshed = room.try_serve("--refresh")
    assert "nothing receives it: run serve --install again" in refreshed.stdout
    room.tree.nodes_file.write_text(WITHOUT)
    again = room.try_serve("--install", "--root", tmp_path / "root")
    assert f"removed    {unit}" in again.stdout
    assert "nothing receives it" not in room.try_serve("--refresh").stdout


def test_the_serial_console_comes_through_the_bmc(room: Room, tmp_path: Path) -> None:
    node = ', power: {driver: ipmi, address: "127.0.0.1:9623", credentials: bmc}'
    room.tree.nodes_file.write_text(NODES.format(mac=MAC, address=CLIENT, more=node))
    secret = tmp_path / "imagebuilder/credentials/bmc"
    secret.parent.mkdir(parents=True)
    secret.write_text("user: admin\npassword: hunter2\n")
    secret.chmod(0o600)
    bmc = make_bmc(tmp_path, "n1", "hunter2", 'sol "tcp:127.0.0.1:9624" 115200')
    words = [*COMMAND, "console", "n1", "--serial", "--tree", room.tree.path]
    typed_words = shlex.join(map(str, words))
    with (
        room.beside("serial", room.server, sys.executable, "-uc", SERIAL) as port,
        room.beside("bmc", room.server, *bmc),
    ):
        port.wait_for("up", PATIENCE)
        wait_until(
            lambda: room.at_server("ss", "-Hlnu", "sport = :9623").stdout != "", "no BMC listens"
        )
        person = ("sh", "-uc", PERSON, "sh", tmp_path / "shown", typed_words)
        done = room.at_server("env", f"XDG_CONFIG_HOME={tmp_path}", *person)
    shown = (tmp_path / "shown").read_text()
    assert done.status == 0, shown + done.stderr
    assert "you typed root" in shown
    assert "hunter2" not in shown
