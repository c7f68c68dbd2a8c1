# SPDX-License-Identifier: Apache-2.0
"""IPMI 2.0 by ipmitool(1); the password goes through the environment, never an argument."""

from __future__ import annotations

from dataclasses import dataclass

from imagebuilder.fleet.power.limited import run_limited
from imagebuilder.fleet.power.protocol import Credentials

PORT = "623"
HINT = "is the address right, is IPMI over LAN enabled, are user and password right?"


@dataclass(frozen=True)
class Ipmi:
    """The BMC at `address`, or `ADDRESS:PORT`."""

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

    def ask(self, *words: str) -> str:
        host, _, port = self.address.partition(":")
        argv = ["ipmitool", "-I", "lanplus", "-N", "5", "-R", "3", "-H", host, "-p", port or PORT]
        argv += ["-U", self.credentials.user, "-E", *words]
        env = {"IPMI_PASSWORD": self.credentials.password}
        return run_limited(self.node, argv, env=env, hint=f"BMC {self.address}: {HINT}")
