# SPDX-License-Identifier: Apache-2.0
"""What tokens are for; known to the command line, which imports nothing slow."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    POWER = "power"
    RELEASE = "release"
    ADMIN = "admin"

    def covers(self, needed: Role) -> bool:
        return self in (needed, Role.ADMIN)
