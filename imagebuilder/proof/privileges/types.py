# SPDX-License-Identifier: Apache-2.0
"""A way to become root, or to act as root."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Opening(StrEnum):
    """The kind of way; each is a key of `grants:` in an overlay, except the last."""

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
    """One way: `path` opens it, `gains` describes it, `name` is what to declare under `grants:`.

    A `minor` one needs a password or is for some commands only.  `line` is in `path`, 0 for all.
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
