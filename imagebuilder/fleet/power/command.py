# SPDX-License-Identifier: Apache-2.0
"""Programs of one's own, such as one that switches a smart plug."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from imagebuilder.fleet.limited import run_limited
from imagebuilder.fleet.power.protocol import PowerError


@dataclass(frozen=True)
class CommandPower:
    """Command lines; `{node}` in a word is the node's name.  `state` prints `on` or `off`."""

    node: str
    on_command: Sequence[str]
    off_command: Sequence[str]
    state_command: Sequence[str]

    def on(self) -> None:
        self.ask(self.on_command, "on")

    def off(self) -> None:
        self.ask(self.off_command, "off")

    def is_on(self) -> bool | None:
        if not self.state_command:
            return None
        words = self.ask(self.state_command, "state").lower().split()
        return "on" in words if "on" in words or "off" in words else None

    def ask(self, command: Sequence[str], key: str) -> str:
        """What the program prints.  Raises WorkError."""
        if not command:
            raise PowerError(
                f"cannot be switched: `power: {key}` is not set",
                where=self.node,
                hint=f"name a program: {key}: [/usr/local/bin/plug, {key}, '{{node}}']",
            )
        argv = [word.replace("{node}", self.node) for word in command]
        return run_limited(self.node, argv)
