# SPDX-License-Identifier: Apache-2.0
"""Files and folders that get their names whole, and keep them through a power cut.

A rename is atomic, not durable: a file system may write the new name before the bytes it names, and
either one long after the call.  So what is renamed is synced first, and the folder that has the
name afterwards.  Nothing else in imagebuilder/ renames or links into a place that lasts.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import BufferedReader
from itertools import islice
from pathlib import Path

from imagebuilder.errors import FullError
from imagebuilder.locks import take_lock
from imagebuilder.plain import open_plain, read_most
from imagebuilder.trusted import make_new

AT_FDCWD = -100
RENAME_EXCHANGE = 2
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# So many files or folders are synced one by one; for more, one syncfs(2) is cheaper.
FEW = 8
TOGETHER = 64  # files are open at a time
MOST_READ = 64 << 20  # bytes of a file that are held in memory; what we read has far less


def is_disk_full(error: OSError) -> bool:
    """Whether nothing more can be written, for lack of space or by a quota."""
    return error.errno in FULL


@contextmanager
def filling(folder: Path, hint: str, what: str = "no space left") -> Iterator[None]:
    """A block that writes below `folder`: a full disk becomes a FullError that names the folder.

    The system names no file, or the one that was read; a program may fill any disk.
    """
    try:
        yield
    except FullError as error:
        fault = error.faults[0]
        if fault.where:
            raise
        first, _, _ = fault.what.partition("\n")
        raise FullError(f"{what}: {first}", where=os.fspath(folder), hint=hint) from error
    except OSError as error:
        if not is_disk_full(error):
            raise
        raise FullError(what, where=os.fspath(folder), hint=hint) from error


@contextmanager
def plain_file(path: Path, *, follow: bool = True) -> Iterator[BufferedReader]:
    """A file that is open for reading; `follow` is whether a symlink at `path` is followed.

    Raises OSError, also for what is no file (open_plain()).
    """
    descriptor = open_plain(path, os.O_RDONLY if follow else os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as stream:
        yield stream


def read_plain(path: Path, most: int = MOST_READ) -> bytes:
    """The bytes of a file.  Raises OSError as plain_file(), and for more than `most` bytes."""
    with plain_file(path) as stream:
        content = read_most(stream.fileno(), most)
    if len(content) > most:
        raise OSError(errno.EOVERFLOW, f"It has more than {most >> 20} MiB", os.fspath(path))
    return content


def read_text(path: Path) -> str:
    """The text of a file; what is not UTF-8 is replaced.  Raises OSError as plain_file()."""
    return read_plain(path).decode(errors="replace")


def sync(path: Path) -> None:
    """Wait until the bytes of a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_filesystem(path: Path) -> None:
    """Wait until all that was written to the file system of `path` is on the disk (syncfs(2))."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        call("syncfs", path, descriptor)
    finally:
        os.close(descriptor)


def sync_all(paths: Iterable[Path]) -> None:
    """Wait until these files and folders, all on one file system, are on the disk."""
    different = list(dict.fromkeys(paths))
    if len(different) > FEW:
        sync_filesystem(different[0])
        return
    for path in different:
        sync(path)


def call(name: str, path: Path, *words: object) -> None:
    """Call a function of the C library that Python lacks.  Raises OSError, which names `path`."""
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    if function(*words) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fspath(path))


def make_folder(path: Path) -> None:
    """Make a folder and those above it, for all to read whatever the umask is.  Raises OSError."""
    missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
    for folder in reversed(missing):
        if make_new(folder):
            folder.chmod(0o755)
    sync_all(folder.parent for folder in missing)


def make_private(path: Path) -> None:
    """Make a folder that its owner alone may enter; one that is there is closed to others.

    Trees of images have programs with setuid and file capabilities in them, hard-linked from place
    to place: whoever reaches one can run it as root of this host.  Raises OSError.
    """
    make_folder(path.parent)
    if not path.is_dir() and make_new(path, 0o700):
        sync(path.parent)
    close(path)


def close(path: Path) -> None:
    """Take a folder of ours, if it is there, from all but its owner.  Raises OSError.

    A link in its place is somebody's decision, and what it leads to is theirs to protect.
    """
    with contextlib.suppress(FileNotFoundError):
        found = path.lstat()
        if not stat.S_ISLNK(found.st_mode) and stat.S_IMODE(found.st_mode) & 0o077:
            set_access(path, 0o700)


def set_access(path: Path, mode: int, group: int = -1) -> None:
    """Give a folder this mode and group.  Raises OSError, also for a link: it may lead anywhere."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchown(descriptor, -1, group)
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def move_in(staged: Path, place: Path) -> None:
    """Give a folder its name, for good; what it holds is complete and synced.

    The name is free, or that of an empty folder.
    """
    staged.rename(place)
    sync(place.parent)


def move_away(place: Path, to: Path) -> None:
    """Take the name of a folder or file away, for good; `to` is where it may be removed."""
    place.rename(to)
    sync(place.parent)


def keep_file(staged: Path, place: Path) -> None:
    """Give a complete file its name, in the place of whatever file has it, for good."""
    keep_files([(staged, place)])


def keep_files(named: Sequence[tuple[Path, Path]]) -> None:
    """The same for many, on one file system: (staged, place) of each."""
    sync_all(staged for staged, _ in named)
    for staged, place in named:
        staged.replace(place)
    sync_all(place.parent for _, place in named)


def set_aside(log: Path) -> Path:
    """Rename a log to PATH.1, in the place of the one that was there; returns that path.

    Not for good: whether a power cut undoes it is all the same.
    """
    old = log.with_name(f"{log.name}.1")
    with contextlib.suppress(FileNotFoundError):
        log.replace(old)
    return old


def link_in(source: Path, place: Path, staged: Path) -> None:
    """Give a file a second name, in the place of whatever file has it; `staged` is free."""
    os.link(source, staged)
    keep_file(staged, place)


def exchange(one: Path, other: Path) -> None:
    """Swap the names of two complete and synced folders in one step (renameat2(2)).

    With two renames there would be a moment without a release.
    """
    words = (AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE)
    call("renameat2", other, *words)
    sync_all((one.parent, other.parent))


def point_link(link: Path, target: str) -> None:
    """Make the symlink `link` lead to `target`; whoever resolves it finds the old or the new one.

    The caller holds a lock: the name it passes through is fixed, so that a killed command leaves
    at most one, which the next one replaces.
    """
    new = staged_name(link)
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.rename(link)
    sync(link.parent)


def staged_name(path: Path) -> Path:
    """The name that a file has while it is written."""
    return path.with_name(f".{path.name}.new")


@dataclass(frozen=True)
class Content:
    """What a file is to be; owner and group -1 are ours."""

    path: Path
    content: bytes
    mode: int = 0o644
    group: int = -1
    owner: int = -1

    def is_there(self) -> bool:
        """Whether the file has this content, mode, group and owner already."""
        try:
            found = self.path.stat(follow_symlinks=False)
            return (
                stat.S_ISREG(found.st_mode)
                and stat.S_IMODE(found.st_mode) == self.mode
                and self.group in (-1, found.st_gid)
                and self.owner in (-1, found.st_uid)
                and found.st_size == len(self.content)
                and self.path.read_bytes() == self.content
            )
        except FileNotFoundError:
            return False


def write_file(
    path: Path, content: bytes, mode: int = 0o644, *, group: int = -1, owner: int = -1
) -> None:
    """Replace or make a file in one step, for good."""
    write_files([Content(path, content, mode, group, owner)])


def place_file(path: Path, content: bytes, mode: int = 0o644) -> bool:
    """write_file() unless the file is so already; whether that was needed."""
    return bool(place_files([Content(path, content, mode)]))


def place_files(files: Iterable[Content]) -> list[Path]:
    """write_files() without those that are so already; the paths of the others."""
    needed: list[Path] = []

    def differing() -> Iterator[Content]:
        for file in files:
            if not file.is_there():
                needed.append(file.path)
                yield file

    write_files(differing())
    return needed


def write_files(files: Iterable[Content]) -> None:
    """Replace or make files on one file system, each in one step and in this order, for good.

    Many cost little more than one: they are synced together.
    """
    waiting = iter(files)
    while some := {file.path: file for file in islice(waiting, TOGETHER)}:
        with ExitStack() as open_files:
            staged = [open_files.enter_context(staging(file)) for file in some.values()]
            sync_all(staged)
            for new, path in zip(staged, some, strict=True):
                new.replace(path)
            sync_all(path.parent for path in some)


@contextmanager
def staging(file: Content) -> Iterator[Path]:
    """The file under the name of staged_name(), gone at the end unless it was renamed.

    Whoever was killed leaves one at most, which the next one takes over; a lock on it (flock(2))
    makes two who write the same file wait for each other.
    """
    staged = staged_name(file.path)
    descriptor = open_alone(staged)
    try:
        with open(descriptor, "wb", closefd=False) as stream:
            stream.write(file.content)
        os.fchown(descriptor, file.owner, file.group)
        os.fchmod(descriptor, file.mode)
        yield staged
    finally:
        with contextlib.suppress(OSError):
            if is_at(descriptor, staged):
                staged.unlink()
        os.close(descriptor)


def open_alone(path: Path) -> int:
    """A descriptor of the empty file `path`, which this one alone writes to."""
    while True:
        with contextlib.suppress(FileNotFoundError):
            found = path.lstat()
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
                path.unlink()  # not ours: writing into it would change something else
        descriptor = open_plain(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            take_lock(descriptor, wait=True)
            if is_at(descriptor, path):
                os.ftruncate(descriptor, 0)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # whom we waited for has given it its name


def is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def remove_unfinished(path: Path) -> None:
    """Remove a file of staging() whose writer was killed; leave one that is being written."""
    if (descriptor := lock_at(path, os.O_NONBLOCK)) is not None:
        path.unlink()
        os.close(descriptor)


@contextmanager
def scratch(top: Path, prefix: str) -> Iterator[Path]:
    """A new folder below `top`, gone at the end; those that killed processes left go first.

    A lock on the folder (flock(2)) tells whether somebody uses it.  Raises OSError; of `top` where
    nothing can be made in it, because nobody knows the new folder's name.
    """
    for left in top.glob(f"{prefix}*"):
        if (descriptor := lock_at(left, os.O_DIRECTORY)) is not None:
            shutil.rmtree(left, ignore_errors=True)
            os.close(descriptor)
    mine = None
    while mine is None:  # somebody may have taken it for one that was left
        try:
            place = Path(tempfile.mkdtemp(dir=top, prefix=prefix))
        except OSError as error:
            raise OSError(error.errno, error.strerror, os.fspath(top)) from error
        mine = lock_at(place, os.O_DIRECTORY)
    try:
        yield place
    finally:
        try:
            shutil.rmtree(place)
        finally:
            os.close(mine)


def lock_at(path: Path, flags: int) -> int | None:
    """A descriptor that holds the lock of a file or folder; None when it is another's, or gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags)
    except OSError:
        return None
    if take_lock(descriptor) and is_at(descriptor, path):
        return descriptor
    os.close(descriptor)
    return None
