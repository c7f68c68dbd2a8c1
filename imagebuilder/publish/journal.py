# SPDX-License-Identifier: Apache-2.0
"""The journal of a tree: one JSON line for every publish, promotion, rollback and removal.

An event is written to the disk before it happens, so a killed command leaves an event without an
effect, never an effect without an event.  The tree is the truth; the journal says how it came to
be.  find_moves() leaves out moves without an effect: the `previous` of the next event, or the
channel itself, shows them.
"""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from imagebuilder.decode import JsonFile
from imagebuilder.plain import read_end
from imagebuilder.publish.space import full_disk
from imagebuilder.tree import Released, Tree
from imagebuilder.untrusted import fit

PUBLISH, UNPUBLISH, KEEP, UNKEEP = "publish", "unpublish", "keep", "unkeep"
# These move a channel: `set` adds a version to its history, `rollback` goes back in it.
PROMOTE, ROLLBACK, SET = "promote", "rollback", "set"
MOVES = (PROMOTE, ROLLBACK, SET)
TAIL = 64 * 1024
ASKER = "IMAGEBUILDER_ASKER"  # set by `imagebuilder act`: the person behind a command


@dataclass(frozen=True)
class Event(Released):
    """One line; `channel` and `previous` (the channel's version before) may be empty.

    A move to stable has the id of the boot test's `report` that allowed it, or the `reason` to
    proceed without.  A publication has the sha256 of SHA256SUMS as `sums`.
    """

    event: str
    profile: str
    version: str
    channel: str = ""
    previous: str = ""
    report: str = ""
    reason: str = ""
    sums: str = ""
    time: str = ""
    by: str = ""


EVENT = JsonFile(Event, 1, "an unreadable line does no harm", unnumbered=True)


def append(tree: Tree, event: Event) -> None:
    """Record an event durably, with the time and the person.  Raises HostError."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    stamped = replace(event, time=now, by=find_person(os.environ))
    append_line(tree.journal, json.dumps(EVENT.encode(stamped)).encode() + b"\n")


def append_line(journal: Path, line: bytes) -> None:
    """Add a line to a journal durably.  Raises HostError and OSError."""
    descriptor = os.open(journal, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        # A line cut short by a full disk or a power cut must not swallow this one.
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line
        # One write: lines of two processes never mix.
        if os.write(descriptor, line) != len(line):
            raise full_disk(journal)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def find_person(env: Mapping[str, str]) -> str:
    """Who asked for this: the user of the web page, the caller of sudo, or our own user."""
    if asker := env.get(ASKER):
        return f"{fit(asker)} (web)"
    if caller := env.get("SUDO_USER"):
        return caller
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def read_tail(journal: Path, most: int = 0) -> tuple[Event, ...]:
    """The events in the last `most` bytes of a journal, or in all of it; skips damaged lines."""
    try:
        lines = read_end(journal, most).split(b"\n")
    except FileNotFoundError:
        return ()
    return tuple(e for line in lines if (e := EVENT.find_line(line)) is not None)


def find_moves(events: Sequence[Event], profile: str, channel: str, now: str) -> list[Event]:
    """The moves of a channel that took place, oldest first; `now` is where it points."""
    moves = [e for e in events if e.profile == profile and e.channel == channel]
    moves = [e for e in moves if e.event in MOVES]
    befores = [*(e.previous for e in moves[1:]), now]
    # A command that was killed before its move left the channel unchanged.
    return [m for m, after in zip(moves, befores, strict=False) if after != m.previous]


def find_history(events: tuple[Event, ...], profile: str, channel: str, now: str) -> list[str]:
    """The versions a rollback of a channel can go back to, oldest first; the last is `now`.

    A rollback goes back in the history and adds nothing to it, so a second one goes further.
    The tail of a journal gives the tail of the history.
    """
    moves = find_moves(events, profile, channel, now)
    history = [moves[0].previous] if moves and moves[0].previous else []
    for move in moves:
        if move.event == ROLLBACK:
            while history and history[-1] != move.version:
                history.pop()
            history = history or [move.version]
        elif not history or history[-1] != move.version:
            history.append(move.version)
    if now and (not history or history[-1] != now):
        history.append(now)
    return history
