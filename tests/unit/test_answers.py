# SPDX-License-Identifier: Apache-2.0
"""Servers that send a byte now and then are given up: headers, trailers, lengths of chunks."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from imagebuilder.answers import answered, find_headers, pieces_of, within
from imagebuilder.doctor import inputs
from imagebuilder.doctor.finding import Severity
from imagebuilder.lock import continued, wheels
from imagebuilder.lock.patience import Pace, Patience, SlowError, paced
from imagebuilder.lock.wheels import Item
from tests.fixtures.aptrepo import WITHOUT_PROXY

EVERY = 0.05  # seconds from one byte to the next
LIMIT = 0.5  # seconds
PARTIAL = b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-99/100\r\n"


@pytest.fixture(autouse=True)
def _limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in WITHOUT_PROXY.items():
        monkeypatch.setenv(name, value)
    for module, name in ((wheels, "TIMEOUT_S"), (continued, "TIMEOUT_S"), (inputs, "TIMEOUT")):
        monkeypatch.setattr(module, name, LIMIT)


@contextmanager
def dripping(first: bytes, drop: bytes) -> Iterator[str]:
    """The address of a server that answers `first`, and then `drop` over and over."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip(line: socket.socket) -> None:
            with line, suppress(OSError):
                line.recv(1 << 16)
                line.sendall(first)
                while not ended.wait(EVERY):
                    line.sendall(drop)

        def serve() -> None:
            with suppress(OSError):
                while True:
                    line, _ = listening.accept()
                    threading.Thread(target=drip, args=(line,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/a.whl"
        finally:
            ended.set()


@contextmanager
def quick() -> Iterator[None]:
    """Fails if its block takes much longer than LIMIT."""
    before = time.monotonic()
    yield
    assert time.monotonic() - before < 6 * LIMIT


HEADERS = [(b"", b"H"), (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"), (b"HTTP/1.1 200 OK\r\nX: ", b"y")]


@pytest.mark.parametrize(("first", "drop"), HEADERS)
def test_the_size_of_a_wheel_is_not_waited_for(first: bytes, drop: bytes) -> None:
    with dripping(first, drop) as url, quick():
        assert wheels.find_size(Item("a", "1", url, "")) is None


@pytest.mark.parametrize(("first", "drop"), HEADERS)
def test_a_mirror_that_drips_is_a_finding(first: bytes, drop: bytes) -> None:
    with dripping(first, drop) as url, quick():
        probe = inputs.run_probe("dists/trixie/InRelease", "debian", "trixie", url)
    assert probe.level is Severity.PROBLEM
    assert "did not answer within" in probe.what


@pytest.mark.parametrize(("first", "drop"), HEADERS)
def test_a_server_that_drips_headers_resumes_nothing(
    tmp_path: Path, first: bytes, drop: bytes
) -> None:
    with dripping(first, drop) as url, paced(tmp_path) as pace, quick():
        continued.fetch_rest(url, tmp_path / "part", pace)
    assert not (tmp_path / "part").exists()


@pytest.mark.parametrize(
    ("first", "drop"),
    [
        (PARTIAL + b"Content-Length: 100\r\n\r\n", b"x"),
        # Digits of the length of a chunk: none of it ever arrives.
        (PARTIAL + b"Transfer-Encoding: chunked\r\n\r\n", b"0"),
        (PARTIAL + b"Transfer-Encoding: chunked\r\n\r\n1;", b"x"),
    ],
)
def test_a_server_that_drips_a_body_is_given_up(tmp_path: Path, first: bytes, drop: bytes) -> None:
    patience = Patience(rate=1000, seconds=LIMIT)
    with (
        dripping(first, drop) as url,
        paced(tmp_path, patience) as pace,
        quick(),
        pytest.raises(SlowError),
    ):
        continued.fetch_rest(url, tmp_path / "part", pace)


def test_a_body_arrives_whole(tmp_path: Path) -> None:
    body = bytes(range(256)) * 4096
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    pace = Pace(tmp_path, Patience())
    with dripping(whole, b"") as url, answered(url, LIMIT, headers={}) as answer:
        assert b"".join(pieces_of(answer, pace.ask)) == body


def test_what_raises_within_its_time_is_raised() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        within(LIMIT, lambda: int("x"))
    with dripping(b"", b"H") as url, quick(), pytest.raises(TimeoutError, match=r"within 0\.5 s"):
        find_headers(url, LIMIT)
