# SPDX-License-Identifier: Apache-2.0
"""Programs beside us: what they say is heard, they end with us, their children too."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from imagebuilder.errors import WorkError
from imagebuilder.log import MOST_LINE
from imagebuilder.program import KILLED, REMEMBERED, program
from tests.integration.started import PATIENCE, start, wait_until

# Starts a program that has a child of its own, tells both, and waits.
PARENT = """\
import sys, time
from pathlib import Path
from imagebuilder.program import program
# A child that was just forked loses the signal: it is waited for until it sleeps.
child = "trap 'kill $!' TERM; sleep 1000 & until grep -q sleep /proc/$!/comm; do :; done; " \
    "echo $$ $!; wait"
with program("p", ["sh", "-c", child], Path(sys.argv[1]), dies_by="TERM") as started:
    print(*started.wait_for(r"^(\\d+) (\\d+)$", 60).groups(), flush=True)
    time.sleep(1000)
"""


def is_alive(pid: int) -> bool:
    """Whether a process runs, and not just waits to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_whoever_listens_hears_every_line(tmp_path: Path) -> None:
    heard: list[str] = []
    many = REMEMBERED + 50
    argv = ["sh", "-c", f"seq {many}; echo end; exec sleep 1000"]
    with program("p", argv, tmp_path / "log", on_line=heard.append) as started:
        started.wait_for("^end$", PATIENCE)
        assert len(started.lines) == REMEMBERED
    assert heard[: many + 1] == [*map(str, range(1, many + 1)), "end"]


def test_a_line_that_comes_after_many_others_is_found(tmp_path: Path) -> None:
    argv = ["sh", "-c", f"seq {REMEMBERED}; sleep 0.3; seq {REMEMBERED}; echo end; exec sleep 1000"]
    with program("p", argv, tmp_path / "log", on_line=lambda _: None) as started:
        started.wait_for(f"^{REMEMBERED}$", PATIENCE)
        assert started.wait_for("^end$", PATIENCE)


def test_one_that_ended_is_complained_of_with_its_last_lines(tmp_path: Path) -> None:
    with program("p", ["sh", "-c", "echo why; exit 3"], tmp_path / "log") as started:
        assert started.wait(PATIENCE) == 3
        with pytest.raises(WorkError, match="without printing 'ready'\n    why"):
            started.wait_for("ready", 1)


def test_one_that_cannot_be_followed_is_ended_and_noticed(tmp_path: Path) -> None:
    def listen(line: str) -> None:
        raise ValueError(f"cannot understand {line}")

    argv = ["sh", "-c", "echo what; exec sleep 1000"]
    with program("p", argv, tmp_path / "log", on_line=listen) as started:
        assert started.wait(PATIENCE) == KILLED
        with pytest.raises(WorkError, match="could not read its output: cannot understand what"):
            started.wait_for("ready", 1)


def test_one_that_is_not_there_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    monkeypatch.setattr("imagebuilder.environment.SBIN", os.fspath(tmp_path))
    with (
        program("p", ["sleep", "60"], tmp_path / "log") as started,
        pytest.raises(WorkError, match="setpriv, setsid are not installed"),
    ):
        started.wait_for("ready", PATIENCE)


def test_one_that_ended_is_noticed_though_a_child_keeps_its_output(tmp_path: Path) -> None:
    argv = ["sh", "-c", "sleep 1000 & echo $!; exit 5"]
    with program("p", argv, tmp_path / "log") as started:
        child = int(started.wait_for(r"^(\d+)$", PATIENCE)[1])
        assert started.wait(PATIENCE) == 5
        wait_until(lambda: not is_alive(child), "the child lives on")


def test_a_line_without_an_end_is_taken_in_pieces(tmp_path: Path) -> None:
    argv = ["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end"]
    with program("p", argv, tmp_path / "log") as started:
        started.wait_for("^end$", PATIENCE)
        assert max(map(len, started.lines)) <= MOST_LINE


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_children_end_even_if_we_are_killed(tmp_path: Path, how: signal.Signals) -> None:
    argv = [sys.executable, "-c", PARENT, os.fspath(tmp_path / "log")]
    parent = start(argv, {"PYTHONPATH": os.fspath(Path(__file__).parents[2])}, tmp_path)
    wait_until(lambda: parent.stdout.endswith("\n"), "did not start")
    pids = [int(word) for word in parent.stdout.split()]
    assert all(map(is_alive, pids))
    parent.send(how)
    parent.wait(PATIENCE)
    wait_until(lambda: not any(map(is_alive, pids)), "children live on")
