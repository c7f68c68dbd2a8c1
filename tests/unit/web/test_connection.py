# SPDX-License-Identifier: Apache-2.0
"""Connections that ask for nothing, or too slowly, or too many of one address."""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from imagebuilder.web import connection
from imagebuilder.web.connection import Seldom
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
