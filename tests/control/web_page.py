# SPDX-License-Identifier: Apache-2.0
"""The web page of a control node, asked from the builder."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from imagebuilder.digest import Json
from tests.control.world import ADDRESS, Builder, Nuc

PAGE = f"http://{ADDRESS}:8470"
WEB, SOCKET, ACT = "imagebuilder-web.service", "imagebuilder-act.socket", "imagebuilder-act@"
SECONDS = 180.0


@dataclass(frozen=True)
class WebPage:
    """A page that runs as a unit, and somebody's token."""

    builder: Builder
    nuc: Nuc
    token: str
    tunnel: str

    def ask(self, path: str, *more: str, page: str = PAGE) -> tuple[int, str]:
        """The status and the body of an answer; 0 if there is none."""
        words = ["curl", "-sS", "-m", "60", "-w", r"\n%{http_code}", *more, f"{page}{path}"]
        body, _, status = self.builder.room.run(words, check=False).stdout.rpartition("\n")
        return int(status), body

    def nodes(self) -> list[str]:
        """The names of the nodes that it knows."""
        status, body = self.ask("/api/v1/nodes")
        assert status == 200, body
        return [node["node"] for node in json.loads(body)["nodes"]]

    def action(self, action: str) -> dict[str, str]:
        """What it says of an action."""
        status, body = self.ask(f"/api/v1/actions/{action}")
        assert status == 200, body
        found: dict[str, str] = json.loads(body)
        return found

    def order(self, order: Json, token: str = "") -> tuple[int, str]:
        """Ask for an action as a program does; the status and the body of the answer."""
        bearer = f"Authorization: Bearer {token or self.token}"
        return self.ask("/api/v1/actions", "-H", bearer, "--json", json.dumps(order))

    def begin(self, order: Json) -> str:
        """Begin an action; its id."""
        status, body = self.order(order)
        assert status == 202, body
        return str(json.loads(body)["id"])

    def await_end(self, action: str) -> dict[str, str]:
        """What it says of an action when that has ended."""
        await_that(lambda: self.action(action)["state"] != "running", "the action does not end")
        return self.action(action)

    def await_answer(self) -> None:
        await_that(lambda: self.ask("/api/v1/nodes")[0] == 200, "the page does not answer")


def await_that(holds: Callable[[], bool], what: str) -> None:
    """Wait until `holds()`; `what` is wrong if that never comes."""
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end, f"after {SECONDS:g} s {what}"
        time.sleep(0.5)
