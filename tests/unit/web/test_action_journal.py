# SPDX-License-Identifier: Apache-2.0
"""What a command said is kept as far as there is room, and what is missing is told."""

from __future__ import annotations

from pathlib import Path

from imagebuilder.web.action_journal import MOST_LOG, ActionLog


def test_what_a_full_disk_keeps_from_the_log_is_told(tmp_path: Path) -> None:
    place = tmp_path / "said"
    with Path("/dev/full").open("wb", 0) as full, place.open("ab", 0) as kept:
        log = ActionLog(kept.fileno())
        log.write(b"one\n")
        log.descriptor = full.fileno()
        log.write(b"two\n")
        log.write(b"three\n")
        log.descriptor = kept.fileno()
        log.write(b"four\n")
        log.write(b"x" * MOST_LOG)
        log.write(b"y")
        log.tell()
        log.tell()
    left_out = "\n[{} bytes left out: the disk or this log was full]\n"
    assert place.read_text() == f"one\n{left_out.format(10)}four\n{left_out.format(MOST_LOG + 1)}"
