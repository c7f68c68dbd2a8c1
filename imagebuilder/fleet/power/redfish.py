# SPDX-License-Identifier: Apache-2.0
"""Redfish by sushy, OpenStack's client, which knows the vendors' deviations."""

from __future__ import annotations

from dataclasses import dataclass

from imagebuilder.errors import HostError
from imagebuilder.fleet.power.protocol import SECONDS, Credentials, PowerError, split_address

HINT = "is the address right, is its certificate trusted (`verify: false` to accept any)?"


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
        self.reset("On")

    def off(self) -> None:
        self.reset("ForceOff")

    def is_on(self) -> bool | None:
        state = self.ask("")
        return {"On": True, "PoweringOn": True, "Off": False, "PoweringOff": False}.get(state)

    def reset(self, kind: str) -> None:
        self.ask(kind)

    def ask(self, kind: str) -> str:
        """Reset the system, unless `kind` is empty; returns its power state before that."""
        try:
            import sushy  # optional, and a third of a second
        except ImportError as error:
            raise HostError(
                "power: redfish needs the Python package sushy",
                hint="pip install 'imagebuilder[redfish]' in imagebuilder's environment",
            ) from error
        try:
            root = sushy.Sushy(
                self.url,
                username=self.credentials.user,
                password=self.credentials.password,
                verify=self.verify,
                read_timeout=SECONDS,
                connect_timeout=SECONDS,
            )
            systems = root.get_system_collection().get_members()
            if not systems:
                raise PowerError(f"the BMC {self.address} has no system", where=self.node)
            state = systems[0].power_state
            if kind:
                systems[0].reset_system(sushy.ResetType(kind))
            return str(getattr(state, "value", state) or "")
        except (sushy.exceptions.SushyError, OSError, ValueError) as error:
            first = str(error).partition("\n")[0]
            raise PowerError(
                f"the BMC {self.address}: {first}", where=self.node, hint=HINT
            ) from error
