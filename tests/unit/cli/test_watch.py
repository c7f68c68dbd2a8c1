# SPDX-License-Identifier: Apache-2.0
"""`status --watch` on a terminal: each table in the place of the one before, until Ctrl-C."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from imagebuilder.nodes.evidence.seen import Seen, write_seen
from imagebuilder.tree import make_tree
from tests.workshop import CHECKOUT

CLEAR = b"\x1b[H\x1b[2J"  # to the corner of an empty screen
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


def test_it_draws_again_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    tree.nodes_file.write_text(f"nodes:\n  n1: {{macs: ['{MAC}'], profile: demo}}\n")
    now = datetime.now(UTC).isoformat()
    # Nobody answers at that address.
    seen = Seen(MAC, "n1", "demo", "1", "127.77.0.1", "root", "nfs", now, now)
    write_seen(tree, seen)
    ours, theirs = os.openpty()
    words = ("status", "--watch", "1", "--tree", tree.path)
    with subprocess.Popen(
        ["setsid", "--ctty", sys.executable, "-m", "imagebuilder.cli.main", *words],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=CHECKOUT,
    ) as watching:  # fmt: skip
        os.close(theirs)
        try:
            said = read_until(ours, b"", b"reached stage root")
            assert said.count(CLEAR) == said.count(b"boots next") == 1
            write_seen(tree, replace(seen, stage="failed"))
            said = read_until(ours, said, b"its boot failed")
            assert said.rpartition(CLEAR)[2].count(b"n1 ") == 1
            os.write(ours, b"\x03")
            said = read_until(ours, said, b"interrupted")
            assert watching.wait(PATIENCE) == 130
        finally:
            watching.kill()
            os.close(ours)
    assert b"Traceback" not in said
