# SPDX-License-Identifier: Apache-2.0
"""What OSTree's objects hold: read, verified and computed without a process for each.

    commit    (a{sv}aya(say)sstayay)    the last two are the top's dirtree and dirmeta
    dirtree   (a(say)a(sayay))          files with their checksums, folders with both of theirs
    dirmeta   (uuua(ayay))              owner, group, mode, extended attributes
    file      (uuuusa(ayay)) + content  owner, group, mode, 0, target of a link, attributes

These are GVariants, numbers big-endian.  What has no fixed size ends where an offset behind the
data says, and offsets are as wide as the size of the whole needs (the GVariant specification).
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import WorkError
from imagebuilder.plain import open_plain, read_most

WIDTHS = (1, 2, 4, 8)
LAYOUTS = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}
NARROW = 256  # smaller containers have offsets of one byte
SUM = 32  # bytes of a sha256
HEAD = 12  # bytes of a dirmeta's owner, group and mode
Xattrs = tuple[tuple[bytes, bytes], ...]
# OSTree itself reads no larger ones (OSTREE_MAX_METADATA_SIZE).
MOST_METADATA = 128 << 20
# Between the size of a file's header and the header: it begins at a multiple of 8 bytes.
PADDING = b"\0" * 4


class DamagedObjectError(WorkError):
    """An object of a repository is missing, or its content is not what its name says."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(
            what,
            where=os.fspath(path),
            hint="run imagebuilder fsck to see everything that is damaged",
        )


@dataclass(frozen=True)
class Folder:
    """A dirtree: checksums of files, and of folders that of their dirtree and dirmeta."""

    files: dict[str, str]
    folders: dict[str, tuple[str, str]]


EMPTY = Folder({}, {})


def object_path(checksum: str, kind: str) -> str:
    """Where a bare repository has an object, below objects/."""
    return f"{checksum[:2]}/{checksum[2:]}.{kind}"


def read_object(repo: Path, checksum: str, kind: str) -> bytes:
    """The content of an object other than a file.  Raises DamagedObjectError."""
    path = f"{repo}/objects/{object_path(checksum, kind)}"  # a root has thousands of folders
    try:
        descriptor = open_plain(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            data = read_most(descriptor, MOST_METADATA)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise DamagedObjectError(Path(path), f"cannot be read: {error.strerror}") from error
    if len(data) > MOST_METADATA or hashlib.sha256(data).hexdigest() != checksum:
        raise DamagedObjectError(Path(path), "does not have the checksum of its name")
    if not data:
        raise DamagedObjectError(Path(path), "is empty, which no object of this kind is")
    return data


def read_commit(repo: Path, checksum: str) -> tuple[str, str]:
    """The dirtree and dirmeta of a commit's top folder.  Raises DamagedObjectError."""
    data = read_object(repo, checksum, "commit")
    width = width_of(len(data))
    end = number(data, -6 * width, width)  # of the last but one of its eight fields
    return data[end - SUM : end].hex(), data[end : end + SUM].hex()


def read_folder(repo: Path, checksum: str) -> Folder:
    """A dirtree.  Raises DamagedObjectError."""
    data = read_object(repo, checksum, "dirtree")
    try:
        return parse_folder(data)
    except (struct.error, LookupError, ValueError) as error:
        path = repo / "objects" / object_path(checksum, "dirtree")
        raise DamagedObjectError(path, "is not a list of files") from error


def parse_folder(data: bytes) -> Folder:
    """The content of a dirtree.  Raises ValueError, struct.error and LookupError."""
    width = width_of(len(data))
    end = number(data, -width, width)
    if end > len(data) - width:
        raise ValueError("its files extend past its end")
    files = {name: sums.hex() for name, sums in entries(data[:end], 1)}
    both = {name: sums.hex() for name, sums in entries(data[end:-width], 2)}
    return Folder(files, {name: (sums[: 2 * SUM], sums[2 * SUM :]) for name, sums in both.items()})


def list_objects(repo: Path, commit: str) -> frozenset[str]:
    """Every object of a commit, as its path below objects/.  Raises DamagedObjectError."""
    tree, meta = read_commit(repo, commit)
    found = {object_path(commit, "commit"), object_path(meta, "dirmeta")}
    todo, seen = [tree], {tree}
    while todo:
        checksum = todo.pop()
        found.add(object_path(checksum, "dirtree"))
        folder = read_folder(repo, checksum)
        found.update(object_path(each, "file") for each in folder.files.values())
        for below, attributes in folder.folders.values():
            found.add(object_path(attributes, "dirmeta"))
            if below not in seen:
                seen.add(below)
                todo.append(below)
    return frozenset(found)


def find_file(repo: Path, commit: str, name: str) -> str:
    """A path in a commit of a file object, which is a path below objects/; "" if it has none.

    Raises DamagedObjectError.
    """
    todo, seen = [("", read_commit(repo, commit)[0])], set[str]()
    while todo:
        above, checksum = todo.pop()
        if checksum in seen:
            continue
        seen.add(checksum)
        folder = read_folder(repo, checksum)
        for file, each in folder.files.items():
            if object_path(each, "file") == name:
                return f"{above}{file}"
        todo += [(f"{above}{below}/", tree) for below, (tree, _) in folder.folders.items()]
    return ""


def entries(data: bytes, offsets: int) -> Iterator[tuple[str, bytes]]:
    """Names and checksums of an array whose elements end with so many offsets."""
    for element in elements(data):
        if len(element) < NARROW:  # nearly all of them: not worth three calls each
            name, inner = element[-1], 1
        else:
            inner = width_of(len(element))
            name = number(element, -inner, inner)
        yield os.fsdecode(element[: name - 1]), element[name : len(element) - offsets * inner]


def elements(data: bytes) -> Iterator[bytes]:
    """The elements of an array of what has no fixed size."""
    if not data:
        return
    width = width_of(len(data))
    table = data[number(data, -width, width) :]
    start = 0
    for (end,) in struct.iter_unpack(LAYOUTS[width], table):
        yield data[start:end]
        start = end


def number(data: bytes, place: int, width: int) -> int:
    """A framing offset, which is little-endian always."""
    place %= len(data)
    return int.from_bytes(data[place : place + width], "little")


def width_of(size: int) -> int:
    """Bytes of each offset in a container of `size` bytes."""
    return next(width for width in WIDTHS if size < 1 << 8 * width)


def frame(body: bytes, ends: Iterable[int]) -> bytes:
    """A container: its body and the offsets where parts of it end."""
    ends = list(ends)
    width = next(w for w in WIDTHS if len(body) + len(ends) * w < 1 << 8 * w)
    return body + b"".join(end.to_bytes(width, "little") for end in ends)


def render_xattrs(xattrs: Xattrs) -> bytes:
    """Extended attributes as an array of names, which end with a zero byte, and values."""
    body, ends = b"", []
    for name, value in sorted(xattrs):
        body += frame(name + b"\0" + value, [len(name) + 1])
        ends.append(len(body))
    return frame(body, ends) if ends else b""


def read_xattrs(path: str | int) -> Xattrs:
    """The extended attributes of a path (of a link itself) or descriptor.  Raises OSError.

    OSTree leaves out those without a value.
    """
    follow = isinstance(path, int)
    names = os.listxattr(path, follow_symlinks=follow)
    if not names:
        return ()
    found = ((os.fsencode(n), os.getxattr(path, n, follow_symlinks=follow)) for n in names)
    return tuple((name, value) for name, value in found if value)


def write_dirmeta(repo: Path, checksum: str, path: str) -> None:
    """Give a folder the owner, mode and attributes of a dirmeta.

    Raises OSError, DamagedObjectError.
    """
    data = read_object(repo, checksum, "dirmeta")
    owner, group, mode = struct.unpack(">III", data[:HEAD])
    wanted = dict(pairs(data[HEAD:]))
    os.chown(path, owner, group, follow_symlinks=False)
    for name, _ in set(read_xattrs(path)) - set(wanted.items()):
        os.removexattr(path, name, follow_symlinks=False)
    for name, value in wanted.items():
        os.setxattr(path, name, value, follow_symlinks=False)
    Path(path).chmod(stat.S_IMODE(mode))


def is_folder_meta(data: bytes) -> bool:
    """Whether a dirmeta describes a folder, in the one way that OSTree writes it."""
    if len(data) < HEAD:
        return False
    _, _, mode = struct.unpack(">III", data[:HEAD])
    if mode & ~0o7777 != stat.S_IFDIR:
        return False
    try:
        return render_xattrs(tuple(pairs(data[HEAD:]))) == data[HEAD:]
    except (struct.error, LookupError, ValueError):
        return False


def pairs(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The names and values of attributes."""
    for element in elements(data):
        inner = width_of(len(element))
        end = number(element, -inner, inner)
        yield element[: end - 1], element[end:-inner]


def dirmeta_sum(path: str) -> str:
    """The checksum of a folder's owner, mode and attributes.  Raises OSError."""
    found = os.lstat(path)
    head = struct.pack(">III", found.st_uid, found.st_gid, found.st_mode)
    return hashlib.sha256(head + render_xattrs(read_xattrs(path))).hexdigest()


def file_header(found: os.stat_result, xattrs: Xattrs, target: bytes = b"") -> bytes:
    """What OSTree hashes before the content of a file."""
    head = struct.pack(">IIII", found.st_uid, found.st_gid, found.st_mode, 0)
    head += target + b"\0"
    header = frame(head + render_xattrs(xattrs), [len(head)])
    return struct.pack(">I", len(header)) + PADDING + header


def link_sum(path: str) -> str:
    """The checksum of a symbolic link.  Raises OSError."""
    target = os.fsencode(Path(path).readlink())
    return hashlib.sha256(file_header(os.lstat(path), read_xattrs(path), target)).hexdigest()


class Hasher:
    """Begins checksums of files; those with the same owner, mode and attributes begin alike."""

    def __init__(self) -> None:
        self.begun: dict[tuple[int, int, int, Xattrs], hashlib._Hash] = {}

    def begin(self, descriptor: int, found: os.stat_result) -> hashlib._Hash:
        """The checksum of an open file up to its content.  Raises OSError."""
        xattrs = read_xattrs(descriptor)
        key = (found.st_uid, found.st_gid, found.st_mode, xattrs)
        if key not in self.begun:
            self.begun[key] = hashlib.sha256(file_header(found, xattrs))
        return self.begun[key].copy()
