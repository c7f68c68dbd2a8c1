# SPDX-License-Identifier: Apache-2.0
"""Describe a nightly run: its headline, the text of a mail, lines for a terminal, and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from imagebuilder.digest import Json
from imagebuilder.errors import Fault
from imagebuilder.lock.changes import PackageChange
from imagebuilder.nightly.faults import in_a_line
from imagebuilder.nightly.types import Ending, NightlyRun, ProfileRun
from imagebuilder.notify.types import one_line
from imagebuilder.ui import (
    GREEN,
    RED,
    format_count,
    format_duration,
    format_size,
    format_time,
    paint,
    table,
)
from imagebuilder.untrusted import clean_lines

NAMED = 3  # failed profiles that a headline names; it counts the others
LISTED = 40  # packages that a message lists
HEADERS = ("profile", "ending", "from", "to", "packages", "published", "time")
SHADES = {Ending.FAILED: RED, Ending.UNCHANGED: "", Ending.FRESH: GREEN, Ending.PROMOTED: GREEN}


def headline(run: NightlyRun) -> str:
    """The run in one line: `1 of 9 profiles failed (rx7600xt at test)`."""
    failed = [done for done in run.profiles if done.failed]
    total = max(len(run.planned), len(run.profiles))
    if failed:
        named = [f"{done.profile} at {done.stage}" for done in failed[:NAMED]]
        more = [f"{len(failed) - NAMED} more"] if len(failed) > NAMED else []
        text = (
            f"{len(failed)} of {format_count(total, 'profile')} failed ({', '.join(named + more)})"
        )
        return one_line(text if run.finished else f"{text}, {len(run.profiles)} done")
    if not run.finished:
        return f"{len(run.profiles)} of {format_count(total, 'profile')} done"
    endings = Counter(done.ending for done in run.profiles)
    if list(endings) == [Ending.UNCHANGED]:
        return f"{format_count(total, 'profile')} unchanged"
    told = [f"{endings[ending]} {ending}" for ending in reversed(Ending) if endings[ending]]
    return f"{format_count(total, 'profile')}: {', '.join(told)}" if told else "no profiles"


def start_of(run: NightlyRun) -> str:
    """The start of a run: `2026-11-22 02:41 UTC`."""
    return format_time(run.started)


def render_message(run: NightlyRun, page: Path) -> str:
    """The run as plain text; `page` is the full report."""
    finished = {done.profile for done in run.profiles}
    lines = [
        f"{headline(run)}",
        f"nightly run of {start_of(run)} on {one_line(run.host)}, {format_duration(run.seconds)}",
        "",
        *(line for done in run.profiles if done.failed for line in failed_lines(done)),
        *(line for done in run.profiles if not done.failed for line in done_lines(done)),
        *(f"{name}: not done" for name in run.planned if name not in finished),
        *security_lines(run),
        *(f"warning: {one_line(text)}" for text in run.warnings),
        "",
        f"Full report: {page}",
    ]
    return "\n".join(lines) + "\n"


def render_not_started(run: NightlyRun, fault: Fault) -> str:
    """A run that could not start as plain text."""
    lines = [
        "the nightly run could not start",
        f"nightly run of {start_of(run)} on {one_line(run.host)}",
        "",
        *(f"  {line}" for line in clean_lines(str(fault)).splitlines()),
        "",
        *(f"{one_line(name)}: not done" for name in run.planned),
        "",
        "Nothing was recorded: this run has no report and is not in the history.",
        "While this continues, you get this message every 12 hours at most.",
    ]
    return "\n".join(lines) + "\n"


def failed_lines(done: ProfileRun) -> Iterator[str]:
    """A failed profile: where, what and what next."""
    yield f"{one_line(done.profile)}: FAILED at {done.stage}"
    if done.fault:
        yield from (f"  {line}" for line in clean_lines(str(done.fault)).splitlines())
    if done.log:
        yield f"  log: {one_line(done.log)}"
    yield f"  stable is still {done.stable}" if done.stable else "  nothing is stable"
    yield from (f"  warning: {one_line(text)}" for text in done.warnings)
    yield ""


def done_lines(done: ProfileRun) -> Iterator[str]:
    """A profile that did not fail."""
    what = [str(done.ending), done.version if done.ending is not Ending.UNCHANGED else ""]
    if done.changes:
        what.append(f"{format_count(len(done.changes), 'package')} changed")
    if done.published:
        what.append(f"{format_size(done.published)} published")
    yield one_line(f"{done.profile}: {', '.join(filter(None, what))}")
    yield from (f"  warning: {one_line(text)}" for text in done.warnings)


def security_lines(run: NightlyRun) -> Iterator[str]:
    """The packages from security pockets, each once."""
    every = {str(c): c for done in run.profiles for c in done.changes if c.security}
    if not every:
        return
    yield from ("", f"From security pockets ({len(every)}):")
    yield from (
        f"  {one_line(text)} ({one_line(c.suite)})" for text, c in sorted(every.items())[:LISTED]
    )
    if len(every) > LISTED:
        yield f"  and {len(every) - LISTED} more"


def run_json(run: NightlyRun, page: Path) -> dict[str, Json]:
    return {
        "id": run.id,
        "failed": run.failed,
        "finished": run.finished,
        "host": run.host,
        "started": run.started,
        "seconds": round(run.seconds, 3),
        "report": str(page),
        "profiles": [profile_json(done) for done in run.profiles],
        "warnings": list(run.warnings),
    }


def profile_json(done: ProfileRun) -> Json:
    return {
        "profile": done.profile,
        "ending": str(done.ending),
        "stage": str(done.stage),
        "where": done.fault.where if done.fault else "",
        "what": done.fault.what if done.fault else "",
        "hint": done.fault.hint if done.fault else "",
        "version": done.version,
        "candidate": done.candidate,
        "stable": done.stable,
        "changes": len(done.changes),
        "security": sum(change.security for change in done.changes),
        "published": done.published,
    }


def render_lines(run: NightlyRun, page: Path, *, colour: bool) -> str:
    """For a terminal: a line per profile, and what needs attention; `page` is the report."""
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
