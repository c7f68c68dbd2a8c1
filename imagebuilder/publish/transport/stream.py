# SPDX-License-Identifier: Apache-2.0
"""Stream objects: a zstd tar of a bare repository's files, packed here and unpacked there.

The checksum of an object covers its owner, mode and extended attributes, so they are sent too.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import stat
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from imagebuilder.errors import HostError, ImagebuilderError, InputError, WorkError
from imagebuilder.process import Completed, Word, run
from imagebuilder.publish.space import full_disk
from imagebuilder.store.plain import FILE
from imagebuilder.ui import Bar, Ui, format_count, format_size

# --sparse: pruned libraries are mostly holes.
TAR_OPTIONS = ("--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner", "--sparse")
# tar would pad what its own compressor writes into a pipe, and zstd does not take the padding.
COMPRESS = 'exec zstd -3 -T0 --quiet > "$0"'
DECOMPRESS = "--use-compress-program=zstd --quiet"
ZSTD = b"\x28\xb5\x2f\xfd"  # begins what pack() writes (RFC 8878)
CHUNK = 1 << 20
# Bytes of an object that is no file.  OSTree reads 128 MiB, of which each takes seven in memory; a
# folder of 300,000 files has 12.
MOST_META = 16 << 20
TAR_MEMORY = 1 << 30  # bytes of address space, and as much for zstd
SLOW_S = 300.0  # of waiting for LEAST bytes: nothing is removed from the sender's side meanwhile
LEAST = 1 << 20
# What a sender leaves to others who use the disk: bytes, and inodes, which empty files take too.
LEAST_FREE, LEAST_INODES = 200_000_000, 10_000
PUBLISH_S = 7200.0  # for what the other side does when it has everything
OBJECT = re.compile(r"[0-9a-f]{2}/[0-9a-f]{62}\.(file|dirtree|dirmeta|commit)")


class StuckError(WorkError):
    """The other side is too slow, does not end, or ends before it has everything."""


class OtherSide:
    """How fast the other side takes or sends bytes.

    `waiting` is since when one thread waits for it, None while it does not; `waited` are the
    seconds before that, in which `moved` bytes came or went.
    """

    def __init__(self) -> None:
        self.waiting: float | None = None
        self.waited = 0.0
        self.moved = 0

    @contextmanager
    def wait(self) -> Iterator[None]:
        self.waiting = began = time.monotonic()
        try:
            yield
        finally:
            self.waiting = None
            self.waited += time.monotonic() - began

    def add(self, count: int) -> None:
        """Each LEAST bytes have their own SLOW_S."""
        self.moved += count
        if self.moved >= LEAST:
            self.waited, self.moved = 0.0, 0

    @property
    def is_slow(self) -> bool:
        since = self.waiting
        return since is not None and self.waited + time.monotonic() - since > SLOW_S


class Piped:
    """A program in a thread, which closes our ends of its pipes when it ends.

    `error` is what it failed with.
    """

    def __init__(self, argv: Sequence[Word], stdin: bytes | IO[bytes], out: int) -> None:
        self.argv, self.stdin, self.out = argv, stdin, out
        self.error: ImagebuilderError | None = None

    def run(self) -> None:
        """Run the program and close its pipes."""
        try:
            run(self.argv, stdin=self.stdin)
        except ImagebuilderError as error:
            self.error = error
        finally:
            os.close(self.out)
            if not isinstance(self.stdin, bytes):
                self.stdin.close()


def pipe_path(end: int) -> str:
    """A path where a program we start can open an end of our pipe (proc(5))."""
    return f"/proc/{os.getpid()}/fd/{end}"


def pack(folder: Path, names: Sequence[str], out: int) -> tuple[Piped, Piped]:
    """The programs that write the stream of these objects into the pipe `out`: tar, then zstd."""
    listed = "".join(f"{name}\n" for name in names).encode()
    packed, packing = os.pipe()
    tar = ["tar", "--create", *TAR_OPTIONS, "--no-recursion", f"--directory={folder}",
           f"--file={pipe_path(packing)}", "--verbatim-files-from", "--files-from=-"]  # fmt: skip
    return (
        Piped(tar, listed, packing),
        Piped(["sh", "-c", COMPRESS, pipe_path(out)], os.fdopen(packed, "rb", 0), out),
    )


class PipeCounter:
    """Copies bytes from one pipe to another in a thread and counts them.

    `broken` means that the reader has closed the other end; `ended` is when all was copied.
    """

    def __init__(self, source: int, sink: int, bar: Bar) -> None:
        self.source, self.sink, self.bar = source, sink, bar
        self.count = 0
        self.broken = False
        self.ended: float | None = None
        self.other = OtherSide()

    def run(self) -> None:
        """Copy until either end closes, then close both: the packer gets SIGPIPE."""
        with os.fdopen(self.source, "rb", 0) as source, os.fdopen(self.sink, "wb", 0) as sink:
            while chunk := source.read(CHUNK):
                view = memoryview(chunk)
                try:
                    while view:
                        with self.other.wait():
                            count = sink.write(view)
                        self.other.add(count)
                        view = view[count:]
                except BrokenPipeError:
                    self.broken = True
                    return
                self.count += len(chunk)
                self.bar.advance(len(chunk))
        self.ended = time.monotonic()

    def check(self) -> None:
        """Raise StuckError for a reader that is too slow, or does not end."""
        if self.other.is_slow:
            raise StuckError(f"took less than {LEAST >> 10} KiB in {SLOW_S:g} s")
        if self.ended is not None and time.monotonic() - self.ended > PUBLISH_S:
            raise StuckError(f"did not end within {PUBLISH_S:g} s after it had everything")


def stream_objects(
    folder: Path, names: Sequence[str], argv: Sequence[Word], env: Mapping[str, str], ui: Ui
) -> tuple[int, Completed]:
    """Pack `names` of the objects in `folder` into the stdin of `argv`.

    Returns the number of bytes sent, and how `argv` ended.  Raises what packing failed with, and
    StuckError for an `argv` that is too slow, or says that all is well before it has everything.
    """
    packed, packing = os.pipe()
    received, sending = os.pipe()
    with ui.bar(0, f"send {format_count(len(names), 'object')}") as bar:
        packers, counter = pack(folder, names, packing), PipeCounter(packed, sending, bar)
        threads = [threading.Thread(target=part.run) for part in (*packers, counter)]
        with ExitStack() as stack:
            for thread in threads:
                stack.callback(thread.join)
            # Closed first, which ends whoever still writes.
            stdin = stack.enter_context(os.fdopen(received, "rb", 0))
            for thread in threads:
                thread.start()
            done = run(argv, env=env, stdin=stdin, ask=counter.check, check=False)
    errors = [part.error for part in packers if part.error]
    if errors and not counter.broken:
        raise errors[0]
    if counter.broken and done.status == 0:
        raise StuckError(f"ended without an error when it had taken {format_size(counter.count)}")
    return counter.count, done


def begin(stream: IO[bytes]) -> bytes:
    """The first bytes of a sender's stream.  Raises InputError if nobody sends one.

    Who types the command of the receiving end learns it before anything is made.
    """
    first = b""
    while not os.isatty(stream.fileno()) and len(first) < len(ZSTD):
        ready, _, _ = select.select([stream], [], [], SLOW_S)
        more = os.read(stream.fileno(), len(ZSTD) - len(first)) if ready else b""
        if not more:
            break
        first += more
    if first != ZSTD:
        raise InputError(
            "has other things than the objects of an image" if first else "nobody sends an image",
            where="standard input",
            hint="run imagebuilder publish --to on the machine with the image; it calls this",
        )
    return first


def unpack_objects(stream: IO[bytes], folder: Path, first: bytes = b"") -> None:
    """Unpack a stream, of which `first` was read, into the objects/ of a scratch repository.

    Raises WorkError if it was cut off, stopped or holds anything else, FullError before the disk
    is full.  The names of a tar may have any length, so tar has a limit of memory.
    """
    unpacking, arriving = os.pipe()
    incoming = Incoming(stream, arriving, folder, first)
    # It may wait for a sender that is silent for ever, so nobody waits for it.
    threading.Thread(target=incoming.run, daemon=True).start()
    tar = ["tar", "--extract", *TAR_OPTIONS, DECOMPRESS, "--file=-",
           "--same-owner", "--same-permissions", f"--directory={folder}"]  # fmt: skip
    try:
        with os.fdopen(unpacking, "rb", 0) as stdin:
            run(["prlimit", f"--as={TAR_MEMORY}", "--", *tar], stdin=stdin, ask=incoming.check)
    except HostError as error:  # the tools are there: it is the disk
        raise full_disk(folder) from error
    except WorkError as error:
        raise WorkError(
            f"the objects arrived incomplete; nothing was published\n{error.faults[0].what}",
            hint="the connection broke or is too slow, or the sender was stopped; publish again",
        ) from error
    check_objects(folder)


class Incoming:
    """Copies what arrives into a pipe, in a thread, until either end closes.

    What the pipe's reader makes of it is in `folder`.
    """

    def __init__(self, stream: IO[bytes], sink: int, folder: Path, first: bytes = b"") -> None:
        self.stream, self.sink, self.folder, self.first = stream, sink, folder, first
        self.other = OtherSide()

    def run(self) -> None:
        with contextlib.suppress(OSError), os.fdopen(self.sink, "wb", 0) as sink:
            sink.write(self.first)
            while chunk := self.read():
                view = memoryview(chunk)
                while view:
                    view = view[sink.write(view) :]

    def read(self) -> bytes:
        with self.other.wait():
            chunk = os.read(self.stream.fileno(), CHUNK)
        self.other.add(len(chunk))
        return chunk

    def check(self) -> None:
        """Raise WorkError for a sender that is too slow; tar may take longer for what has come.

        Raises FullError for a disk that is almost full.
        """
        if self.other.is_slow:
            what = f"the sender has sent less than {LEAST >> 10} KiB in {SLOW_S:g} s"
            raise WorkError(what)
        disk = os.statvfs(self.folder)
        few = disk.f_files and disk.f_favail < LEAST_INODES  # btrfs counts none
        if few or disk.f_bavail * disk.f_frsize < LEAST_FREE:
            raise full_disk(self.folder)


def check_objects(folder: Path) -> None:
    """Raise WorkError for what is no object of a repository, or is larger than this disk.

    Holes take no space, but are read too.
    """
    left = shutil.disk_usage(folder).total
    for first in sorted(folder.iterdir()):
        is_folder = stat.S_ISDIR(first.lstat().st_mode)
        for path in sorted(first.iterdir()) if is_folder else [first]:
            name, found = os.fspath(path.relative_to(folder)), path.lstat()
            if not is_object(name, found):
                raise WorkError(f"{name!r} is not an object of a repository; nothing was published")
            left -= found.st_size
            if left < 0:
                raise WorkError(f"{name!r} is larger than the disk; nothing was published")
            normalise(path)


def is_object(name: str, found: os.stat_result) -> bool:
    """Whether this can be an object.  With a second name, its mode could change later."""
    matched = OBJECT.fullmatch(name)
    if not matched or found.st_nlink != 1 or (matched[1] != FILE and found.st_size > MOST_META):
        return False
    return stat.S_ISREG(found.st_mode) or (matched[1] == FILE and stat.S_ISLNK(found.st_mode))


def normalise(path: Path) -> None:
    """Set what the checksum of an object does not cover, as OSTree has it."""
    if not path.name.endswith(f".{FILE}"):
        os.chown(path, 0, 0)
        path.chmod(0o644)
        for name in os.listxattr(path):
            if not name.startswith("security."):  # those are the kernel's
                os.removexattr(path, name)
    os.utime(path, (0, 0), follow_symlinks=False)
