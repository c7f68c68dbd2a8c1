# SPDX-License-Identifier: Apache-2.0
"""A log is bounded, fit to print, and losing it ends nothing.

A full disk is /dev/full, or a limit on the size of files (setrlimit(2)); the integration tests fill
a real one under the real daemons.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from imagebuilder import log
from imagebuilder.errors import WorkError
from imagebuilder.files import set_aside
from imagebuilder.log import CutLog, Log, Tail
from imagebuilder.process import run
from imagebuilder.program import program

# Writes under a limit of 1000 bytes for each file, then without it.
LIMITED = """\
import resource, signal, sys
from pathlib import Path
from imagebuilder.log import Log
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
told = []
log = Log(Path(sys.argv[1]), told.append)
most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, most))
for number in range(200):
    log.write(b"line %d\\n" % number)
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
log.write(b"after\\n")
log.write(b"more\\n")
print(len(told), told[0])
"""


def test_a_log_is_bounded_and_no_line_is_cut(tmp_path: Path) -> None:
    log = Log(tmp_path / "logs/a.log", most=1000)
    for number in range(1000):
        log.write(b"line %d\n" % number)
    log.close()
    old, new = ((tmp_path / "logs" / name).read_text() for name in ("a.log.1", "a.log"))
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["a.log", "a.log.1"]
    assert max(len(old), len(new)) <= 1000
    lines = (old + new).splitlines()
    assert lines == [f"line {n}" for n in range(1000 - len(lines), 1000)]


def test_what_is_written_is_fit_to_print(tmp_path: Path) -> None:
    log = Log(tmp_path / "a.log")
    log.write("\x1b[2Jred\x9b31m\u202e\rx\n".encode())
    log.write(b"\xff\xfe" + b"y" * 100_000)
    log.close()
    first, second = (tmp_path / "a.log").read_text().splitlines()
    assert first == r"red\x9b31m\u202ex"
    assert second.isprintable()
    assert len(second) <= 4096


def test_what_is_lost_on_a_full_disk_is_counted_said_once_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    project = Path(__file__).parents[2]
    done = run([sys.executable, "-c", LIMITED, path], cwd=project)
    assert re.match(r"1 could not write \S*a.log, so lines are lost: No space", done.stdout)
    lines = path.read_text().splitlines()
    kept = len(lines) - 3
    assert lines[:kept] == [f"line {n}" for n in range(kept)]
    assert lines[kept:] == [f"({200 - kept} lines could not be written)", "after", "more"]


def test_a_program_goes_on_and_is_heard_when_its_log_cannot_be_written(tmp_path: Path) -> None:
    told: list[str] = []
    (tmp_path / "logs").write_text("no folder")
    heard: list[str] = []
    argv = ["sh", "-c", "seq 100; exit 7"]
    log = tmp_path / "logs/a.log"
    with program("p", argv, log, on_line=heard.append, on_loss=told.append) as started:
        assert started.wait(10) == 7
    assert heard == [str(n) for n in range(1, 101)]
    assert len(told) == 1
    assert "a.log, so lines are lost" in told[0]


def test_a_full_device_is_said_once(tmp_path: Path) -> None:
    told: list[str] = []
    (tmp_path / "a.log").symlink_to("/dev/full")
    log = Log(tmp_path / "a.log", told.append)
    for _ in range(10):
        log.write(b"x\n")
    assert len(told) == 1


def test_setting_aside_what_is_not_there_is_nothing(tmp_path: Path) -> None:
    set_aside(tmp_path / "a.log")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("most", [1, 10])
def test_a_line_longer_than_a_log_is_kept_alone(tmp_path: Path, most: int) -> None:
    log = Log(tmp_path / "a.log", most=most)
    for _ in range(3):
        log.write(b"a line of some length")
    log.close()
    assert (tmp_path / "a.log").read_text() == "a line of some length\n"


def test_a_tail_gives_whole_lines_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tail = Tail(log)
    assert tail.read() == []
    log.write_text("one\ntw")
    assert tail.read() == ["one"]
    with log.open("a") as stream:
        stream.write("o\nthree\n")
    assert tail.read() == ["two", "three"]
    assert tail.read() == []


def test_a_tail_reads_the_end_of_a_log_that_was_set_aside(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tail = Tail(log)
    log.write_text("one\n")
    assert tail.read() == ["one"]
    with log.open("a") as stream:
        stream.write("two\n")
    set_aside(log)
    assert tail.read() == ["two"]
    log.write_text("three\n")
    assert tail.read() == ["three"]
    set_aside(log)
    log.write_text("four\n")
    assert tail.read() == ["four"]


@pytest.mark.parametrize("piece", [b"x" * 70_000, b"a line\n", b"\n"])
def test_what_one_program_prints_is_bounded(
    piece: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "MOST_HEAD", 200_000)
    monkeypatch.setattr(log, "MOST_TAIL", 100_000)
    cut = CutLog(tmp_path / "log")
    count = 1_000_000 // len(piece)
    for _ in range(count - 1):
        cut.write(piece)
    cut.write(b"the end\n")
    cut.close()
    kept = (tmp_path / "log").read_bytes()
    head, said, tail = re.split(rb"\((\d+) bytes are left out here\)\n", kept)
    assert len(head) <= 200_000
    assert len(tail) == 100_000
    assert tail.endswith(b"the end\n")
    assert len(head) + int(said) + len(tail) == (count - 1) * len(piece) + len(b"the end\n")


def test_a_program_that_prints_without_end_does_not_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "MOST_HEAD", 200_000)
    monkeypatch.setattr(log, "MOST_TAIL", 100_000)
    command = "head -c 5000000 /dev/zero | tr '\\0' x; echo; echo sorry; exit 3"
    with pytest.raises(WorkError, match="sorry"):
        run(["sh", "-c", command], log=tmp_path / "log")
    assert 200_000 < (tmp_path / "log").stat().st_size < 400_000
    assert (tmp_path / "log").read_bytes().startswith(b"$ sh -c ")
    assert (tmp_path / "log").read_bytes().endswith(b"x\nsorry\n")
