# SPDX-License-Identifier: Apache-2.0
"""`imagebuilder serve` on a wire between two network namespaces, with the real daemons."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from imagebuilder.folders import paths_below
from imagebuilder.process import run
from imagebuilder.program import Program
from imagebuilder.tree import ReleaseName
from tests.integration.started import PATIENCE, find_descendants, wait_until
from tests.integration.wire_room import CLIENT, MAC, ROUTER, SERVER, Room, wire_room
from tests.unit.test_health_report import HEALTH, make_health_root

pytestmark = pytest.mark.root

SERVING = re.compile(r"\S*python\S* .* serve --interface ")
OTHER_MAC = "52:54:00:77:00:02"
STRANGER = "52:54:00:77:00:99"
LEASE_TIME = "51"  # RFC 2132, 9.2: seconds
NODES = f"""\
nodes:
  n1:
    macs: ["{MAC}"]
    profile: generic
    address: {CLIENT}
  n2:
    macs: ["{OTHER_MAC}"]
    profile: generic
    ipxe: snponly.efi
"""
# Asks as a program of a node does; the resolver's file is another in this namespace only.
ASK_NAME = f"""\
echo nameserver {SERVER} > /run/resolv.conf
mount --bind /run/resolv.conf /etc/resolv.conf 2>/dev/null
getent hosts "$1" | cut -d' ' -f1
umount /etc/resolv.conf
"""
RELEASE = "releases/generic/20260101000000-abcdef01"


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """A wire that nobody serves."""
    with wire_room(tmp_path_factory.mktemp("wire")) as made:
        yield made


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Room, Program]]:
    """A wire that is served with two nodes and one release."""
    with wire_room(tmp_path_factory.mktemp("full")) as made:
        made.tree.nodes_file.write_text(NODES)
        release = made.tree.http / RELEASE
        release.mkdir(parents=True)
        (release / "vmlinuz").write_bytes(b"kernel" * 100)
        (made.tree.path / "channels/generic").mkdir()
        made.tree.channel("generic", "stable").symlink_to(f"../../http/{RELEASE}")
        with made.serving() as started:
            yield made, started


@pytest.mark.parametrize(
    ("architecture", "vendor", "file", "answered"),
    [
        (0, "PXEClient", "undionly.kpxe", ""),
        (7, "PXEClient", "ipxe.efi", ""),
        (9, "PXEClient", "ipxe.efi", ""),
        (16, "HTTPClient", f"http://{SERVER}/ipxe/ipxe.efi", "HTTPClient"),
        (25, "PXEClient", "", ""),
    ],
)
def test_firmware_is_told_its_boot_file(
    full: tuple[Room, Program], architecture: int, vendor: str, file: str, answered: str
) -> None:
    (offer,) = full[0].ask(architecture, vendor)
    assert (offer["address"], offer["next"]) == (CLIENT, SERVER)
    assert (offer["file"], offer["vendor"]) == (file, answered)


def test_ipxe_is_told_the_entry_script(full: tuple[Room, Program]) -> None:
    room, _ = full
    for architecture in (0, 7):
        (offer,) = room.ask(architecture, "PXEClient", "iPXE")
        assert offer["file"] == f"http://{SERVER}/boot.ipxe"


def test_a_node_may_want_the_other_binary(full: tuple[Room, Program]) -> None:
    (offer,) = full[0].ask(7, mac=OTHER_MAC)
    assert offer["file"] == "snponly.efi"


def test_a_stranger_gets_an_address_of_the_pool(full: tuple[Room, Program]) -> None:
    (offer,) = full[0].ask(7, mac=STRANGER)
    assert offer["file"] == "ipxe.efi"
    assert 128 <= int(offer["address"].rpartition(".")[2]) <= 254


def test_a_stranger_gives_its_address_back_before_a_node_does(full: tuple[Room, Program]) -> None:
    """So a hundred forged requests take the pool for minutes, not for half a day."""
    asked = [full[0].ask(7, mac=mac) for mac in (STRANGER, MAC, OTHER_MAC)]
    leases = [int(offer["options"][LEASE_TIME], 16) for (offer,) in asked]
    assert leases == [10 * 60, 12 * 3600, 12 * 3600]


def test_an_architecture_without_a_binary_is_told_of_once(full: tuple[Room, Program]) -> None:
    room, started = full
    for _ in range(2):
        room.ask(6, mac=STRANGER)
    said = "requests a boot file for 32-bit UEFI (6); this server has none"
    started.wait_for(re.escape(said), PATIENCE)
    assert len(started.said(re.escape(f"{STRANGER} {said}"))) == 1


def test_names_of_nodes_are_answered(full: tuple[Room, Program]) -> None:
    room, _ = full
    for name in ("n1", "n1.nodes", "server.nodes"):
        done = room.at_client("sh", "-c", ASK_NAME, "sh", name)
        assert done.stdout.split() == [SERVER if name == "server.nodes" else CLIENT], done.stderr


@pytest.mark.parametrize(
    "path", ["/", "/releases", "/releases/", "/channels/generic/stable", "/ipxe", "/nodes/"]
)
def test_folders_are_neither_listed_nor_redirected_to(
    full: tuple[Room, Program], path: str
) -> None:
    answer = full[0].fetch(path).stdout
    assert re.match(r"HTTP/1.1 40[34] ", answer), answer
    assert "Location" not in answer
    assert "nginx/" not in answer


@pytest.mark.parametrize(
    "path", ["/../nodes.yaml", "/%2e%2e/nodes.yaml", "/channels/../nodes.yaml"]
)
def test_nothing_outside_is_shown(full: tuple[Room, Program], path: str) -> None:
    assert re.match(r"HTTP/1.1 40[04] ", full[0].fetch(path).stdout)


def test_releases_are_cached_and_come_in_parts(full: tuple[Room, Program]) -> None:
    answer = full[0].fetch(f"/{RELEASE}/vmlinuz", "--range", "6-11").stdout
    assert answer.startswith("HTTP/1.1 206 ")
    assert "Cache-Control: public, max-age=31536000, immutable" in answer
    assert answer.endswith("kernel")


def test_channels_are_never_cached_and_move_at_once(full: tuple[Room, Program]) -> None:
    room, _ = full
    answer = room.fetch("/channels/generic/stable/vmlinuz").stdout
    assert answer.startswith("HTTP/1.1 200 ")
    assert "Cache-Control: no-store" in answer
    other = room.tree.release(ReleaseName("generic", "20260102000000-abcdef02"))
    other.mkdir()
    (other / "vmlinuz").write_bytes(b"newer")
    link = room.tree.channel("generic", "candidate")
    for target, content in (
        (RELEASE, "kernelkernel"),
        (other.relative_to(room.tree.http), "newer"),
    ):
        staged = link.with_name("staged")
        staged.symlink_to(f"../../http/{target}")
        staged.replace(link)
        assert content in room.fetch("/channels/generic/candidate/vmlinuz").stdout


def test_a_nodes_files_are_for_its_address(full: tuple[Room, Program]) -> None:
    room, _ = full
    path = "/nodes/52-54-00-77-00-01/node.img"
    room.at_client("ip", "address", "add", "10.77.0.60/24", "dev", "wire1")
    assert room.fetch(path, "--output", "/dev/null", "--dump-header", "-").stdout.startswith(
        "HTTP/1.1 200 "
    )
    assert room.fetch(path, "--interface", "10.77.0.60").stdout.startswith("HTTP/1.1 403 ")
    for local in (path, "/nodes/52-54-00-77-00-02/boot.ipxe"):  # of any user of the server
        said = run(
            room.at(room.server, ["curl", "--silent", "--include", f"http://{SERVER}{local}"])
        )
        assert said.stdout.startswith("HTTP/1.1 403 ")
    other = "/nodes/52-54-00-77-00-02/boot.ipxe"
    assert room.fetch(other, "--interface", "10.77.0.60").stdout.startswith("HTTP/1.1 200 ")


def find_ticket(script: str) -> str:
    """Where the node is to report, below /report/."""
    (found,) = re.findall(
        r"^set report \$\{http\}/report/([0-9a-f]{32}/[0-9a-f]{16})$", script, re.M
    )
    return str(found)


def report(room: Room, release: str, *options: str, ticket: str = "", mac: str = MAC) -> str:
    """What the web server answers to the report of a boot."""
    place = f"{ticket}/{release}" if ticket else release
    return room.fetch(f"/report/{place}?stage=switch-root&uptime=16.5&node={mac}", *options).stdout


def runs(room: Room, version: str) -> bool:
    """Whether the record of the node says that it runs this."""
    path = room.tree.seen(MAC)
    return path.is_file() and json.loads(path.read_bytes())["version"] == version


def test_each_copy_of_a_nodes_script_has_a_ticket_of_its_own(full: tuple[Room, Program]) -> None:
    room, _ = full
    first = room.fetch_script()
    assert first.startswith("HTTP/1.1 200 ")
    assert "Cache-Control: no-store" in first
    assert not re.search(r"^(ETag|Last-Modified|Accept-Ranges|Content-Length):", first, re.M)
    again = (
        "--header", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT", "--header",
        'If-None-Match: *', "--range", "0-20",
    )  # fmt: skip
    second = room.fetch_script(*again)
    assert second.startswith("HTTP/1.1 200 ")
    tickets = [find_ticket(script) for script in (first, second)]
    assert tickets[0] != tickets[1]
    assert tickets[0].partition("/")[2] == tickets[1].partition("/")[2]
    # Nothing but the script is changed, and nobody is given one who may not have the script.
    own = (room.tree.served_node(MAC) / "boot.ipxe").read_text()
    assert first.partition("\r\n\r\n")[2] == own.replace("/ticket/", f"/{tickets[0][:32]}/")
    assert room.fetch_script("--head").startswith("HTTP/1.1 200 ")

    def are_noted_in_order() -> bool:
        lines = room.tree.reports_log.read_text().splitlines()
        noted = [line for line in lines if "ticket" in line][-2:]
        return [ticket[:32] in line for ticket, line in zip(tickets, noted, strict=False)] == [
            True
        ] * 2

    # The web server writes of a request after it has answered it.
    wait_until(are_noted_in_order, "the tickets are not noted")


def test_a_report_counts_for_a_node_only_with_the_ticket_it_was_given(
    full: tuple[Room, Program],
) -> None:
    room, started = full
    ticket = find_ticket(room.fetch_script())
    assert report(room, "generic/1", ticket=ticket).startswith("HTTP/1.1 204 ")
    started.wait_for(r"^n1 +root +\d", PATIENCE)
    wait_until(room.tree.seen(MAC).is_file, "the release n1 runs is not recorded")
    before = room.tree.seen(MAC).read_bytes()
    # From another address: without a ticket, with one of a node without an address, with that one.
    room.at_client("ip", "address", "add", "10.77.0.61/24", "dev", "wire1")
    theirs = ("--interface", "10.77.0.61")
    assert room.fetch_script(*theirs).startswith("HTTP/1.1 403 ")
    other = find_ticket(room.fetch_script(*theirs, mac=OTHER_MAC))
    report(room, "generic/2", *theirs)
    report(room, "generic/2", *theirs, ticket=ticket)
    report(room, "generic/2", *theirs, ticket=other)
    report(room, "generic/2", *theirs, ticket=other, mac=OTHER_MAC)

    def told() -> bool:
        return room.tree.strangers.is_file() and OTHER_MAC in room.tree.strangers.read_text()

    wait_until(told, "what a stranger told is not recorded")
    assert room.tree.seen(MAC).read_bytes() == before
    assert not room.tree.seen(OTHER_MAC).exists()
    # Its next boot is another release.
    newer = find_ticket(room.fetch_script())
    report(room, "generic/3", ticket=ticket)
    report(room, "generic/3", ticket=newer)
    wait_until(lambda: runs(room, "3"), "not recorded")


def test_a_node_tells_its_health_with_the_secret_of_its_boot(full: tuple[Room, Program]) -> None:
    room, _ = full
    ticket = find_ticket(room.fetch_script())
    report(room, "demo/1", ticket=ticket)
    top = room.work / "node"
    make_health_root(top, f"http://{SERVER}/report/{ticket}", mac=MAC)
    room.at_client("env", f"HEALTH_ROOT={top}", sys.executable, "-I", os.fspath(HEALTH))

    def told() -> object:
        seen = room.tree.seen(MAC)
        record = json.loads(seen.read_bytes()) if seen.exists() else {}
        return record.get("health", {}).get("verdict")

    def noted(given: str) -> bool:
        return given.partition("/")[0] in room.tree.tickets.read_text()

    wait_until(lambda: told() == "ok", "the health of n1 is not recorded")
    assert "/report/health?" in room.tree.reports_log.read_text()
    assert "/report/health" not in (room.work / "serve.log").read_text()
    # Anybody on the node may fetch its script; its next boot is what its initrd reports.
    newer = find_ticket(room.fetch_script())
    room.at_client("env", f"HEALTH_ROOT={top}", sys.executable, "-I", os.fspath(HEALTH))
    wait_until(lambda: noted(newer), "the fetch is not recorded")
    assert told() == "ok"
    report(room, "demo/1", ticket=newer)
    wait_until(lambda: told() is None, "the next boot has the health of the one before")


def test_a_flood_of_reports_leaves_few_records_and_delays_no_node(
    full: tuple[Room, Program],
) -> None:
    """A sample; IMAGEBUILDER_FLOOD=300000 sends as many as the attack that this was found by."""
    room, _ = full
    count = os.environ.get("IMAGEBUILDER_FLOOD", "3000")
    room.at_client("ip", "address", "add", "10.77.0.62/24", "dev", "wire1")
    flood = ("python3", "-m", "tests.integration.report_flood", SERVER, count, "10.77.0.62")
    with room.beside("flood", room.client, *flood) as flooding:
        release = 10
        delays: list[float] = []
        while flooding.status is None or not delays:
            release += 1
            ticket, begun = find_ticket(room.fetch_script()), time.monotonic()
            assert report(room, f"generic/{release}", ticket=ticket).startswith("HTTP/1.1 204 ")
            wait_until(lambda version=str(release): runs(room, version), "not recorded")  # type: ignore[misc]
            delays.append(time.monotonic() - begun)
        flooding.wait_for(r"^\{.*'204': \d+", 60)
    print(f"delays of a node's record: {delays}; {flooding.lines[-1:]}")
    assert max(delays) < 30, delays
    records = [
        path for path in (room.tree.path / "seen").iterdir() if not path.name.startswith(".")
    ]
    own = f"{MAC.replace(':', '-')}.json"
    assert {path.name for path in records} - {"asked.json"} == {own, "strangers.json"}
    assert room.tree.strangers.stat().st_size < 100_000


def files_having(top: Path, text: str) -> dict[Path, int]:
    """The files below a folder that changes meanwhile that contain a text, with their modes."""
    found = {}
    for path in paths_below(top):
        with contextlib.suppress(FileNotFoundError):
            about = path.lstat()
            if stat.S_ISREG(about.st_mode) and text.encode() in path.read_bytes():
                found[path] = stat.S_IMODE(about.st_mode)
    return found


def test_tickets_are_in_no_file_that_others_may_read(full: tuple[Room, Program]) -> None:
    room, _ = full
    ticket = find_ticket(room.fetch_script())[:32]
    report(room, "generic/3", ticket=ticket)
    noted = {room.tree.reports_log, room.tree.tickets}
    # What is being written has a name of its own until it takes the file's place.
    wait_until(
        lambda: files_having(room.tree.path, ticket).keys() == noted,
        "the ticket is not in exactly these files",
    )
    assert set(files_having(room.tree.path, ticket).values()) == {0o600}
    assert ticket not in (room.work / "serve.log").read_text()


def test_a_changed_nodes_file_is_taken_over_and_a_wrong_one_is_not(
    full: tuple[Room, Program],
) -> None:
    room, started = full
    (offer,) = room.ask(7, mac="52:54:00:77:00:03")
    assert int(offer["address"].rpartition(".")[2]) >= 128
    third = '  n3: {macs: ["52:54:00:77:00:03"], profile: generic, address: 10.77.0.53}\n'
    try:
        room.tree.nodes_file.write_text(NODES + third)
        started.wait_for(r"^nodes.yaml: 3 nodes, dhcp-hosts, hosts, nginx.conf changed", PATIENCE)
        wait_until(
            lambda: room.ask(7, mac="52:54:00:77:00:03")[0]["address"] == "10.77.0.53", "old"
        )
        assert (room.tree.served_node("52:54:00:77:00:03") / "boot.ipxe").is_file()
        wrong = (third.replace("generic", "7 8"), third.replace("10.77.0.53", "10.9.9.9"))
        for text in ("", *(NODES + line for line in wrong)):
            many = len(started.said("could not apply nodes.yaml"))
            room.tree.nodes_file.write_text(text)
            wait_until(
                lambda many=many: len(started.said("could not apply nodes.yaml")) > many,  # type: ignore[misc]
                "nothing was said",
            )
            assert room.ask(7, mac="52:54:00:77:00:03")[0]["address"] == "10.77.0.53"
        # A node that wants the other binary takes a restart of dnsmasq.
        room.tree.nodes_file.write_text(
            NODES + third.replace("profile:", "ipxe: snponly.efi, profile:")
        )
        started.wait_for(r"^nodes.yaml: 3 nodes, dnsmasq.conf changed", PATIENCE)
        (offer,) = room.ask(7, mac="52:54:00:77:00:03")
        assert (offer["address"], offer["file"]) == ("10.77.0.53", "snponly.efi")
    finally:
        room.tree.nodes_file.write_text(NODES)
    started.wait_for(r"^nodes.yaml: 2 nodes", PATIENCE)


def test_proxy_stands_beside_a_router(room: Room) -> None:
    router = ("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--user=root",
              "--interface=wire1", "--bind-interfaces", "--log-facility=-", "--pid-file=",
              "--dhcp-range=10.77.0.200,10.77.0.210,1h", "--dhcp-leasefile=/run/leases",
              f"--dhcp-option=option:router,{ROUTER}")  # fmt: skip
    with room.beside("router", room.client, *router) as running:
        running.wait_for("DHCP, IP range", PATIENCE)
        refused = room.try_serve()
        assert refused.status == 3
        assert "the network already has a DHCP server: 10.77.0.50 (" in refused.stderr
        assert "--dhcp proxy" in refused.stderr
        with room.serving("--dhcp", "proxy") as started:
            assert not started.said("no DHCP server")
            (http,) = room.ask(16, "HTTPClient")
            assert (http["address"], http["file"]) == ("0.0.0.0", f"http://{SERVER}/ipxe/ipxe.efi")
            (ipxe,) = room.ask(0, "PXEClient", "iPXE")
            assert (ipxe["address"], ipxe["file"]) == ("0.0.0.0", f"http://{SERVER}/boot.ipxe")
            (uefi,) = room.ask(7)
            # The firmware asks again at port 4011, and hears of the file there.
            assert (uefi["address"], uefi["vendor"], uefi["next"]) == (
                "0.0.0.0", "PXEClient", SERVER,
            )  # fmt: skip
            assert room.at_server("ss", "-Hlnu", "sport = 53").stdout == ""


def test_proxy_without_a_router_is_warned_of(room: Room) -> None:
    done = room.try_serve("--dhcp", "proxy", "--check")
    assert done.status == 0, done.stderr
    assert "warning: no DHCP server answers on wire0" in done.stderr


def test_a_tree_is_served_once(full: tuple[Room, Program]) -> None:
    room, started = full
    before = (room.tree.serve / "foreground/dnsmasq.conf").read_text()
    done = room.try_serve("--no-dns")
    assert done.status == 3
    assert "another imagebuilder serve is running on this tree" in done.stderr
    done = room.try_serve("--no-dns", "--check")
    assert done.status == 0, done.stderr
    assert "wire0 is served by imagebuilder serve: no problems found" in done.stdout
    assert (room.tree.serve / "foreground/dnsmasq.conf").read_text() == before
    assert started.status is None


def test_check_looks_and_starts_nothing(room: Room) -> None:
    done = room.try_serve("--check")
    assert done.status == 0, done.stderr
    assert "wire0 can be served" in done.stdout
    assert room.at_server("ss", "-Hlnut").stdout == ""


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (("--range", "10.77.0.100"), 2, "--range 10.77.0.100: must be two IPv4 addresses"),
        (("--range", "10.77.0.9,10.77.0.8"), 2, "ends before it begins"),
        (("--range", "10.78.0.8,10.78.0.9"), 2, "is not inside 10.77.0.0/24"),
        (("--range", "10.77.0.1,10.77.0.9"), 2, "contains the address of this server, 10.77.0.1"),
        (("--gateway", "10.1.1.1"), 2, "is not in 10.77.0.0/24"),
        (("--domain", "a b"), 2, "is not a domain"),
        (("--nfs", "kernel"), 3, "the kernel's NFS server is not running"),
        (("--ipxe", "/nonexistent"), 3, "no iPXE binaries"),
        (("--check", "--install"), 2, "choose one of --check, --install"),
    ],
)
def test_what_was_typed_is_checked(
    room: Room, options: tuple[str, ...], status: int, said: str
) -> None:
    done = room.try_serve(*options)
    assert (done.status, "Traceback" in done.stderr) == (status, False), done.stderr
    assert said in done.stderr


def test_the_interface_is_checked(room: Room) -> None:
    done = room.try_serve(interface="wire9")
    assert done.status == 2
    assert "--interface wire9: does not exist" in done.stderr
    assert "did you mean wire0? available: wire0" in done.stderr


@pytest.mark.parametrize(
    ("address", "options", "said"),
    [
        ("10.9.9.9", (), "10.9.9.9 is not in 10.77.0.0/24, the subnet of wire0"),
        (SERVER, (), "10.77.0.1 is this server's own address"),
        ("10.77.0.130", ("--range", "10.77.0.128,10.77.0.140"), "the address of node n1"),
        (
            "10.77.0.9",
            ("--range", "10.77.0.128,10.77.0.130"),
            "3 addresses, but 2 nodes need 4",
        ),
    ],
)
def test_nodes_must_fit_the_wire(
    room: Room, address: str, options: tuple[str, ...], said: str
) -> None:
    room.tree.nodes_file.write_text(NODES.replace(CLIENT, address))
    done = room.try_serve(*options)
    room.tree.nodes_file.unlink()
    assert done.status == 2
    assert said in done.stderr


def test_whoever_has_a_port_is_named(room: Room) -> None:
    listen = "import socket, time; s = socket.create_server(('', 80)); time.sleep(1000)"
    with room.beside("web", room.server, "python3", "-c", listen):
        wait_until(lambda: "80" in room.at_server("ss", "-Hlnt").stdout, "not listening")
        done = room.try_serve()
    assert done.status == 3
    assert re.search(
        r"tcp port 80: is in use by python3? \(process \d+\); HTTP needs it", done.stderr
    )


def test_a_tree_that_the_web_server_cannot_enter_is_refused(room: Room) -> None:
    above = room.tree.path.parent
    above.chmod(0o700)
    done = room.try_serve()
    above.chmod(0o755)
    assert done.status == 3
    assert f"{above}: cannot be entered by user www-data" in done.stderr
    assert f"sudo chmod a+x {above}" in done.stderr


def test_a_daemon_that_dies_ends_it_all_and_is_named(room: Room) -> None:
    with room.serving() as started:
        pid = int((room.tree.serve / "foreground/dnsmasq.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        assert started.wait(PATIENCE) == 1
        assert started.said(r"error: dnsmasq stopped unexpectedly \(exit status 137\)")
    wait_until(lambda: room.at_server("ss", "-Hlnut").stdout == "", "daemons run on")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_it_is_stopped(room: Room, how: signal.Signals) -> None:
    before = set(find_descendants())
    with room.serving() as started:
        pid, theirs = find_serving(before)
        assert len(theirs) >= 5
        os.kill(pid, how)
        assert started.wait(PATIENCE) == (130 if how is not signal.SIGKILL else 137)
        wait_until(lambda: not any(map(is_alive, theirs)), "daemons run on")
    wait_until(lambda: set(find_descendants()) <= before, "something else runs on")
    # The first thread of a daemon may wait to be buried while others hold its sockets.
    wait_until(lambda: room.at_server("ss", "-Hlnut").stdout == "", "a socket is left")


def find_serving(before: set[int]) -> tuple[int, set[int]]:
    """The process of `serve`, and its daemons; it starts others meanwhile, which end at once."""
    found = {p: line for p, line in find_descendants().items() if p not in before}
    # What it starts has its command line, too, for a moment.
    serving = min(pid for pid, line in found.items() if SERVING.match(line))
    names: dict[int, str] = {}
    for pid in found:
        with contextlib.suppress(OSError):
            names[pid] = Path(f"/proc/{pid}/comm").read_text().strip()
    daemons = ("nginx", "dnsmasq", "ganesha.nfsd", "rpcbind")
    return serving, {pid for pid, name in names.items() if name in daemons}


def is_alive(pid: int) -> bool:
    """Whether a process runs, and not just waits to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
