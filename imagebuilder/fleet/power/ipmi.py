# SPDX-License-Identifier: Apache-2.0
"""IPMI 2.0 by ipmitool(1); the password goes through the environment, never an argument."""

from __future__ import annotations

from dataclasses import dataclass

from imagebuilder.fleet.limited import run_limited
from imagebuilder.fleet.power.protocol import Credentials, split_address

PORT = "623"
HINT = "is the address right, is IPMI over LAN enabled, are user and password right?"


@dataclass(frozen=True)
class Ipmi:
    """The BMC at `address`, as split_address() takes it."""

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
        return run_limited(self.node, argv, env=env, hint=f"BMC {self.address}: {HINT}")

    def command(self, *words: str) -> tuple[list[str], dict[str, str]]:
        host, port = split_address(self.address)
        argv = ["ipmitool", "-I", "lanplus", "-N", "5", "-R", "3", "-H", host, "-p", port or PORT]
        argv += ["-U", self.credentials.user, "-E", *words]
        return argv, {"IPMI_PASSWORD": self.credentials.password}
