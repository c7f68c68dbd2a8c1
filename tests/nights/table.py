# SPDX-License-Identifier: Apache-2.0
"""What a run of nights came to, as the table of docs/nightly.md."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from tests.nights.driver import Row
from tests.nights.plans import Kind
from tests.nights.world import PROFILES

BEGIN = "<!-- nights: written by `python -m tests.nights --docs docs/nightly.md` -->\n"
END = "<!-- end of nights -->\n"


def fresh_nights(rows: Sequence[Row]) -> int:
    """The nights after which stable of every profile had the newest of all its packages."""
    return sum(len(row.fresh) == len(PROFILES) for row in rows)


def render_table(rows: Sequence[Row], seed: int, seconds: float, host: str, now: datetime) -> str:
    """The table and the sentences around it."""
    lines = [
        f"Run on {now:%Y-%m-%d} ({host}): seed {seed}, {len(rows)} runs of {len(PROFILES)} "
        f"profiles in {seconds:.0f} s.",
        "",
        "| fault | runs | fresh | stable valid |",
        "|---|---|---|---|",
    ]
    for kind in Kind:
        met = [row for row in rows if kind in row.hit]
        valid = sum(not row.wrong for row in met)
        lines.append(f"| {kind} | {len(met)} | {fresh_nights(met)} | {valid} |")
    none = [row for row in rows if not row.hit]
    quiet = [row for row in rows if set(row.ways.values()) == {"unchanged"}]
    lines += [
        f"| none | {len(none)} | {fresh_nights(none)} | {sum(not row.wrong for row in none)} |",
        "",
        f"Of {len(rows)} runs, {fresh_nights(rows)} were fresh, and after "
        f"{sum(not row.wrong for row in rows)} stable was valid. {len(quiet)} runs found nothing "
        f"to do and published {sum(row.published for row in quiet)} bytes. "
        "No manual step was needed.",
    ]
    return "\n".join(lines) + "\n"


def put_table(page: Path, table: str) -> None:
    """Put the table between the marks of a page.  Raises ValueError where it has none."""
    text = page.read_text()
    if BEGIN not in text or END not in text:
        raise ValueError(f"{page} has no place for the table: {BEGIN.strip()}")
    head, _, rest = text.partition(BEGIN)
    page.write_text(f"{head}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}")
