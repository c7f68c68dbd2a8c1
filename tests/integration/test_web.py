# SPDX-License-Identifier: Apache-2.0
"""The web server as a process: killed, restarted, with many readers, and one that stalls."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Interface
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from imagebuilder.digest import Json
from imagebuilder.process import run
from imagebuilder.tree import Tree, make_tree
from imagebuilder.web.node_networks import find_node_networks
from imagebuilder.web.stream import WAITING
from tests.fleet_world import (
    NEW,
    OLD,
    FleetWorld,
    address_of,
    mac_of,
    make_site,
    make_world,
    running,
    serving,
)
from tests.integration.started import PATIENCE, Started, start, wait_until
from tests.ports import free_port

READERS = 200
AGE = re.compile(rb"\d+ (s|min|h|days) ago")


@pytest.fixture
def world(tmp_path: Path) -> FleetWorld:
    return make_world(tmp_path, racks=2)


PROGRAM = ("-m", "imagebuilder.cli.main")


def start_web(
    world: FleetWorld, port: int, *options: str, program: Sequence[str] = PROGRAM
) -> Started:
    """`imagebuilder web` on that port, answering."""
    argv = [sys.executable, *program, "web", "--tree", str(world.tree.path)]
    more = ["--listen", f"127.0.0.1:{port}", "--ask", "0", "--nights", str(world.reports)]
    folder = world.tree.path.parent / f"web-{time.monotonic_ns()}"
    started = start([*argv, *more, *options], {"HOME": os.fspath(folder)}, folder)

    def answers() -> bool:
        assert started.find_end() is None, started.stderr
        try:
            return bool(get(f"http://127.0.0.1:{port}/"))
        except OSError:
            return False

    wait_until(answers, "the web server does not answer")
    return started


def get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
        return bytes(answer.read())


@contextmanager
def stream(address: str, last: str = "", *, buffer: int = 0) -> Iterator[socket.socket]:
    """An open stream of events."""
    parts = urlsplit(address)
    with socket.socket() as sock:
        if buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        sock.settimeout(PATIENCE)
        sock.connect((parts.hostname, parts.port))
        more = f"Last-Event-ID: {last}\r\n" if last else ""
        request = f"GET /api/v1/events HTTP/1.1\r\nHost: {parts.netloc}\r\n{more}\r\n"
        sock.sendall(request.encode())
        yield sock


def read_until(sock: socket.socket, words: bytes) -> bytes:
    """What a stream says up to `words`."""
    found = b""
    while words not in found:
        more = sock.recv(65536)
        assert more, found[-2000:]
        found += more
    return found


def test_who_had_a_stream_loses_nothing_by_a_killed_server(world: FleetWorld) -> None:
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    first = start_web(world, port)
    before = json.loads(get(f"{address}/api/v1/nodes"))["nodes"]
    with stream(address) as sock:
        read_until(sock, b"event: hello")
        world.report(3, "network", NEW, timedelta(0))
        said = read_until(sock, b"event: node\n")
        last = re.findall(rb"id: (\S+)", said)[-1].decode()
        first.send(signal.SIGKILL)
        assert first.wait(PATIENCE) == -signal.SIGKILL
    world.report(4, "root", NEW, timedelta(0))  # while nobody looks
    second = start_web(world, port)
    with stream(address, last) as sock:
        read_until(sock, b"event: resync")
    after = {each["node"]: each for each in json.loads(get(f"{address}/api/v1/nodes"))["nodes"]}
    assert len(after) == len(before)
    assert "stage network" in after["node003"]["words"]
    assert "stage root" in after["node004"]["words"]
    second.send(signal.SIGTERM)
    assert second.wait(PATIENCE) == 130


def test_it_ends_with_open_streams(world: FleetWorld) -> None:
    port = free_port()
    started = start_web(world, port)
    with stream(f"http://127.0.0.1:{port}") as sock:
        read_until(sock, b"event: hello")
        started.send(signal.SIGINT)
        assert started.wait(PATIENCE) == 130
    assert "Traceback" not in started.stderr
    assert "ERROR" not in started.stderr


def test_it_writes_nothing_into_the_tree(world: FleetWorld) -> None:
    def everything() -> dict[str, int]:
        return {str(path): path.lstat().st_mtime_ns for path in world.tree.path.rglob("*")}

    before = everything()
    started = start_web(world, port := free_port())
    for path in ("/nodes/node040", "/api/v1/releases", "/metrics"):
        get(f"http://127.0.0.1:{port}{path}")
    started.send(signal.SIGTERM)
    started.wait(PATIENCE)
    assert everything() == before


@pytest.mark.root
def test_a_full_disk_keeps_no_page_from_being_shown(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", folder])
    try:
        world = make_world(folder, racks=2)
        world.plant_history()
        world.plant_boots(40)
        started = start_web(world, port := free_port())
        large = folder / "large"
        with pytest.raises(OSError, match="No space left"):
            large.write_bytes(bytes(32 * 1024**2))
        with pytest.raises(OSError, match="No space left"):
            (folder / "more").write_bytes(bytes(4096))
        for path in ("/", "/nodes/node040", "/releases", "/nightly", "/metrics", "/api/v1/nodes"):
            assert get(f"http://127.0.0.1:{port}{path}")
        with stream(f"http://127.0.0.1:{port}") as sock:
            read_until(sock, b"event: hello")
            large.unlink()
            world.report(3, "network", NEW, timedelta(0))
            read_until(sock, b'"node":"node003"')
        assert started.find_end() is None
        started.send(signal.SIGTERM)
        assert started.wait(PATIENCE) == 130
        assert "Traceback" not in (stderr := started.stderr), stderr
    finally:
        run(["umount", "--lazy", folder])


# What it loads while it works is loaded before it gives up root, who may read it wherever it lies.
AS_NOBODY = """
import os, pkgutil, sys
import imagebuilder.web, uvicorn.lifespan.on, uvicorn.loops.auto, uvicorn.protocols.http.auto
import uvicorn.protocols.websockets.auto, uvicorn.protocols.http.h11_impl, anyio._backends._asyncio
for module in pkgutil.walk_packages(imagebuilder.__path__, "imagebuilder."):
    if not module.name.startswith("imagebuilder.steps.") and "__main__" not in module.name:
        __import__(module.name)
from imagebuilder.web.site import WebSite
from imagebuilder.cli.main import main
"".encode("utf-8-sig"), "".encode("idna")
os.setgroups([]), os.setgid(65534), os.setuid(65534)
sys.argv = ["imagebuilder", *sys.argv[1:]]
main()
"""


@pytest.mark.root
def test_an_ordinary_user_is_told_what_root_alone_may_see() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="imagebuilder-test-") as top:
        Path(top).chmod(0o755)
        world = make_world(Path(top), racks=2)
        world.plant_history()
        world.plant_boots(40)
        for path in (world.tree.reports_log, *world.tree.serve.glob("logs/*")):
            path.chmod(0o600)
        port = free_port()
        started = start_web(world, port, program=("-c", AS_NOBODY))
        address = f"http://127.0.0.1:{port}"
        node = json.loads(get(f"{address}/api/v1/nodes/node040"))
        assert (node["boots"], node["unread"]) == (None, ["dnsmasq", "nginx"])
        assert "Only root may read the log of reports" in get(f"{address}/nodes/node040").decode()
        for release in json.loads(get(f"{address}/api/v1/releases"))["releases"]:
            assert release["standing"] is None
        assert b"is not known: only root" in get(f"{address}/releases/rx7600xt/{NEW}")
        started.send(signal.SIGTERM)
        assert started.wait(PATIENCE) == 130
        assert "Traceback" not in started.stderr


@contextmanager
def reading(tree: Tree, folder: Path) -> Iterator[Path]:
    """The socket at which root reads for the page, who has no right but that, as in the unit."""
    place = folder / "read.socket"
    rights = ["setpriv", "--bounding-set=-all,+dac_read_search", "--no-new-privs", "--"]
    words = ["systemd-socket-activate", "--accept", "--inetd", f"--listen={place}"]
    argv = [*words, "--setenv=HOME", "--setenv=PATH", *rights, sys.executable, "-P", *PROGRAM]
    started = start([*argv, "read", "--tree", str(tree.path)], {"HOME": "/nowhere"}, folder / "r")
    wait_until(place.exists, "there is no socket")
    place.chmod(0o666)
    try:
        yield place
    finally:
        started.send(signal.SIGKILL)
        started.wait(PATIENCE)


@pytest.mark.root
def test_a_page_without_rights_shows_what_root_reads_for_it() -> None:
    """As the units have it: the page is nobody, and what reads for it is root's."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="imagebuilder-test-") as top:
        Path(top).chmod(0o755)
        world = make_world(Path(top), racks=2)
        world.plant_history()
        world.plant_boots(40)
        world.plant_console(40, ["<b>it</b> said this"])
        logs = (world.tree.reports_log, *world.tree.serve.glob("logs/*"))
        for path in logs:
            path.chmod(0o600)
        world.tree.consoles("node040").parent.chmod(0o700)
        paths = ("/api/v1/nodes/node040", "/api/v1/releases", f"/api/v1/releases/rx7600xt/{NEW}")
        shown = []
        with reading(world.tree, Path(top)) as place:
            for options, program in (
                ((), PROGRAM),
                (("--read", os.fspath(place)), ("-c", AS_NOBODY)),
            ):
                port = free_port()
                started = start_web(world, port, *options, program=program)
                address = f"http://127.0.0.1:{port}"
                # The second one is asked later, and a minute may have passed.
                answers = [AGE.sub(b"some time ago", get(f"{address}{path}")) for path in paths]
                shown.append([json.loads(answer) for answer in answers])
                shown[-1][1].pop("at")
                if options:
                    said = show_boot_live(world, address, 14)
                    assert b"it&lt;/b&gt; said this" in get(f"{address}/nodes/node040")
                started.send(signal.SIGTERM)
                started.wait(PATIENCE)
                assert "Traceback" not in started.stderr
        root, nobody = shown
        assert nobody == root
        assert len(nobody[0]["boots"]) == 2
        assert nobody[0]["consoles"]
        assert nobody[0]["unread"] == []
        assert nobody[1]["releases"][0]["standing"]
        assert '"node":"node014","condition":"booting"' in said


def show_boot_live(world: FleetWorld, address: str, index: int) -> str:
    """A node boots; what is told to readers of events, although nobody takes its reports in."""
    secret, now = "e" * 32, datetime.now(UTC).isoformat(timespec="seconds")
    mac, said = mac_of(index), {"time": now, "address": address_of(index)}
    script = f"/nodes/{mac.replace(':', '-')}/boot.ipxe"
    report = f"/report/{secret}/rx7600xt/{OLD}?stage=overlay&node={mac}"
    world.tree.serve.joinpath("leases").write_text(f"9999999999 {mac} {address_of(index)} * *\n")
    with stream(address) as sock, world.tree.reports_log.open("a") as log:
        read_until(sock, b"\n\n")
        for line in ({**said, "uri": script, "ticket": secret},
                     {**said, "uri": report, "agent": "curl"}):  # fmt: skip
            log.write(json.dumps(line, separators=(",", ":")) + "\n")
        log.flush()
        return read_until(sock, b"reached stage overlay").decode()


def test_a_second_server_on_the_same_port_says_so(world: FleetWorld) -> None:
    port = free_port()
    started = start_web(world, port)
    argv = [sys.executable, "-m", "imagebuilder.cli.main", "web", "--tree", str(world.tree.path)]
    folder = world.tree.path.parent / "second"
    other = start([*argv, "--listen", f"127.0.0.1:{port}"], {}, folder)
    assert other.wait(PATIENCE) == 3
    assert "cannot listen: Address already in use" in other.stderr
    started.send(signal.SIGTERM)
    started.wait(PATIENCE)


def test_two_hundred_streams_hear_of_a_change(world: FleetWorld) -> None:
    site = make_site(world)
    with serving(site) as address, ExitStack() as opened:
        socks = [opened.enter_context(stream(address)) for _ in range(READERS)]
        for sock in socks:
            read_until(sock, b"event: hello")
        world.report(3, "network", NEW, timedelta(0))
        for sock in socks:
            assert b'"node":"node003"' in read_until(sock, b"event: releases")
        assert len(get(f"{address}/")) > 10_000
    assert site.watcher.broker.readers == []


def test_streams_are_limited(world: FleetWorld) -> None:
    site = make_site(world)
    site.watcher.broker.streams = 2
    with serving(site) as address, stream(address) as one, stream(address) as two:
        for sock in (one, two):
            read_until(sock, b"event: hello")
        with stream(address) as three:
            read_until(three, b"event: hello")
            one.settimeout(PATIENCE)
            while one.recv(65536):
                pass  # the oldest ends
            assert len(site.watcher.broker.readers) == 2


def test_one_that_does_not_read_delays_nobody_and_is_cut_off(world: FleetWorld) -> None:
    site = make_site(world)
    broker = site.watcher.broker
    with (
        running(site, stalled=10_000) as (address, loop),
        stream(address, buffer=4096),
        ExitStack() as more,
    ):
        wait_until(lambda: len(broker.readers) == 1, "the stream is not open")
        (stalled,) = broker.readers
        other = more.enter_context(stream(address))
        read_until(other, b"event: hello")
        data: dict[str, Json] = {"node": "n", "words": "x" * 20_000}

        def is_stalled() -> bool:
            loop.call_soon_threadsafe(broker.publish, "node", data)
            other.recv(1 << 20)
            return len(stalled.events) > 100

        wait_until(is_stalled, "a stream that nobody reads takes everything")
        assert len(stalled.events) <= WAITING
        world.report(5, "network", OLD, timedelta(0))
        read_until(other, b'"node":"node005"')
        wait_until(lambda: stalled not in broker.readers, "who does not read stays")
        assert len(broker.readers) == 1


def test_the_networks_of_nodes_are_those_of_the_interface_that_serves(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    (tree.serve / "installed").mkdir()
    name, network = first_interface()
    (tree.serve / "installed/dnsmasq.conf").write_text(f"interface={name}\n")
    assert network in [str(one) for one in find_node_networks(tree)]


def first_interface() -> tuple[str, str]:
    """An interface of this host and its network, as ip(8) says; the test is skipped without one."""
    for link in json.loads(run(["ip", "-json", "-4", "address", "show", "up"]).stdout):
        for info in link.get("addr_info", ()):
            if link["ifname"] != "lo" and len(link["addr_info"]) == 1:
                address = IPv4Interface(f"{info['local']}/{info['prefixlen']}")
                return link["ifname"], str(address.network)
    pytest.skip("this host has no network interface")
