# SPDX-License-Identifier: Apache-2.0
"""Connections that ask for nothing, or too slowly, or too many of one address."""

from __future__ import annotations

import contextlib
import logging
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from sys import exc_info
from urllib.parse import urlsplit

import pytest

from imagebuilder.web import connection
from imagebuilder.web.connection import Seldom, allow_connections, client_of, networks_of
from imagebuilder.web.run import make_config
from tests.fleet_world import make_site, make_world, serving

PATIENCE = 30.0
WHOLE = b"GET /api/v1/nodes HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
STREAM = b"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@contextmanager
def listening(top: Path) -> Iterator[tuple[str, int]]:
    with serving(make_site(make_world(top))) as address:
        parts = urlsplit(address)
        yield str(parts.hostname), int(parts.port or 0)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """Where a server listens that has little patience."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "REQUEST_S", 1.0)
        with listening(tmp_path_factory.mktemp("patience")) as found:
            yield found


def read_all(sock: socket.socket) -> bytes:
    """What comes until the other end closes."""
    found = b""
    try:
        while more := sock.recv(65536):
            found += more
    except ConnectionResetError:
        pass
    return found


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n1",
    ],
)
def test_a_request_that_does_not_come_is_not_waited_for(
    place: tuple[str, int], begun: bytes
) -> None:
    with socket.create_connection(place, PATIENCE) as sock:
        sock.sendall(begun)
        read_all(sock)  # or it raises TimeoutError


def test_nor_is_a_second_one(place: tuple[str, int]) -> None:
    with socket.create_connection(place, PATIENCE) as sock:
        sock.sendall(WHOLE.replace(b"GET", b"HEAD").replace(b"Connection: close\r\n", b""))
        assert sock.recv(65536).startswith(b"HTTP/1.1 200 ")
        sock.sendall(b"GET")
        read_all(sock)


def test_single_bytes_give_a_request_no_more_time(place: tuple[str, int]) -> None:
    with socket.create_connection(place, PATIENCE) as sock:
        sock.settimeout(0.1)
        ended = False
        for _ in range(int(PATIENCE / 0.1)):
            try:
                sock.sendall(b"G")
                ended = not sock.recv(1)
            except TimeoutError:
                continue
            except ConnectionError:
                ended = True
            if ended:
                break
        assert ended


def test_a_stream_lives_longer_than_a_request_may_take(place: tuple[str, int]) -> None:
    with socket.create_connection(place, PATIENCE) as sock:
        sock.sendall(STREAM)
        assert sock.recv(4) == b"HTTP"
        sock.settimeout(0.2)
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                assert sock.recv(65536)


def test_one_address_cannot_have_all_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "OF_ONE", 8)
    with listening(tmp_path) as place, ExitStack() as stack:
        for _ in range(8):
            sock = stack.enter_context(socket.create_connection(place, PATIENCE))
            sock.sendall(STREAM)
            assert sock.recv(4) == b"HTTP"
        with socket.create_connection(place, PATIENCE) as sock:
            assert read_all(sock) == b""
        # Another address of this machine is another client.
        with socket.create_connection(place, PATIENCE, source_address=("127.0.0.2", 0)) as sock:
            sock.sendall(WHOLE)
            assert read_all(sock).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("first", [b"", WHOLE.replace(b"Connection: close\r\n", b"")])
def test_many_clients_that_hold_connections_keep_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    monkeypatch.setattr("tests.fleet_world.make_config", lambda app: make_config(app, 12))
    with listening(tmp_path) as place, ExitStack() as stack:
        for number in range(40):
            source = (f"127.0.1.{number // 8}", 0)
            sock = socket.create_connection(place, PATIENCE, source_address=source)
            stack.enter_context(sock)
            if first:
                sock.sendall(first)
                assert sock.recv(65536).startswith(b"HTTP/1.1 200 ")
        for _ in range(3):
            with socket.create_connection(place, PATIENCE) as sock:
                sock.sendall(WHOLE)
                assert read_all(sock).startswith(b"HTTP/1.1 200 ")


def test_one_machine_is_one_client() -> None:
    assert client_of("fd00:0:0:1::1") == client_of("fd00:0:0:1:ffff::2")
    assert client_of("fd00:0:0:1::1") != client_of("fd00:0:0:2::1")
    assert client_of("::ffff:10.0.0.1") == client_of("10.0.0.1") == "10.0.0.1"


def test_an_address_is_of_networks() -> None:
    assert networks_of("10.1.2.3") == ("10.1.0.0/16", "10.1.2.0/24", "10.1.2.3")
    assert networks_of("::ffff:10.1.2.3") == networks_of("10.1.2.3")
    first, second = networks_of("fd00:1:2:3aa::1"), networks_of("fd00:1:2:3bb::1")
    assert first[:2] == second[:2] == ("fd00:1:2::/48", "fd00:1:2:300::/56")
    assert first[2] != second[2]
    assert networks_of("") == ("",)


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "most"),
    [
        (1024, 524_288, 4096, 768),
        (1024, resource.RLIM_INFINITY, 4096, 768),
        (1024, 1024, 1024, 512),
        (256, 256, 256, 64),
        (65_536, 65_536, 65_536, 768),
    ],
)
def test_there_are_descriptors_for_all_connections(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, raised: int, most: int
) -> None:
    limits = [(soft, hard)]
    monkeypatch.setattr("resource.getrlimit", lambda _: limits[-1])
    monkeypatch.setattr("resource.setrlimit", lambda _, new: limits.append(new))
    assert allow_connections(768) == most
    assert limits[-1] == (raised, hard)


def test_the_same_error_is_logged_once_a_minute() -> None:
    seldom = Seldom()

    def fail(line: int) -> bool:
        try:
            int("x" if line else "y")
        except ValueError:
            return bool(seldom.filter(logging.makeLogRecord({"msg": "", "exc_info": exc_info()})))
        return False

    assert [fail(0), fail(1), fail(0)] == [True, False, False]
    assert seldom.filter(logging.makeLogRecord({"msg": "other", "exc_info": (None, None, None)}))


def test_what_strangers_repeat_is_logged_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    seldom = Seldom()

    def passes(message: str) -> bool:
        return bool(seldom.filter(logging.makeLogRecord({"msg": message})))

    assert [passes("full"), passes("full"), passes("invalid"), passes("full")] == [
        True, False, True, False,
    ]  # fmt: skip
    now[0] += 61
    assert [passes("full"), passes("full")] == [True, False]
    error = logging.makeLogRecord({"msg": "full", "exc_info": (ValueError, ValueError(), None)})
    assert seldom.filter(error)
