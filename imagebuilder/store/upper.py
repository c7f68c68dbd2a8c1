# SPDX-License-Identifier: Apache-2.0
"""What a step changed, read from the upper directory that overlayfs left.

Format: Documentation/filesystems/overlayfs.rst of the kernel.  A character device 0:0 is a whiteout
(the name below is gone); `trusted.overlay.opaque=y` on a directory hides everything below it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from errno import ENAMETOOLONG
from pathlib import Path

from imagebuilder.errors import WorkError
from imagebuilder.folders import entries_below
from imagebuilder.limited import MOST_MAPPED
from imagebuilder.process import run
from imagebuilder.untrusted import fit

OPAQUE = "trusted.overlay.opaque"
OVERLAY_XATTRS = "trusted.overlay."


@dataclass(frozen=True)
class Changes:
    """What an upper removes from the layers below: names relative to the root, no leading slash."""

    whiteouts: tuple[str, ...] = ()
    opaque: tuple[str, ...] = ()

    @property
    def additive(self) -> bool:
        """Whether the upper only adds and replaces."""
        return not self.whiteouts and not self.opaque


def settle(upper: Path, below: Sequence[Path]) -> Changes:
    """Prepare an upper whose sandbox has ended to be a layer, and say what it removes of the
    trees `below` it.

    overlayfs's bookkeeping attributes are stripped, but for opaqueness, which the kernel needs
    when the upper becomes a lower.  It marks a folder that was renamed too, as is done with each
    new one of a package: only one that a tree below has as well removes something.  Sockets, FIFOs
    and device nodes go: no tree we serve may hold them, and /dev of a node is its own.  Raises
    WorkError for files that are too large to be read, and for a name that is not UTF-8.
    """
    whiteouts: list[str] = []
    opaque: list[str] = []
    sizes: dict[int, int] = {}
    for path, info in walk(upper):
        if stat.S_ISREG(info.st_mode):
            sizes[info.st_ino] = info.st_size
        if stat.S_ISCHR(info.st_mode) and info.st_rdev == 0:
            whiteouts.append(os.fspath(path.relative_to(upper)))
        elif not (
            stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode) or stat.S_ISLNK(info.st_mode)
        ):
            path.unlink()
        elif not is_utf8(path.name):
            shown = os.fsencode(path.relative_to(upper)).decode(errors="backslashreplace")
            raise WorkError(
                f"the step left /{fit(shown)}, whose name is not UTF-8: the store does not take it",
                hint="let the step remove it, or give it another name",
            )
        elif strip_bookkeeping(path) and path != upper:
            name = os.fspath(path.relative_to(upper))
            if any(os.path.lexists(tree / name) for tree in below):
                opaque.append(name)
    check_sizes(upper, sizes)
    forget_times(upper)
    return Changes(tuple(sorted(whiteouts)), tuple(sorted(opaque)))


def check_sizes(upper: Path, sizes: Mapping[int, int]) -> None:
    """Raise WorkError if the files of a step, by inode, are too large to be read."""
    whole = sum(sizes.values())
    if whole <= MOST_MAPPED:
        return
    limit = f"but the limit is {MOST_MAPPED >> 30} GiB"
    path, size = max(
        ((path, sizes.get(info.st_ino, 0)) for path, info in walk(upper)), key=lambda each: each[1]
    )
    if size > MOST_MAPPED:
        what = f"the step left a file of {size >> 30} GiB, {limit}"
    else:
        what = (
            f"the step left files of {whole >> 30} GiB together, {limit}; this one is the largest"
        )
    raise WorkError(
        what,
        where=fit(f"/{path.relative_to(upper)}"),
        hint="make it smaller, or make it as the node boots; a sparse file counts in full",
    )


def is_utf8(name: str) -> bool:
    """Whether a name as Python reads it from a folder is UTF-8; other bytes are surrogates."""
    return not any("\udc80" <= character <= "\udcff" for character in name)


def forget_times(tree: Path) -> None:
    """Set every modification time to 0, as in a checkout.

    The store does not keep times, so no step may see others in a layer that was just built than in
    one that is reused.
    """
    for path, _ in walk(tree):
        os.utime(path, ns=(0, 0), follow_symlinks=False)


def strip_bookkeeping(path: Path) -> bool:
    """Remove overlayfs's attributes from `path`; returns whether it is opaque."""
    is_opaque = False
    for name in os.listxattr(path, follow_symlinks=False):
        if name == OPAQUE:
            is_opaque = os.getxattr(path, name, follow_symlinks=False) == b"y"
        elif name.startswith(OVERLAY_XATTRS):
            os.removexattr(path, name, follow_symlinks=False)
    return is_opaque


def walk(top: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """`top` and everything below it, parents first, never following a symlink.

    Raises WorkError for a path that is too long for the system, which a program can make step by
    step.
    """
    yield top, top.lstat()
    try:
        for entry in entries_below(top):
            yield Path(entry.path), entry.stat(follow_symlinks=False)
    except OSError as error:
        if error.errno != ENAMETOOLONG:
            raise
        shown = os.fspath(error.filename).removeprefix(os.fspath(top))
        raise WorkError(
            f"the path has {len(os.fsencode(shown))} bytes, which no program can open",
            where=fit(shown),
            hint="let the step make fewer folders in each other, or shorter names",
        ) from error


def stage(upper: Path, tree: Path, changes: Changes) -> None:
    """Apply a settled upper to `tree`, a hard-link checkout of the layer below (or a new folder).

    Files become hard links of the upper's, which stays whole: it may be serving as the lower of a
    running sandbox.  Nothing in `tree` is ever opened for writing.  Its folders that the upper has
    too get the modification time 0.
    """
    folders: list[Path] = []
    for name in (*changes.whiteouts, *changes.opaque):
        remove(tree / name)
    gone = {os.fspath(upper / name) for name in changes.whiteouts}
    for path, info in walk(upper):
        target = tree / path.relative_to(upper)
        if stat.S_ISDIR(info.st_mode):
            stage_directory(path, target, info)
            folders.append(target)
        elif os.fspath(path) not in gone:
            if os.path.lexists(target):
                remove(target)
            os.link(path, target, follow_symlinks=False)
    for folder in folders:
        os.utime(folder, ns=(0, 0))


def stage_directory(path: Path, target: Path, info: os.stat_result) -> None:
    """Make `target` a directory with mode, owner and attributes of `path`."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        target.unlink()
    target.mkdir(exist_ok=True)
    os.chown(target, info.st_uid, info.st_gid)
    target.chmod(stat.S_IMODE(info.st_mode))
    for name in os.listxattr(path):
        if not name.startswith(OVERLAY_XATTRS):
            os.setxattr(target, name, os.getxattr(path, name))


def remove(path: Path) -> None:
    """Remove a file, link or tree if it is there; never follows a link.

    shutil.rmtree() calls itself for each level, and a program of an image may make thousands.
    """
    if path.is_dir() and not path.is_symlink():
        run(["rm", "-rf", "--one-file-system", "--", path])
    else:
        path.unlink(missing_ok=True)
