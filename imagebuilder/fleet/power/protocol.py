# SPDX-License-Identifier: Apache-2.0
"""What every way of switching a node on and off can do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from imagebuilder.errors import ImagebuilderError

SECONDS = 60.0  # a BMC's first answer may take 40 s


class PowerError(ImagebuilderError):
    """A node could not be switched, or its state could not be read."""


@dataclass(frozen=True)
class Credentials:
    """Who may use a BMC; never part of an argument, a log or a message."""

    user: str
    password: str = field(repr=False)


class PowerDriver(Protocol):
    """One node's power.  Every method has a time limit of SECONDS and raises PowerError."""

    def on(self) -> None:
        """Ask for power."""

    def off(self) -> None:
        """Cut the power, without asking the system."""

    def is_on(self) -> bool | None:
        """Whether the node has power; None where this way cannot tell."""
