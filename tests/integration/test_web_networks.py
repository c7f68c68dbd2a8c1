# SPDX-License-Identifier: Apache-2.0
"""`imagebuilder web` on a host of several networks: nodes are refused, whatever address they use.

nodes: wire0, 10.77.0.1/24, 10.78.0.1/24, fd77::1/64     people: office0, 10.88.0.1/24, fd88::1/64
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from imagebuilder.process import Word
from tests.integration.started import PATIENCE, wait_until
from tests.integration.wire_room import COMMAND, Room, wire_room

pytestmark = pytest.mark.root

SERVER_LINES = (
    "ip address add 10.78.0.1/24 dev wire0",
    "ip address add fd77::1/64 dev wire0 nodad",
    "ip link add office0 type veth peer name office1",
    "ip link set office0 up",
    "ip link set office1 up",
    "ip address add 10.88.0.1/24 dev office0",
    "ip address add fd88::1/64 dev office0 nodad",
)
CLIENT_LINES = (
    "ip address add 10.78.0.50/24 dev wire1",
    "ip address add fd77::50/64 dev wire1 nodad",
    "ip route add 10.88.0.0/24 via 10.77.0.1",
    "ip -6 route add fd88::/64 via fd77::1 dev wire1",
)
# Asks from an address; an IPv6 one may be link-local.
ASK = """\
import http.client, socket, sys
where, source = sys.argv[1:]
scope = (0, socket.if_nametoindex("wire1")) if source.startswith("fe80:") else ()
family = socket.AF_INET6 if ":" in source else socket.AF_INET
line = socket.socket(family, socket.SOCK_STREAM)
line.settimeout(20)
line.bind((source, 0, *scope))
line.connect((where, 8470))
asked = http.client.HTTPConnection(where, 8470)
asked.sock = line
asked.request("GET", "/")
print(asked.getresponse().status)
"""


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    with wire_room(tmp_path_factory.mktemp("networks")) as made:
        for line in SERVER_LINES:
            assert not made.at_server(*line.split()).status, line
        for line in CLIENT_LINES:
            assert not made.at_client(*line.split()).status, line
        (made.tree.serve / "installed").mkdir()
        (made.tree.serve / "installed/dnsmasq.conf").write_text("interface=wire0\n")
        yield made


def web(room: Room, address: str) -> list[Word]:
    words: list[Word] = ["web", "--tree", room.tree.path, "--listen", address, "--ask", "0"]
    return [*COMMAND, *words, "--nights", room.work]


@pytest.mark.parametrize("address", ["10.77.0.1", "10.78.0.1", "fd77::1"])
def test_no_address_of_the_nodes_interface_is_listened_on(room: Room, address: str) -> None:
    done = room.at_server("timeout", str(PATIENCE), *web(room, address))
    assert (done.status, "is on the nodes' network" in done.stderr) == (2, True), done


def test_nodes_are_refused_from_all_their_addresses(room: Room) -> None:
    assert answers(room, "10.88.0.1", "10.77.0.50", "10.78.0.50") == ["403", "403"]


def test_nodes_are_refused_over_ipv6(room: Room) -> None:
    shown = room.at_client("ip", "-6", "-brief", "address", "show", "dev", "wire1").stdout
    local = next(word for word in shown.split() if word.startswith("fe80:")).partition("/")[0]
    assert answers(room, "fd88::1", "fd77::50", local) == ["403", "403"]


def answers(room: Room, address: str, *sources: str) -> list[str]:
    """The statuses that a node gets from a page at `address`, asking from each of `sources`."""
    with room.beside("web", room.server, *web(room, address)) as started:
        started.wait_for("listening on", PATIENCE)
        own = [
            "curl",
            "--silent",
            "--globoff",
            "--output",
            "/dev/null",
            "--write-out",
            "%{http_code}",
        ]
        url = f"http://[{address}]:8470/" if ":" in address else f"http://{address}:8470/"
        wait_until(lambda: room.at_server(*own, url).stdout == "200", "the page does not answer")
        done = [room.at_client(sys.executable, "-c", ASK, address, each) for each in sources]
        return [each.stdout.strip() or each.stderr for each in done]
