# SPDX-License-Identifier: Apache-2.0
"""`status --watch` on a terminal: the whole screen, until Ctrl-C; elsewhere a table each time."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import sys
import termios
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from imagebuilder.nodes.evidence.seen import Seen, write_seen
from imagebuilder.tree import Tree, make_tree
from tests.workshop import CHECKOUT

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"  # the alternate screen
HIDE, SHOW = b"\x1b[?25l", b"\x1b[?25h"  # the cursor
HOME = b"\x1b[H"
MAC = "52:54:00:77:00:01"
PATIENCE = 60.0


def read_until(terminal: int, said: bytes, wanted: bytes) -> bytes:
    """All that was printed, once `wanted` comes after what was there before."""
    before, deadline = len(said), time.monotonic() + PATIENCE
    while wanted not in said[before:]:
        assert time.monotonic() < deadline, said
        if select.select([terminal], [], [], 1.0)[0]:
            said += os.read(terminal, 65536)
    return said


def resize(terminal: int, columns: int, lines: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def make_tree_with_node(top: Path) -> tuple[Tree, Seen]:
    """A node that is booting; nobody answers at its address."""
    tree = make_tree(top / "tree")
    tree.nodes_file.write_text(f"nodes:\n  n1: {{macs: ['{MAC}'], profile: demo}}\n")
    now = datetime.now(UTC).isoformat()
    seen = Seen(MAC, "n1", "demo", "1", "127.77.0.1", "root", "nfs", now, now)
    write_seen(tree, seen)
    return tree, seen


def start(
    tree: Tree, theirs: int, *, term: str = "xterm-256color", every: str = "1"
) -> subprocess.Popen[bytes]:
    words = ("status", "--watch", "--every", every, "--tree", tree.path)
    return subprocess.Popen(
        ["setsid", "--ctty", sys.executable, "-m", "imagebuilder.cli.main", *words],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=CHECKOUT,
        env={**os.environ, "TERM": term, "COLUMNS": "33", "LINES": "3"},
    )  # fmt: skip


def test_it_draws_again_and_leaves_a_clean_terminal(tmp_path: Path) -> None:
    tree, seen = make_tree_with_node(tmp_path)
    ours, theirs = os.openpty()
    resize(ours, 100, 20)
    before = termios.tcgetattr(ours)
    with start(tree, theirs) as watching:
        try:
            said = read_until(ours, b"", b"reached stage root")
            assert said.count(ENTER) == said.count(HIDE) == 1
            write_seen(tree, replace(seen, stage="failed"))
            said = read_until(ours, said, b"its boot failed")
            (drawn,) = (each for each in said.split(HOME) if b"its boot failed" in each)
            assert drawn.count(b"n1 ") == 1
            add = "  n2: {macs: ['52:54:00:77:00:02'], profile: demo}\n"
            tree.nodes_file.write_text(tree.nodes_file.read_text() + add)
            said = read_until(ours, said, b"2 nodes")
            os.write(ours, b"\x03")
            said = read_until(ours, said, b"interrupted")
            assert watching.wait(PATIENCE) == 130
            assert termios.tcgetattr(ours) == before
        finally:
            watching.kill()
            os.close(ours)
            os.close(theirs)
    end = said[said.index(LEAVE) :]
    assert SHOW in said[said.rindex(HIDE) :]
    assert end.count(b"interrupted") == 1
    assert b"Traceback" not in said


@pytest.mark.parametrize("changes", [1, 3000])
def test_another_size_is_drawn_at_once(tmp_path: Path, changes: int) -> None:
    tree, _ = make_tree_with_node(tmp_path)
    ours, theirs = os.openpty()
    resize(ours, 100, 20)
    with start(tree, theirs, every="600") as watching:
        try:
            said = read_until(ours, b"", b"reached stage root")
            assert b"boots next" not in said
            for number in range(1, changes):
                resize(ours, 100 + number % 2, 20)
                while select.select([ours], [], [], 0)[0]:
                    os.read(ours, 65536)
            resize(ours, 160, 20)
            read_until(ours, said, b"boots next")
        finally:
            watching.kill()
            os.close(ours)
            os.close(theirs)


def test_what_ends_it_is_said_on_a_clean_terminal(tmp_path: Path) -> None:
    tree, _ = make_tree_with_node(tmp_path)
    ours, theirs = os.openpty()
    with start(tree, theirs) as watching:
        try:
            said = read_until(ours, b"", b"reached stage root")
            tree.nodes_file.write_text("nodes: [")
            said = read_until(ours, said, b"error:")
            assert watching.wait(PATIENCE) == 2
        finally:
            watching.kill()
            os.close(ours)
            os.close(theirs)
    assert said.index(LEAVE) < said.index(b"error:")


def test_a_terminal_that_cannot_do_that_gets_tables(tmp_path: Path) -> None:
    tree, _ = make_tree_with_node(tmp_path)
    ours, theirs = os.openpty()
    with start(tree, theirs, term="dumb") as watching:
        try:
            said = read_until(ours, b"", b"reached stage root")
            said = read_until(ours, said, b"reached stage root")
        finally:
            watching.kill()
            os.close(ours)
            os.close(theirs)
    first, second, *_ = said.split(b"reached stage root")
    assert (first.count(b"boots next"), second.count(b"boots next")) == (1, 1)
    assert b"\x1b" not in said
