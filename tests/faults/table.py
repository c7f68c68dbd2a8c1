# SPDX-License-Identifier: Apache-2.0
"""The table of a run, with who caught each fault and how long that took; the list of all faults.

python -m tests.faults.table prints the list as docs/faults.md has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.faults.catch import CAUGHT
from tests.faults.fault import Fault, load_faults

GOOD = "(none)"


@dataclass(frozen=True)
class Row:
    """One fault that was looked for; `outcome` is CAUGHT or what went wrong."""

    fault: str
    kind: str
    stage: str
    by: str
    seconds: float
    outcome: str

    @property
    def cells(self) -> tuple[str, ...]:
        return (
            self.fault, self.kind, self.stage, self.by, f"{self.seconds:.0f}", self.outcome,
        )  # fmt: skip


HEADERS = ("fault", "kind", "stage", "by", "s", "outcome")


def render(rows: Sequence[Row]) -> list[str]:
    """The table, and what it comes to in one line."""
    table = [HEADERS, *(row.cells for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(HEADERS) - 1)]
    lines = [
        "  ".join(
            [*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]
        )
        for line in table
    ]
    planted = [row for row in rows if row.fault != GOOD]
    caught = sum(row.outcome == CAUGHT for row in planted)
    alarms = sum(row.fault == GOOD and row.outcome != "quiet" for row in rows)
    good = sum(row.fault == GOOD for row in rows)
    return [
        *lines,
        "",
        f"{caught} of {len(planted)} faults caught; {alarms} false alarms on {good} good images",
    ]


def render_list(faults: Sequence[Fault]) -> str:
    """The corpus as a table in Markdown."""
    rows = [
        f"| {fault.name} | {fault.description} | {by(fault)} | {fault.source} |" for fault in faults
    ]
    return "\n".join(["| fault | what is wrong | caught by | source |", "|---|---|---|---|", *rows])


def by(fault: Fault) -> str:
    """Which command catches it, and at which stage of a boot."""
    command = fault.caught.partition("{")[0].partition(" --")[0].strip()
    return f"`{command}`, {fault.stage}" if fault.boots else f"`{command}`"


if __name__ == "__main__":
    print(render_list(load_faults()))
