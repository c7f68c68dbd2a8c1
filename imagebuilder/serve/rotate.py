# SPDX-License-Identifier: Apache-2.0
"""Rotate the log of reports, which the web server writes, without losing a line.

A log that has grown is renamed to reports.log.1, and the web server is told to open a new one: it
reloads, which needs no permission of its workers and interrupts no download.  Until then it writes
to the old log, which nodes/evidence/report_log.py reads to its end before the new one.  The next
turn completes what a killed process left.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from imagebuilder.files import set_aside
from imagebuilder.locks import file_lock
from imagebuilder.nodes.evidence.report_log import LogMark, inode_of, old_log, read_mark, write_mark
from imagebuilder.serve.config import ServeConfig
from imagebuilder.serve.daemons import send
from imagebuilder.tree import Tree

MOST_REPORTS = 16_000_000  # bytes of the log of reports
AT_LAST = 4  # at this multiple the old log is dropped even if it was not read


def make_reports_log(tree: Tree) -> None:
    """Make the log.  Only root may read it: it contains the secrets of nodes."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(tree.reports_log, flags, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def rotate_reports(config: ServeConfig, most: int = MOST_REPORTS) -> bool:
    """Rotate a log of `most` bytes or more; returns whether the web server was told."""
    with file_lock(config.tree.lock("reports")):
        if is_too_large(config.tree, most):
            skip_unread(config.tree)
            set_aside(config.tree.reports_log)
        elif not is_forgotten(config.tree.reports_log):
            return False
        make_reports_log(config.tree)
        os.utime(config.tree.reports_log)
        send(config.folder / "nginx.pid", signal.SIGHUP)
    return True


def skip_unread(tree: Tree) -> None:
    """Begin with the rotated log, if its predecessor was not read to its end."""
    if read_mark(tree.reports_mark).inode == inode_of(old_log(tree.reports_log)):
        write_mark(tree.reports_mark, LogMark(inode_of(tree.reports_log)))


def is_too_large(tree: Tree, most: int) -> bool:
    """Whether the log has grown that much, and its predecessor may be removed."""
    try:
        size = tree.reports_log.stat().st_size
    except FileNotFoundError:
        return False
    is_read = read_mark(tree.reports_mark).inode != inode_of(old_log(tree.reports_log))
    return size >= most and (is_read or size >= AT_LAST * most)


def is_forgotten(log: Path) -> bool:
    """Whether the web server still writes to the old log, because nobody told it."""
    try:
        old = old_log(log).stat()
    except FileNotFoundError:
        return False
    try:
        new = log.stat()
    except FileNotFoundError:
        return True
    return not new.st_size and old.st_mtime > new.st_mtime
