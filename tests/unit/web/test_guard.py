# SPDX-License-Identifier: Apache-2.0
"""Who may ask, by which name, for what."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from imagebuilder.web.guard import HEADERS, Guard
from imagebuilder.web.run import make_config

NETWORKS = (IPv4Network("192.168.77.0/24"), IPv6Network("fd77::/64"), IPv6Network("fe80::/64"))


def ask(
    *, client: str = "10.0.0.9", method: str = "GET", headers: Sequence[tuple[str, str]] = ()
) -> tuple[int, dict[str, str]]:
    app = Guard(PlainTextResponse("inside"), ["Control.example", "::1"], lambda: NETWORKS)
    browser = TestClient(app, base_url="http://control.example", client=(client, 50000))
    answer = browser.request(method, "/", headers=list(headers))
    return answer.status_code, dict(answer.headers)


@pytest.mark.parametrize("host", ["control.example", "CONTROL.EXAMPLE:8470", "[::1]:8470", "[::1]"])
def test_known_names_are_answered(host: str) -> None:
    assert ask(headers=[("host", host)])[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "control.example.evil.example", "", "control.example@evil.example",
             "control.example, evil.example", "::1", "[::1].evil.example:80:80", "."]
)  # fmt: skip
def test_other_names_are_not(host: str) -> None:
    assert ask(headers=[("host", host)])[0] == 421


def test_two_names_are_one_too_many() -> None:
    names = [("host", "control.example"), ("host", "evil.example")]
    assert ask(headers=names)[0] == 421


def test_what_a_proxy_header_says_is_not_believed() -> None:
    told = [("x-forwarded-host", "evil.example"), ("x-forwarded-for", "192.168.77.5")]
    assert ask(headers=told)[0] == 200
    told = [("x-forwarded-for", "10.0.0.9"), ("forwarded", "for=10.0.0.9")]
    assert ask(client="192.168.77.5", headers=told)[0] == 403


@pytest.mark.parametrize(
    "client", ["192.168.77.5", "::ffff:192.168.77.5", "fd77::5", "fe80::5", "fe80::5%eth0"]
)
def test_nodes_are_refused(client: str) -> None:
    assert ask(client=client)[0] == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_but_reading(method: str) -> None:
    status, headers = ask(method=method)
    assert (status, headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_link_elsewhere_leads_here(method: str) -> None:
    told = [("sec-fetch-site", "cross-site"), ("origin", "https://chat.example")]
    assert ask(method=method, headers=told)[0] == 200


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_every_answer_has_the_policy(method: str) -> None:
    _, headers = ask(method=method)
    for name, value in HEADERS.items():
        assert headers[name.lower()] == value
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "access-control-allow-origin" not in headers


def test_nothing_but_requests_comes_through() -> None:
    """A websocket has no method, and pages elsewhere may open one to any host."""
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del receive, send
        seen.append(scope["type"])

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        seen.append(message["type"])

    guard = Guard(app, ["control.example"], lambda: ())
    for kind in ("lifespan", "websocket"):
        asyncio.run(guard({"type": kind, "headers": []}, receive, send))
    assert seen == ["lifespan"]
    assert make_config(guard).ws == "none"
