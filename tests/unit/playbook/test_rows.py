# SPDX-License-Identifier: Apache-2.0
"""What a playbook says of itself, which may be anything."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from imagebuilder.errors import WorkError
from imagebuilder.playbook.controller import find_machine_words
from imagebuilder.playbook.rows import SkippedRow, ToldRow, list_words, read_rows

ROW = {"kind": "service", "what": "ssh.service", "verb": "start"}


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_rows_are_what_plugins_write(tmp_path: Path) -> None:
    path = write(tmp_path / "skipped", ROW, {"kind": "read", "what": "uname", "verb": ""})
    assert read_rows(path, SkippedRow) == [
        SkippedRow("service", "ssh.service", "start"), SkippedRow("read", "uname"),
    ]  # fmt: skip
    told = write(tmp_path / "told", {"event": "failed", "play": "A", "what": "no", "module": "x"})
    assert read_rows(told, ToldRow) == [ToldRow("failed", play="A", what="no")]
    assert read_rows(tmp_path / "missing", ToldRow) == []


@pytest.mark.parametrize(
    "text",
    ["{}", "[1]", "x", "\xff", '{"kind": [1], "what": {"a": 1}}', '{"kind": "machine"}',
     '{"kind": "machine", "what": {}}', '{"kind": NaN}', "[" * 100_000],
)  # fmt: skip
def test_a_line_of_another_shape_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "skipped"
    path.write_text(f"{json.dumps(ROW)}\n{text}\n", encoding="latin-1")
    with pytest.raises(WorkError, match="damaged a file") as caught:
        read_rows(path, SkippedRow)
    assert "/run/imagebuilder" in caught.value.faults[0].hint


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "told")
    with pytest.raises(WorkError, match="damaged a file"):
        read_rows(tmp_path / "told", ToldRow)


def test_no_text_reaches_the_terminal_as_it_is(tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\nerror: forged"
    (row,) = read_rows(write(tmp_path / "a", {**ROW, "what": evil}), SkippedRow)
    assert row.what.isprintable()
    rows = write(tmp_path / "b", {"event": "failed", "what": f"{evil}{'x' * 60_000_000}"})
    (told,) = read_rows(rows, ToldRow)
    assert len(told.what) < 20_000
    assert all(line.isprintable() for line in told.what.split("\n"))


def test_a_note_is_bounded() -> None:
    assert list_words(["b", "a", "b"]) == "b, a"
    listed = list_words(map(str, range(300_000)))
    assert listed.endswith(", 49 and 299950 more")


def test_a_link_is_not_followed_out_of_the_root(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("word")
    os.mkfifo(tmp_path / "pipe")
    tree = tmp_path / "tree"
    tree.mkdir()
    for name, place in (("a", "../outside"), ("b", "../pipe"), ("c", "c"), ("d", "/proc/1/root/x")):
        (tree / name).symlink_to(place)
    os.mkfifo(tree / "e")
    assert find_machine_words(tree, sorted(tree.iterdir()), ["word"]) == ""
    (tree / "f").write_text("a word")
    assert find_machine_words(tree, sorted(tree.iterdir()), ["word"]) == "/f"
