# SPDX-License-Identifier: Apache-2.0
"""A nightly run for people: one line per profile, and below what needs attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from imagebuilder.lock.changes import PackageChange
from imagebuilder.nightly.faults import in_a_line
from imagebuilder.nightly.types import Ending, NightlyRun, ProfileRun
from imagebuilder.ui import GREEN, RED, format_count, format_duration, format_size, paint, table

HEADERS = ("profile", "ending", "from", "to", "packages", "published", "time")
SHADES = {Ending.FAILED: RED, Ending.UNCHANGED: "", Ending.FRESH: GREEN, Ending.PROMOTED: GREEN}


def render_lines(run: NightlyRun, page: Path, *, colour: bool) -> str:
    """The whole run; `page` is the file of the report."""
    lines = table([row_of(profile) for profile in run.profiles], HEADERS).splitlines()
    shown = [lines[0], *(
        paint(line, SHADES[profile.ending] if colour else "")
        for line, profile in zip(lines[1:], run.profiles, strict=True)
    )] if lines else ["no profiles"]  # fmt: skip
    return "\n".join([*shown, *remarks(run), f"report: {page}"])


def row_of(profile: ProfileRun) -> tuple[str, ...]:
    ending = f"FAILED in {profile.stage}" if profile.failed else str(profile.ending)
    same = profile.version == profile.previous
    return (
        profile.profile,
        ending,
        "" if same else profile.previous or "nothing",
        profile.version or "-",
        render_count(profile.changes),
        format_size(profile.published) if profile.published else "-",
        format_duration(sum(profile.seconds.values())),
    )


def render_count(changes: Sequence[PackageChange]) -> str:
    """`5, 2 security`."""
    security = sum(change.security for change in changes)
    return f"{len(changes)}, {security} security" if security else str(len(changes) or "-")


def remarks(run: NightlyRun) -> Iterator[str]:
    """What needs attention, and what changed on the disk and in the checkout."""
    for profile in run.profiles:
        if profile.fault:
            yield f"{profile.profile}: {in_a_line(profile.fault)}"
            yield from (f"  hint: {line}" for line in profile.fault.hint.splitlines()[:1])
    if run.profiles and all(p.ending is Ending.UNCHANGED for p in run.profiles):
        yield f"nothing changed upstream or in the recipes: {format_duration(run.seconds)}"
    if gone := [*run.pruned.releases, *run.pruned.images]:
        yield f"removed {counted(run)}, freed {format_size(run.pruned.freed)}"
        yield from (f"  {name}" for name in dict.fromkeys(gone))
    if run.committed:
        yield f"committed the locks: {run.committed}"


def counted(run: NightlyRun) -> str:
    amounts = ((len(run.pruned.releases), "release"), (len(run.pruned.images), "image"))
    return " and ".join(format_count(n, noun) for n, noun in amounts if n)
