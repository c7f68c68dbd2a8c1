# SPDX-License-Identifier: Apache-2.0
"""What every way of switching a node on and off can do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from imagebuilder.errors import WorkError


class PowerError(WorkError):
    """A node could not be switched, or its state could not be read."""


@dataclass(frozen=True)
class Credentials:
    """Who may use a BMC; never part of an argument, a log or a message."""

    user: str
    password: str = field(repr=False)


class PowerDriver(Protocol):
    """One node's power.

    Every method has a time limit, of SECONDS (limited.py) for each answer, and raises WorkError.
    """

    def on(self) -> None:
        """Ask for power."""

    def off(self) -> None:
        """Cut the power, without asking the system."""

    def is_on(self) -> bool | None:
        """Whether the node has power; None where this way cannot tell."""


def split_address(address: str) -> tuple[str, str]:
    """Host and port of `HOST`, `HOST:PORT`, `[ADDRESS]:PORT` or an IPv6 address; either is text.

    The port is empty if the address has none; the host has no brackets.
    """
    if address.startswith("["):
        host, _, port = address[1:].partition("]")
        return host, port.removeprefix(":")
    host, _, port = address.partition(":")
    return (address, "") if ":" in port else (host, port)
