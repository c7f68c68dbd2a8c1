# SPDX-License-Identifier: Apache-2.0
"""Findings of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from imagebuilder.digest import Json


class Severity(StrEnum):
    """The severity: a warning may cause an error later, a problem makes some builds fail."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class HostFinding:
    """The result of one check; `fix` is a command to paste, or a sentence."""

    subject: str
    level: Severity
    what: str
    fix: str = ""

    def as_json(self) -> dict[str, Json]:
        return {
            "subject": self.subject, "level": str(self.level), "what": self.what, "mend": self.fix
        }  # fmt: skip

    @property
    def ok(self) -> bool:
        """Whether nothing must be fixed."""
        return self.level is Severity.OK


def fine(subject: str, what: str) -> HostFinding:
    return HostFinding(subject, Severity.OK, what)


def warning(subject: str, what: str, fix: str) -> HostFinding:
    return HostFinding(subject, Severity.WARNING, what, fix)


def problem(subject: str, what: str, fix: str = "") -> HostFinding:
    return HostFinding(subject, Severity.PROBLEM, what, fix)
