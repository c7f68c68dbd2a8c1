# SPDX-License-Identifier: Apache-2.0
"""A plug of powerman(1), which has the node's name."""

from __future__ import annotations

from dataclasses import dataclass

from imagebuilder.fleet.limited import run_limited


@dataclass(frozen=True)
class Powerman:
    """The node's plug at `server`, `HOST` or `HOST:PORT`; empty for the one on this host."""

    node: str
    server: str

    def on(self) -> None:
        self.ask("--on")

    def off(self) -> None:
        self.ask("--off")

    def is_on(self) -> bool | None:
        """It prints `on:`, `off:` and `unknown:` with the names of plugs behind each."""
        for line in self.ask("--query").splitlines():
            state, _, plugs = line.partition(":")
            if self.node in plugs.split():
                return {"on": True, "off": False}.get(state.strip())
        return None

    def ask(self, option: str) -> str:
        server = ["--server-host", self.server] if self.server else []
        return run_limited(
            self.node,
            ["powerman", *server, option, self.node],
            hint="powerman --list shows the plugs it knows; the node's must have its name",
        )
