# SPDX-License-Identifier: Apache-2.0
"""What the doctor says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad it is: a warning may bite later, with a problem some build fails."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class HostFinding:
    """One thing that was looked at; `mend` is a command to paste, or words where none helps."""

    subject: str
    level: Severity
    what: str
    mend: str = ""

    @property
    def ok(self) -> bool:
        """Whether there is nothing to mend."""
        return self.level is Severity.OK
