# SPDX-License-Identifier: Apache-2.0
"""A night in words: its headline, the text of a mail, and what programs are given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from imagebuilder.digest import Json
from imagebuilder.lock.changes import PackageChange
from imagebuilder.nightly.types import Ending, NightlyRun, ProfileRun
from imagebuilder.notify.types import one_line
from imagebuilder.ui import format_count, format_duration, format_size, format_time
from imagebuilder.untrusted import clean_lines

NAMED = 3  # profiles that failed are named in a headline, and how many more there are
LISTED = 40  # packages are listed in a message


def headline(night: NightlyRun) -> str:
    """The night in a line: `1 of 9 profiles failed (rx7600xt at test)`."""
    failed = [done for done in night.profiles if done.failed]
    total = max(len(night.planned), len(night.profiles))
    if failed:
        named = [f"{done.profile} at {done.stage}" for done in failed[:NAMED]]
        more = [f"{len(failed) - NAMED} more"] if len(failed) > NAMED else []
        text = (
            f"{len(failed)} of {format_count(total, 'profile')} failed ({', '.join(named + more)})"
        )
        return one_line(text if night.finished else f"{text}, {len(night.profiles)} done")
    if not night.finished:
        return f"{len(night.profiles)} of {format_count(total, 'profile')} done"
    endings = Counter(done.ending for done in night.profiles)
    if list(endings) == [Ending.UNCHANGED]:
        return f"{format_count(total, 'profile')} unchanged"
    told = [f"{endings[ending]} {ending}" for ending in reversed(Ending) if endings[ending]]
    return f"{format_count(total, 'profile')}: {', '.join(told)}" if told else "no profiles"


def night_of(night: NightlyRun) -> str:
    """When it began: `2026-11-22 02:41 UTC`."""
    return format_time(night.started)


def security_changes(night: NightlyRun) -> dict[str, tuple[PackageChange, ...]]:
    found = {
        done.profile: tuple(change for change in done.changes if change.security)
        for done in night.profiles
    }
    return {profile: changes for profile, changes in found.items() if changes}


def render_message(night: NightlyRun, page: Path) -> str:
    """The night as plain text; `page` is the whole report."""
    lines = [
        f"{headline(night)}",
        f"night of {night_of(night)} on {one_line(night.host)}, {format_duration(night.seconds)}",
        "",
        *(line for done in night.profiles if done.failed for line in failed_lines(done)),
        *(line for done in night.profiles if not done.failed for line in done_lines(done)),
        *(f"{name}: not done" for name in not_done(night)),
        *security_lines(night),
        *(f"warning: {one_line(text)}" for text in night.warnings),
        "",
        f"The whole report: {page}",
    ]
    return "\n".join(lines) + "\n"


def not_done(night: NightlyRun) -> list[str]:
    """The profiles whose turn did not come."""
    done = {one.profile for one in night.profiles}
    return [name for name in night.planned if name not in done]


def failed_lines(done: ProfileRun) -> Iterator[str]:
    """A profile that failed: where, what and what next."""
    yield f"{one_line(done.profile)}: FAILED at {done.stage}"
    if done.fault:
        yield from (f"  {line}" for line in clean_lines(str(done.fault)).splitlines())
    if done.log:
        yield f"  log: {one_line(done.log)}"
    yield f"  stable is {done.stable or 'nothing'}, as before"
    yield from (f"  warning: {one_line(text)}" for text in done.warnings)
    yield ""


def done_lines(done: ProfileRun) -> Iterator[str]:
    """A profile that did not."""
    what = [str(done.ending), done.version if done.ending is not Ending.UNCHANGED else ""]
    if done.changes:
        what.append(f"{format_count(len(done.changes), 'package')} changed")
    if done.published:
        what.append(f"{format_size(done.published)} published")
    yield one_line(f"{done.profile}: {', '.join(filter(None, what))}")
    yield from (f"  warning: {one_line(text)}" for text in done.warnings)


def security_lines(night: NightlyRun) -> Iterator[str]:
    """What came from security pockets, each package once."""
    every = {str(c): c for changes in security_changes(night).values() for c in changes}
    if not every:
        return
    yield from ("", f"From security pockets ({len(every)}):")
    yield from (
        f"  {one_line(text)} ({one_line(c.suite)})" for text, c in sorted(every.items())[:LISTED]
    )
    if len(every) > LISTED:
        yield f"  and {len(every) - LISTED} more"


def night_json(night: NightlyRun, page: Path) -> dict[str, Json]:
    """For programs: a stable contract."""
    return {
        "id": night.id,
        "failed": night.failed,
        "finished": night.finished,
        "host": night.host,
        "started": night.started,
        "seconds": round(night.seconds, 3),
        "report": str(page),
        "profiles": [profile_json(done) for done in night.profiles],
        "warnings": list(night.warnings),
    }


def profile_json(done: ProfileRun) -> Json:
    """A profile; its changes as numbers."""
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
