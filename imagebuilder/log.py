# SPDX-License-Identifier: Apache-2.0
"""The log of a program that runs for months: bounded, never a reason for it to end; its reader."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from imagebuilder.files import set_aside
from imagebuilder.untrusted import clean

MOST_BYTES = 8_000_000  # of a log; as much again is in the one before it
MOST_LINE = 4096  # characters of a line
QUIET = 600.0  # seconds without a loss until the next one is said again


class Log:
    """Appends lines to a file, fit to print, from any thread.

    When the file has grown to `most` bytes it becomes PATH.1, in place of the one before, and a new
    one is begun.  A line that cannot be written, such as on a full disk, is dropped and counted;
    `on_loss` is told why, once until it has gone well for a while.  Writing is tried again with
    each line, and the next one that can be written says how many are missing.
    """

    def __init__(
        self,
        path: Path,
        on_loss: Callable[[str], None] | None = None,
        *,
        most: int = MOST_BYTES,
    ) -> None:
        self.path = path
        self.on_loss = on_loss
        self.most = most
        self.file = -1
        self.size = 0
        self.lost = 0
        self.last_loss = float("-inf")
        self.lock = threading.Lock()

    def __str__(self) -> str:
        return str(self.path)

    def write(self, raw: bytes) -> None:
        """Append a line, with or without its end.  Never raises an OSError."""
        line = f"{clean(raw.decode(errors='replace'), MOST_LINE)}\n".encode()
        with self.lock:
            if self.lost:
                line = f"({self.lost} lines could not be written)\n".encode() + line
            try:
                self.append(line)
            except OSError as error:
                self.close()
                self.lost += 1
                self.tell_loss(error)
            else:
                self.lost = 0

    def append(self, data: bytes) -> None:
        """Write all of `data` or nothing.  Raises OSError."""
        if self.file < 0:
            self.open()
        if self.size and self.size + len(data) > self.most:
            set_aside(self.path)
            self.close()
            self.open()
        written = os.write(self.file, data)
        if written < len(data):
            os.ftruncate(self.file, self.size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(self.path))
        self.size += written

    def open(self) -> None:
        """Open the file to append.  Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self.file = os.open(self.path, flags, 0o644)
        self.size = os.fstat(self.file).st_size

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        if self.file >= 0:
            with contextlib.suppress(OSError):
                os.close(self.file)
        self.file = -1

    def tell_loss(self, error: OSError) -> None:
        """Say why, if it was not said lately."""
        now = time.monotonic()
        if now - self.last_loss > QUIET and self.on_loss:
            self.on_loss(f"{self.path} cannot be written and lines are lost: {error.strerror}")
        self.last_loss = now


class Tail:
    """The lines that come into a log file of somebody else, which may not exist yet.

    When another file has come in its place, what is left of the one before is read first: it is
    PATH.1 then.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.inode = 0
        self.offset = 0

    def read(self) -> list[str]:
        """The whole lines that came since the last time."""
        lines: list[bytes] = []
        for path in (self.path.with_name(f"{self.path.name}.1"), self.path):
            try:
                stream = path.open("rb")
            except FileNotFoundError:
                continue
            with stream:
                inode = os.fstat(stream.fileno()).st_ino
                if inode != self.inode:
                    if path != self.path:
                        continue
                    self.inode, self.offset = inode, 0
                stream.seek(self.offset)
                whole, newline, _ = stream.read().rpartition(b"\n")
            self.offset += len(whole) + len(newline)
            lines += whole.split(b"\n") if newline else []
        return [clean(line.decode(errors="replace"), MOST_LINE) for line in lines]
