# SPDX-License-Identifier: Apache-2.0
"""A page on which people act, and a browser that does what browsers do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

from httpx2 import Response
from starlette.testclient import TestClient

from imagebuilder.web.action_journal import ActionRecord, read_actions
from imagebuilder.web.app import make_app
from imagebuilder.web.roles import Role
from imagebuilder.web.site import WebSite
from imagebuilder.web.tokens import add_token
from tests.acting import await_end, running_act_client
from tests.fleet_world import FleetWorld, make_site

ORIGIN = "http://testserver"
BROWSER = {"origin": ORIGIN, "sec-fetch-site": "same-origin"}
FORM = {"content-type": "application/x-www-form-urlencoded"}


@dataclass(frozen=True)
class ActingSite:
    """The site, a browser of somebody, and a token of each role by its name."""

    site: WebSite
    client: TestClient
    tokens: Mapping[str, str]
    file: Path

    def another(self, address: str = "testclient") -> ActingSite:
        """The browser of somebody else; the lifespan of the application is the first one's."""
        app = make_app(self.site, ["testserver"])
        client = TestClient(app, follow_redirects=False, client=(address, 50000))
        return replace(self, client=client)

    def post(self, path: str, fields: Mapping[str, str], **headers: str) -> Response:
        """A form; headers are those of a browser on our own page unless they are given."""
        sent = {**BROWSER, **FORM, **{k.replace("_", "-"): v for k, v in headers.items()}}
        body = urlencode(fields)
        return self.client.post(path, content=body, headers={k: v for k, v in sent.items() if v})

    def log_in(self, name: str, **fields: str) -> Response:
        return self.post("/login", {"token": self.tokens[name], **fields})

    def csrf(self, page: str = "/actions") -> str:
        found = re.search(r'name="csrf" value="([^"]+)"', self.client.get(page).text)
        assert found, "no form on this page"
        return unescape(found[1])

    def act(self, **fields: str) -> Response:
        """Confirm it, as the form of the page does."""
        return self.post("/act", {"csrf": self.csrf(), **fields})

    def records(self) -> tuple[ActionRecord, ...]:
        return read_actions(self.site.tree)

    def ended(self) -> ActionRecord:
        """The newest action, when it has ended."""
        return await_end(self.site.tree)


@contextmanager
def acting(world: FleetWorld, tokens: Path) -> Iterator[ActingSite]:
    made = {role.value: add_token(tokens, role.value, role) for role in Role}
    with running_act_client(world.tree, tokens) as act_client:
        site = make_site(world, act_client=act_client)
        app = make_app(site, ["testserver"])
        client = TestClient(app, raise_server_exceptions=False, follow_redirects=False)
        with client:
            yield ActingSite(site, client, made, tokens)
