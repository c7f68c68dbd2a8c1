# SPDX-License-Identifier: Apache-2.0
"""Nodes boot while somebody else on the wire holds the web server's connections open."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator

import pytest

from imagebuilder.process import run
from tests.integration.started import PATIENCE, wait_until
from tests.integration.wire_room import CHECKOUT, CLIENT, MAC, SERVER, Room, wire_room
from tests.sampling import times

pytestmark = pytest.mark.root

ATTACKERS = {"silent": "10.77.0.64", "header": "10.77.0.65", "reader": "10.77.0.66"}
FLOODER = "10.77.0.68"
NEIGHBOURS = 40
REPORTS = 400
TRANSFERS = 300
HALF_OPEN = times(2600, 10000)
RELEASE = "releases/generic/20260101000000-abcdef01"
NODES = f"nodes: {{n1: {{macs: ['{MAC}'], profile: generic, address: {CLIENT}}}}}\n"
MEGABYTES = {"vmlinuz": 12, "initrd.img": 30}
SLOWER = 30.0  # seconds that an attack may cost a boot on a busy machine

# One byte each second: how long it may go on.
SLOW = f"""\
import socket, time
line = socket.create_connection(("{SERVER}", 80), source_address=("10.77.0.67", 0))
begun = time.monotonic()
line.settimeout(1)
line.send(b"GET / HTTP/1.1\\r\\nX-Slow: ")
while time.monotonic() - begun < 60:
    try:
        line.send(b"x")
        if not line.recv(100):
            break
    except TimeoutError:
        continue
    except OSError:
        break
print(f"ended after {{time.monotonic() - begun:.1f}}", flush=True)
time.sleep(1000)
"""

# Asks for iPXE over TFTP and never confirms a block of it, from many ports.
LEFT = f"""\
import socket, time
ends = []
for _ in range({TRANSFERS}):
    end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    end.bind(("{FLOODER}", 0))
    end.sendto(b"\\0\\1undionly.kpxe\\0octet\\0", ("{SERVER}", 69))
    ends.append(end)
    time.sleep(0.002)
print("asked", flush=True)
time.sleep(1000)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """A wire that is served with a node and a release, and an attacker's address on it."""
    with wire_room(tmp_path_factory.mktemp("attacked")) as room:
        room.tree.nodes_file.write_text(NODES)
        release = room.tree.http / RELEASE
        release.mkdir(parents=True)
        for name, size in MEGABYTES.items():
            (release / name).write_bytes(os.urandom(1 << 20) * size)
        for last in (64, 65, 66, 67, 68, *range(100, 100 + NEIGHBOURS)):
            room.at_client("ip", "address", "add", f"10.77.0.{last}/24", "dev", "wire1")
        with (
            room.serving(verbose=False),
            room.beside("slow", room.client, sys.executable, "-c", SLOW),
        ):
            yield room


def boot(room: Room) -> float:
    """The seconds that a node's requests take."""
    argv = ["-m", "tests.integration.node_boot", CLIENT, SERVER, MAC, RELEASE]
    done = run(room.at(room.client, [sys.executable, *argv]), cwd=CHECKOUT)
    took: dict[str, float] = json.loads(done.stdout)
    print(took)
    return sum(took.values())


def attack(kind: str, count: int) -> list[str]:
    """The command that holds connections."""
    path = f"/{RELEASE}/initrd.img"
    argv = ["-m", "tests.integration.half_open", kind, str(count), ATTACKERS[kind], SERVER, path]
    return [sys.executable, *argv]


@pytest.mark.parametrize("kind", ["silent", "header", "reader"])
def test_a_node_boots_while_connections_are_held_open(served: Room, kind: str) -> None:
    calm = boot(served)
    with served.beside(kind, served.client, *attack(kind, HALF_OPEN)) as attacking:
        held = int(attacking.wait_for(r"^holding (\d+)$", PATIENCE)[1])
        attacked = boot(served)
        assert attacking.status is None
    print(f"{kind}: {held} held of {HALF_OPEN}; {calm:.2f} s calm, {attacked:.2f} s attacked")
    assert held == HALF_OPEN
    assert attacked < calm + SLOWER


def test_ipxe_is_fetched_while_transfers_of_it_are_begun_and_left(served: Room) -> None:
    with served.beside("left", served.client, sys.executable, "-c", LEFT) as attacking:
        attacking.wait_for("^asked", PATIENCE)
        fetch = ["curl", "-s", "-m", "30", "-o", "/dev/null", "-w", "%{size_download}"]
        done = served.at_client(*fetch, f"tftp://{SERVER}/undionly.kpxe")
    assert int(done.stdout) == (served.tree.tftp / "undionly.kpxe").stat().st_size


def test_many_nodes_fetch_at_once(served: Room) -> None:
    url = f"http://{SERVER}/{RELEASE}/initrd.img"
    fetch = f"curl -sf --interface 10.77.0.$1 -o /dev/null -w '%{{size_download}}\\n' {url}"
    every = f'seq 100 {99 + NEIGHBOURS} | xargs -P {NEIGHBOURS} -n 1 sh -c "$0" sh'
    done = served.at_client("sh", "-c", every, fetch)
    whole = MEGABYTES["initrd.img"] << 20
    assert done.stdout.split() == [str(whole)] * NEIGHBOURS, done.stderr


def test_reports_of_one_address_are_limited_and_what_is_refused_is_not_kept(served: Room) -> None:
    log = served.tree.serve / "reports.log"
    url = f"http://{SERVER}/report/generic/1?stage=root&node=52:54:00:77:00:66&n=[1-{REPORTS}]"
    flood = ["curl", "-s", "--interface", FLOODER, "-o", "/dev/null", "-w", "%{http_code}\n", url]
    answers = served.at_client(*flood).stdout.split()
    assert answers.count("204") + answers.count("429") == REPORTS
    assert 50 <= answers.count("204") < REPORTS // 2

    def kept() -> int:
        return log.read_text().count(f'"address":"{FLOODER}"')

    # The web server writes of a request after it has answered it, of refused ones in order too.
    wait_until(lambda: kept() >= answers.count("204"), "a report is lost")
    boot(served)
    assert kept() == answers.count("204")


def test_a_report_takes_little_space_in_the_log(served: Room) -> None:
    log = served.tree.serve / "reports.log"
    path = "/report/generic/1?stage=root&node=52:54:00:77:00:66&x="
    quotes, agent = '"' * 3000, "a" * 3000
    for more in (quotes, "y" * 3500, "last"):
        done = served.fetch(f"{path}{more}", "--user-agent", agent)
        assert done.stdout.startswith("HTTP/1.1 204 ")
    wait_until(lambda: b"x=last" in log.read_bytes(), "a report is lost")
    lines = [line for line in log.read_bytes().splitlines() if b"&x=" in line]
    assert len(lines) == 1
    assert len(lines[0]) < 400


def test_requests_of_one_address_are_limited(served: Room) -> None:
    url = f"http://{SERVER}/boot.ipxe?[1-3000]"
    flood = [
        "curl",
        "-s",
        "--interface",
        "10.77.0.100",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}\n",
        url,
    ]
    answers = served.at_client(*flood).stdout.split()
    assert {"200", "429"} == set(answers)
    assert answers.count("200") >= 500
    boot(served)


def test_half_a_request_is_ended(served: Room) -> None:
    log = served.work / "slow.log"
    ended = re.compile(r"^ended after ([\d.]+)", re.MULTILINE)
    wait_until(lambda: bool(ended.search(log.read_text())), "the connection is still open")
    found = ended.search(log.read_text())
    assert found
    assert 9 <= float(found[1]) <= 40  # after 10 s, but nginx's own limit is 60 s
