# SPDX-License-Identifier: Apache-2.0
"""The journal of actions: who did what on the web page, when, from where, and how it ended.

A line is on the disk before a command starts, and another one after its end.  What the command says
goes into a file of its own, which is locked (flock(2)) while it runs: an action without an end
whose file nobody locks was interrupted.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from imagebuilder.decode import JsonFile
from imagebuilder.digest import Json
from imagebuilder.errors import HostError
from imagebuilder.files import is_disk_full, make_folder
from imagebuilder.locks import is_locked, take_lock
from imagebuilder.plain import read_end
from imagebuilder.publish.journal import append_line
from imagebuilder.publish.space import full_disk
from imagebuilder.tree import Tree

ID = re.compile(r"\d{8}T\d{6}-[0-9a-f]{8}", re.ASCII)
SHOWN = 200  # actions
KEPT_LOGS = 500
TAIL = 512 * 1024  # bytes of the journal, and of what a command said, that are read
MOST_LOG = 4 * 1024 * 1024


class ActionState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    REFUSED = "refused"


class ActionEvent(StrEnum):
    BEGUN = "begun"
    ENDED = "ended"
    REFUSED = "refused"


@dataclass(frozen=True)
class ActionLine:
    """One line of the journal; `status` is what the command ended with, `words` its last line."""

    event: ActionEvent
    id: str
    time: str
    by: str = ""
    role: str = ""
    address: str = ""
    command: str = ""
    verb: str = ""
    profile: str = ""
    status: int = 0
    words: str = ""


@dataclass(frozen=True)
class ActionRecord:
    """An action with its end, if it has one."""

    begun: ActionLine
    ended: ActionLine | None
    state: ActionState

    def as_json(self) -> dict[str, Json]:
        """For programs: a stable contract."""
        begun, ended = self.begun, self.ended
        return {
            "id": begun.id,
            "verb": begun.verb,
            "command": begun.command,
            "by": begun.by,
            "role": begun.role,
            "from": begun.address,
            "state": self.state,
            "begun": begun.time,
            "ended": ended.time if ended else None,
            "status": ended.status if ended else None,
            "words": ended.words if ended else begun.words,
        }


LINE = JsonFile(ActionLine, 1, "nothing needs a line that cannot be read")


class ActionLog:
    """Where the lines of a command go: what does not fit any more, or on the disk, is left out.

    How much that was is told where it is missing, as soon as there is room for that.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor, self.size, self.lost = descriptor, 0, 0

    def write(self, raw: bytes, /) -> None:
        if self.size + len(raw) > MOST_LOG:
            self.size = MOST_LOG  # of what comes now, nothing fits
            self.lost += len(raw)
            return
        self.tell()
        written = 0 if self.lost else self.put(raw)
        self.size += written
        self.lost += len(raw) - written

    def tell(self) -> None:
        """Say how much was left out, if anything was."""
        words = f"\n[{self.lost} bytes left out: the disk or this log was full]\n".encode()
        if self.lost and self.put(words) == len(words):
            self.lost = 0

    def put(self, raw: bytes) -> int:
        """How many bytes were written."""
        try:
            return os.write(self.descriptor, raw)
        except OSError:
            return 0


def note(tree: Tree, line: ActionLine) -> None:
    """Write a line down, durably.  Raises HostError when that cannot be."""
    text = json.dumps(LINE.encode(line)).encode() + b"\n"
    try:
        append_line(tree.actions, text)
    except OSError as error:
        if is_disk_full(error):
            raise full_disk(tree.actions) from error
        what = f"cannot be written: {error.strerror}"
        raise HostError(what, where=os.fspath(tree.actions)) from error


@contextmanager
def action_log(tree: Tree, action: str) -> Iterator[ActionLog]:
    """The file for what the command of an action says, locked.  Raises HostError."""
    path = tree.action_log(action)
    try:
        make_folder(path.parent)
        drop_old(path.parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        what = f"cannot be written: {error.strerror}"
        raise HostError(what, where=os.fspath(path)) from error
    try:
        take_lock(descriptor, wait=True)
        os.fchmod(descriptor, 0o644)  # now nobody else can lock it before us
        log = ActionLog(descriptor)
        yield log
        log.tell()
    finally:
        os.close(descriptor)


def drop_old(folder: Path) -> None:
    """Make room for one more; names begin with the time."""
    for path in sorted(folder.glob("*.log"), key=os.fspath)[: 1 - KEPT_LOGS]:
        if not is_locked(path):
            path.unlink(missing_ok=True)


def read_actions(tree: Tree) -> tuple[ActionRecord, ...]:
    """The last actions, the newest first; what is damaged is left out."""
    raw = read_found(tree.actions)
    begun, ended = parse_lines(raw)
    newest = [*begun.values()][: -SHOWN - 1 : -1]
    found = [make_record(tree, line, ended.get(line.id)) for line in newest]
    # One whose lock is free may have ended after we read; its end was written before that.
    doubtful = any(record.state is ActionState.INTERRUPTED for record in found)
    if not doubtful or (again := read_found(tree.actions)) == raw:
        return tuple(found)
    _, ended = parse_lines(again)
    return tuple(
        make_record(tree, record.begun, ended.get(record.begun.id))
        if record.state is ActionState.INTERRUPTED
        else record
        for record in found
    )


def parse_lines(journal: bytes) -> tuple[dict[str, ActionLine], dict[str, ActionLine]]:
    """How actions began, or were refused, and how they ended, by their ids."""
    begun: dict[str, ActionLine] = {}
    ended: dict[str, ActionLine] = {}
    for raw in journal.split(b"\n"):
        if (line := parse_line(raw)) is not None:
            (ended if line.event is ActionEvent.ENDED else begun)[line.id] = line
    return begun, ended


def make_record(tree: Tree, begun: ActionLine, ended: ActionLine | None) -> ActionRecord:
    if begun.event is ActionEvent.REFUSED:
        state = ActionState.REFUSED
    elif ended:
        state = ActionState.FAILED if ended.status else ActionState.DONE
    else:
        running = is_locked(tree.action_log(begun.id))
        state = ActionState.RUNNING if running else ActionState.INTERRUPTED
    return ActionRecord(begun, ended, state)


def parse_line(raw: bytes) -> ActionLine | None:
    line = LINE.find_line(raw)
    return line if line and ID.fullmatch(line.id) else None  # an id becomes a name of a file


def read_said(tree: Tree, action: str) -> str:
    """What the command of an action said: the end of it, without the command itself."""
    said = read_found(tree.action_log(action)).decode(errors="replace")
    return said.partition("\n")[2] if said.startswith("$ ") else said


def read_found(path: Path) -> bytes:
    """The whole lines in the last TAIL bytes of a file; nothing if it cannot be read."""
    try:
        return read_end(path, TAIL)
    except OSError:
        return b""


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
