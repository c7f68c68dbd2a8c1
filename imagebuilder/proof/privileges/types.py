# SPDX-License-Identifier: Apache-2.0
"""A way to become root, or to act for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Opening(StrEnum):
    """What kind of way; each is a key of `grants:` in an overlay, but for the last."""

    SUDO = "sudo"
    KEYS = "keys"
    PASSWORDS = "passwords"
    ROOT_ACCOUNTS = "root-accounts"
    GROUPS = "groups"
    SETUID = "setuid"
    CAPABILITIES = "capabilities"
    CONSOLES = "consoles"
    WRITABLE = "writable"
    SOURCES = "sources"
    NEVER = "never"


@dataclass(frozen=True)
class Privilege:
    """One way: `path` opens it, `gains` says what somebody gains, `name` is what to declare.

    A `minor` one needs a password or is for some commands.  `line` is in `path`, 0 for all of it.
    """

    opening: Opening
    name: str
    path: str
    gains: str
    minor: bool = False
    line: int = 0

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path
