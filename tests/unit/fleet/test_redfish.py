# SPDX-License-Identifier: Apache-2.0
"""BMCs that are not what they should be: their answers are bounded, and stay with them."""

from __future__ import annotations

import json
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from imagebuilder.fleet.power import redfish
from imagebuilder.fleet.power.protocol import Credentials, PowerError
from imagebuilder.fleet.power.redfish import Redfish

pytest.importorskip("sushy", reason="sushy is not installed")

OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n"
Answer = Callable[[socketserver.StreamRequestHandler], None]


@contextmanager
def bmc(answer: Answer) -> Iterator[tuple[str, list[bytes]]]:
    """The address of what answers every request so, and the requests."""
    heard: list[bytes] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            heard.append(self.request.recv(65536))
            with suppress(OSError):
                answer(self)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", heard
        server.shutdown()


def ask(address: str) -> None:
    Redfish("n1", address, Credentials("admin", "x"), verify=True).is_on()


def drip(handler: socketserver.StreamRequestHandler) -> None:
    handler.request.sendall(OK + b"Content-Length: 100000\r\n\r\n{")
    while True:
        time.sleep(0.1)
        handler.request.sendall(b" ")


def flood(handler: socketserver.StreamRequestHandler) -> None:
    handler.request.sendall(OK + b"\r\n")
    while True:
        handler.request.sendall(bytes(1 << 20))


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redfish, "SECONDS", 1.0)
    monkeypatch.setattr(redfish, "TOGETHER", 3.0)
    monkeypatch.setattr(redfish, "PAUSE", 0.1)


@pytest.mark.parametrize(
    ("answer", "words"),
    [(drip, "did not respond within 3 s"), (flood, "its answer is larger than 16 MiB")],
)
def test_an_answer_without_end_is_given_up(answer: Answer, words: str) -> None:
    with bmc(answer) as (address, _), pytest.raises(PowerError, match=words):
        ask(address)


@pytest.mark.parametrize("how", ["redirect", "link"])
def test_nothing_is_sent_to_another_host(how: str) -> None:
    def lead(handler: socketserver.StreamRequestHandler) -> None:
        if how == "redirect":
            place = f"Location: {elsewhere}/redfish/v1/\r\nContent-Length: 0\r\n\r\n"
            handler.request.sendall(f"HTTP/1.1 307 Moved\r\nConnection: close\r\n{place}".encode())
            return
        found = {"@odata.id": f"{elsewhere}/redfish/v1/x"}
        root = {
            "Id": "1", "Name": "root", "RedfishVersion": "1.6.0", "Links": {"Sessions": found},
            "Systems": found, "SessionService": found,
        }  # fmt: skip
        body = json.dumps(root).encode()
        handler.request.sendall(OK + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    with bmc(flood) as (elsewhere, heard), bmc(lead) as (address, asked):
        with pytest.raises(PowerError, match=f"it redirects to {elsewhere}/"):
            ask(address)
        assert (heard, bool(asked)) == ([], True)


@pytest.mark.parametrize(
    "body", [b"[]", b"1", b"[" * 100_000, b'{"Systems": 1}', b'{"Systems": {"@odata.id": [1]}}']
)
def test_an_odd_answer_is_an_error_of_the_node(body: bytes) -> None:
    def answer(handler: socketserver.StreamRequestHandler) -> None:
        handler.request.sendall(OK + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    with bmc(answer) as (address, _), pytest.raises(PowerError, match="n1: the BMC "):
        ask(address)


def test_what_a_bmc_says_of_an_error_is_one_short_printable_line() -> None:
    said = {"error": {"message": f"\x1b[32mready\x1b[0m\r{'x' * 100_000}\nn2: ready"}}
    body = json.dumps(said).encode()

    def refuse(handler: socketserver.StreamRequestHandler) -> None:
        head = b"HTTP/1.1 400 No\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        handler.request.sendall(head % len(body) + body)

    with bmc(refuse) as (address, _), pytest.raises(PowerError) as caught:
        ask(address)
    (fault,) = caught.value.faults
    assert r"\x1b[32mready" in fault.what
    assert fault.what.isprintable()
    assert len(fault.what) < 300
