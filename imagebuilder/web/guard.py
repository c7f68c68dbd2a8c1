# SPDX-License-Identifier: Apache-2.0
"""What every request passes: who may ask, by which name, for what; and what browsers are told.

A page elsewhere that has the browser of somebody here ask us by another name (DNS rebinding) gets
nothing: only known names are answered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from imagebuilder.serve.interface import Network
from imagebuilder.web.node_networks import is_of_nodes

HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s:\[\]]+))(?::[0-9]{1,5})?")
READING = ("GET", "HEAD")
ACTING = (*READING, "POST")
# Where a browser says that a request of a page of ours comes from.
SAME_ORIGIN = "same-origin"
# Nothing but our own files; nothing is sent anywhere, but the filter of the fleet to ourselves.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# Reports are pages of their own, with their style in them and without scripts.
REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; sandbox allow-same-origin"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with none, browsers do not tell from where a form is
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-cache",
}


class Guard:
    """An ASGI application in front of another.

    `networks` tells where nodes are, and `acts` whether anybody may act, now.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: Collection[str],
        networks: Callable[[], tuple[Network, ...]],
        acts: Callable[[], bool] = lambda: False,
    ) -> None:
        self.app, self.networks, self.acts = app, networks, acts
        self.hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        if scope["type"] != "http":
            return  # nothing else is served, so nobody need be asked who they are

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self.refuse(scope)
        await (refusal or self.app)(scope, receive, send_with_headers)

    def refuse(self, scope: Scope) -> PlainTextResponse | None:
        """The answer to who may not ask."""
        client = scope.get("client")
        if client and is_of_nodes(client[0], self.networks()):
            return PlainTextResponse("This server is not for nodes.\n", 403)
        headers = Headers(scope=scope)
        if name_of(headers.getlist("host")) not in self.hosts:
            words = "This server does not answer to this name; --host NAME adds it.\n"
            return PlainTextResponse(words, 421)
        methods = ACTING if self.acts() else READING
        if scope["method"] not in methods:
            words = "This server is read only.\n" if methods is READING else "No such method.\n"
            return PlainTextResponse(words, 405, {"Allow": ", ".join(methods)})
        if scope["method"] not in READING and not is_same_origin(headers):
            return PlainTextResponse("This request is of a page elsewhere.\n", 403)
        return None


def is_same_origin(headers: Headers) -> bool:
    """Whether what a browser says of a request's origin is that it is us; programs say nothing."""
    host = headers["host"].lower()
    origins, sites = headers.getlist("origin"), headers.getlist("sec-fetch-site")
    ours = (f"https://{host}",) if is_private(headers) else (f"http://{host}", f"https://{host}")
    return all(each.lower() in ours for each in origins) and all(s == SAME_ORIGIN for s in sites)


def is_private(headers: Headers) -> bool:
    """Whether the browser used HTTPS, which only it and a proxy in front of us know.

    Everybody can send what a proxy sends, and need not be believed: this makes nothing but
    stricter what the sender may do.
    """
    said = [each.lower() for each in headers.getlist("x-forwarded-proto")]
    return "https" in said or headers.get("origin", "").lower().startswith("https://")


def name_of(hosts: list[str]) -> str:
    """The name in the one Host header, without the port; empty when there are several, or none."""
    match = HOST.fullmatch(hosts[0].lower()) if len(hosts) == 1 else None
    return (match[1] or match[2]) if match else ""
