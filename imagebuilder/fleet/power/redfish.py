# SPDX-License-Identifier: Apache-2.0
"""Redfish by sushy, OpenStack's client, which knows the vendors' deviations.

A BMC is a computer of its own, and what it says is not trusted: its answers are bounded in size
and, all together, in time.  It cannot send us to another host.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict, Unpack
from urllib.parse import urlsplit

from imagebuilder.answers import within
from imagebuilder.errors import HostError
from imagebuilder.fleet.limited import SECONDS
from imagebuilder.fleet.power.protocol import Credentials, PowerError, split_address
from imagebuilder.untrusted import fit

if TYPE_CHECKING:
    import requests

TOGETHER = 3 * SECONDS  # for the answers of which one task is made
MOST = 16 << 20  # bytes of an answer
PIECE = 1 << 16
# What sushy may end with where an answer has other types, or is too deep, than it takes for given.
ODD = (AttributeError, LookupError, RecursionError, TypeError)
TRIES, PAUSE = 10, 3  # while a BMC is not ready, in seconds
HINT = "is the address right, is its certificate trusted (`verify: false` to accept any)?"


class AdapterOptions(TypedDict, total=False):
    """What requests tells who sends a request for it."""

    stream: bool
    timeout: float | tuple[float, float] | None
    verify: bool | str
    cert: str | tuple[str, str] | None
    proxies: dict[str, str] | None


@dataclass(frozen=True)
class Redfish:
    """The first system of the BMC at `address`: a URL, or a host that answers over HTTPS."""

    node: str
    address: str
    credentials: Credentials
    verify: bool

    @property
    def url(self) -> str:
        """The address as a URL, in which an IPv6 address has brackets."""
        if "://" in self.address:
            return self.address
        host, port = split_address(self.address)
        shown = f"[{host}]" if ":" in host else host
        return f"https://{shown}:{port}" if port else f"https://{shown}"

    def on(self) -> None:
        self.ask("On")

    def off(self) -> None:
        self.ask("ForceOff")

    def is_on(self) -> bool | None:
        state = self.ask("")
        return {"On": True, "PoweringOn": True, "Off": False, "PoweringOff": False}.get(state)

    def ask(self, kind: str) -> str:
        """Reset the system, unless `kind` is empty; returns its power state before that."""
        try:
            import sushy  # noqa: F401  optional, and a third of a second
        except ImportError as error:
            raise HostError(
                "power: redfish needs the Python package sushy",
                hint="run pip install 'imagebuilder[redfish]' in imagebuilder's environment",
            ) from error
        try:
            return within(TOGETHER, lambda: ask_system(self, kind, time.monotonic() + TOGETHER))
        except TimeoutError:
            what = f"the BMC {self.address}: did not respond within {TOGETHER:g} s"
            raise PowerError(what, where=self.node, hint=HINT) from None


def ask_system(bmc: Redfish, kind: str, until: float) -> str:
    """What Redfish.ask() does, however long it takes; nothing is begun after `until`."""
    import sushy
    from sushy.connector import Connector

    try:
        connector = Connector(
            bmc.url, verify=bmc.verify, server_side_retries=TRIES, server_side_retries_delay=PAUSE,
            default_request_timeout=SECONDS, connect_timeout=SECONDS,
        )  # fmt: skip
        limit_answers(connector._session, bmc.url, until)
        root = sushy.Sushy(
            bmc.url,
            username=bmc.credentials.user,
            password=bmc.credentials.password,
            connector=connector,
            public_connector=connector._session,
        )
        systems = root.get_system_collection().get_members()
        if not systems:
            raise PowerError(f"the BMC {bmc.address} has no system", where=bmc.node)
        state = systems[0].power_state
        if kind:
            systems[0].reset_system(sushy.ResetType(kind))
        return str(getattr(state, "value", state) or "")
    except (sushy.exceptions.SushyError, OSError, ValueError) as error:
        first = fit(str(error).partition("\n")[0])
        raise PowerError(f"the BMC {bmc.address}: {first}", where=bmc.node, hint=HINT) from error
    except ODD as error:
        found = type(error).__name__
        what = f"the BMC {bmc.address}: it sent an answer that is not valid Redfish: {found}"
        raise PowerError(what, where=bmc.node, hint=HINT) from error


def limit_answers(session: requests.Session, url: str, until: float) -> None:
    """Have a session read at most MOST bytes of an answer, from the host of `url` alone."""
    import requests
    from requests.adapters import HTTPAdapter

    class BoundedAdapter(HTTPAdapter):
        """Reads an answer itself, where requests would read it without end."""

        def send(  # type: ignore[override]  # requests names all but the first
            self, request: requests.PreparedRequest, **options: Unpack[AdapterOptions]
        ) -> requests.Response:
            if urlsplit(request.url or "")[:2] != urlsplit(url)[:2]:
                raise requests.RequestException(f"it redirects to {fit(request.url or '')}")
            if time.monotonic() > until:
                raise requests.RequestException("the time limit is over")
            options["stream"] = True
            answer = super().send(request, **options)
            kept = bytearray()
            for piece in answer.iter_content(PIECE):
                kept += piece
                if len(kept) > MOST:
                    answer.close()
                    raise requests.RequestException(f"its answer is larger than {MOST >> 20} MiB")
            answer._content = bytes(kept)
            return answer

    for scheme in ("http://", "https://"):
        session.mount(scheme, BoundedAdapter())
