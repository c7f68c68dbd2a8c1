# SPDX-License-Identifier: Apache-2.0
"""A bounded log for a program that runs for months and must never end because of it; its reader."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from imagebuilder.files import set_aside
from imagebuilder.plain import open_plain
from imagebuilder.untrusted import clean

MOST_BYTES = 8_000_000  # of a log; the rotated one has as much
MOST_HEAD, MOST_TAIL = 32 << 20, 4 << 20  # bytes of what one program prints
MOST_LINE = 4096  # characters of a line
APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND
QUIET = 600.0  # seconds without a loss until the next one is reported


class CutLog:
    """A file that takes what one program prints: its beginning at once, and its end at last.

    What is between MOST_HEAD and the last MOST_TAIL bytes is left out, and a line says how much.
    """

    def __init__(self, path: Path) -> None:
        self.file = os.fdopen(open_plain(path, APPEND), "ab", buffering=0)
        self.room = MOST_HEAD
        self.end = bytearray()
        self.left_out = 0

    def write(self, raw: bytes) -> None:
        """Take some more.  Raises OSError if the disk does not."""
        if raw and len(raw) <= self.room:
            self.room -= len(raw)
            self.file.write(raw)
            return
        self.room = 0
        self.end += raw
        if len(self.end) > 2 * MOST_TAIL:
            self.cut()

    def cut(self) -> None:
        """Keep the last MOST_TAIL bytes of the end."""
        gone = max(0, len(self.end) - MOST_TAIL)
        del self.end[:gone]
        self.left_out += gone

    def close(self) -> None:
        """Write the end.  Raises OSError if the disk does not take it."""
        self.cut()
        with self.file:
            if self.left_out:
                self.file.write(f"({self.left_out} bytes are left out here)\n".encode())
            self.file.write(self.end)


class Log:
    """Appends printable lines to a file, from any thread.

    A file of `most` bytes is renamed to PATH.1, replacing the previous one, and a new one is begun.
    A line that cannot be written, for instance on a full disk, is dropped and counted; `on_loss`
    gets the reason, once per series of losses.  Each line retries, and the next one that can be
    written is preceded by the number of missing lines.
    """

    def __init__(
        self, path: Path, on_loss: Callable[[str], None] | None = None, *, most: int = MOST_BYTES
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
        """Append a line, with or without a newline.  Never raises OSError."""
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
        self.file = open_plain(self.path, APPEND | os.O_NOFOLLOW)
        self.size = os.fstat(self.file).st_size

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        if self.file >= 0:
            with contextlib.suppress(OSError):
                os.close(self.file)
        self.file = -1

    def tell_loss(self, error: OSError) -> None:
        """Report the reason, unless that was done recently."""
        now = time.monotonic()
        if now - self.last_loss > QUIET and self.on_loss:
            self.on_loss(f"could not write {self.path}, so lines are lost: {error.strerror}")
        self.last_loss = now


class Tail:
    """Follows the log file of another program, which may not exist yet.

    After a rotation it first reads the rest of the old file, PATH.1.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.inode = 0
        self.offset = 0

    def read(self) -> list[str]:
        """The new complete lines since the last call."""
        lines: list[bytes] = []
        for path in (self.path.with_name(f"{self.path.name}.1"), self.path):
            try:
                stream = os.fdopen(open_plain(path, os.O_RDONLY), "rb")
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
