# SPDX-License-Identifier: Apache-2.0
"""Power drivers that are programs: ipmitool(1), powerman(1), and those of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from imagebuilder.fleet.limited import run_limited
from imagebuilder.fleet.power.protocol import Credentials, PowerError, split_address

IPMI_PORT = "623"
IPMI_HINT = "is the address right, is IPMI over LAN enabled, are user and password right?"


@dataclass(frozen=True)
class CommandPower:
    """Command lines, such as for a smart plug; `{node}` in a word is the node's name.

    `state` prints `on` or `off`.
    """

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


@dataclass(frozen=True)
class Ipmi:
    """The BMC at `address`, as split_address() takes it.

    Its password goes through the environment, never an argument.
    """

    node: str
    address: str
    credentials: Credentials

    def on(self) -> None:
        self.ask("power", "on")

    def off(self) -> None:
        self.ask("power", "off")

    def is_on(self) -> bool | None:
        said = self.ask("power", "status").lower()
        return "is on" in said if "is on" in said or "is off" in said else None

    def serial(self) -> tuple[list[str], dict[str, str]]:
        """What connects a terminal to the serial console over LAN, and its environment."""
        return self.command("sol", "activate")

    def ask(self, *words: str) -> str:
        argv, env = self.command(*words)
        return run_limited(self.node, argv, env=env, hint=f"BMC {self.address}: {IPMI_HINT}")

    def command(self, *words: str) -> tuple[list[str], dict[str, str]]:
        host, port = split_address(self.address)
        argv = ["ipmitool", "-I", "lanplus", "-N", "5", "-R", "3", "-H", host]
        argv += ["-p", port or IPMI_PORT, "-U", self.credentials.user, "-E", *words]
        return argv, {"IPMI_PASSWORD": self.credentials.password}


@dataclass(frozen=True)
class Powerman:
    """The plug with the node's name at `server`, `HOST` or `HOST:PORT`; empty for this host."""

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
