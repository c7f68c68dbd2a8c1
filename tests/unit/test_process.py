# SPDX-License-Identifier: Apache-2.0
"""The gate to programs, with real programs."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from imagebuilder.errors import HostError, WorkError
from imagebuilder.process import TIMED_OUT, Completed, run
from tests.integration.started import command_lines, wait_until

# For what a program does at once: a busy machine takes a while to start one.
LIMIT = 1.0


def own_number() -> str:
    """Seconds to sleep that no other run of these tests has."""
    return f"61.{os.getpid():08}"


def is_running(number: str) -> bool:
    """Whether a program still has that number in its command line."""
    return any(number.encode() in words for words in command_lines().values())


def test_last_unterminated_line_is_kept() -> None:
    assert run(["printf", "one\\ntwo"]).stdout == "one\ntwo"


def test_environment_is_an_allow_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    said = run(["env"]).stdout
    assert "SECRET_TOKEN" not in said
    assert "LANG=" not in said
    assert "LC_ALL=C.UTF-8" in said
    assert "TZ=UTC" in said


def test_whoever_waits_may_give_up_and_children_end_too(tmp_path: Path) -> None:
    """The program ends when it is told to; a child that does not is killed."""
    script = (
        'trap "echo told > told; exit" TERM; '
        'sh -c "trap : TERM; echo > ready; sleep $number & wait; wait" & wait'
    )
    number = own_number()

    def ask() -> None:
        if (tmp_path / "ready").exists():
            raise WorkError("enough")

    with pytest.raises(WorkError, match="enough"):
        run(["sh", "-c", script], env={"number": number}, cwd=tmp_path, ask=ask)
    assert (tmp_path / "told").read_text() == "told\n"
    assert not is_running(number)
    for script, status in (("exit 3", 3), ("kill -KILL $$", -signal.SIGKILL), ("exit 255", 255)):
        assert run(["sh", "-c", script], ask=lambda: None, check=False).status == status


@pytest.mark.parametrize(
    "script",
    [
        "echo begun; sleep $number",
        "echo begun; trap '' TERM; while :; do sleep $number; done",
        "echo begun; sleep $number & exit 0",
        "echo begun; sleep $number & wait",
    ],
    ids=["hangs", "ignores", "leaves a child", "waits for a child"],
)
def test_a_program_has_so_many_seconds_and_its_children_too(script: str) -> None:
    number = own_number()
    done = run(["sh", "-c", script], env={"number": number}, seconds=LIMIT, check=False)
    assert done == Completed(TIMED_OUT, "begun\n", "", late=True)
    assert not is_running(number)


def test_who_leaves_the_group_and_holds_the_streams_is_not_waited_for() -> None:
    begun = time.monotonic()
    done = run(["sh", "-c", "echo begun; setsid sleep 61 & exit 0"], seconds=LIMIT, check=False)
    assert (done.late, done.stdout) == (True, "begun\n")
    assert time.monotonic() - begun < 30


def test_a_program_in_time_is_not_late() -> None:
    done = run(["sh", "-c", f"exit {TIMED_OUT}"], seconds=60, check=False)
    assert done == Completed(TIMED_OUT, "", "", late=False)


def test_umask_is_ours(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        run(["touch", tmp_path / "x"])
    finally:
        os.umask(old)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o644


def test_stdin_is_closed_unless_given() -> None:
    assert run(["cat"]).stdout == ""
    assert run(["cat"], stdin=b"given").stdout == "given"


def test_a_long_line_keeps_the_name_at_its_end() -> None:
    script = f"echo 'error: corrupt {'x' * 1000} object 0123abcd.file' >&2; exit 1"
    with pytest.raises(WorkError) as caught:
        run(["sh", "-c", script])
    [said] = [line for line in str(caught.value).splitlines() if line.startswith("    error: corr")]
    assert said.endswith("x object 0123abcd.file")
    assert len(said) <= 404


def test_failure_shows_command_lines_and_log(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "step.log"
    script = "for n in $(seq 30); do echo line $n; done; exit 4"
    with pytest.raises(WorkError) as caught:
        run(["sh", "-c", script], log=log)
    text = str(caught.value)
    assert "sh failed (exit status 4)" in text
    assert "line 30" in text
    assert "line 10\n" not in text
    assert f"sh -c '{script}'" in text
    assert str(log) in text
    assert log.read_text().startswith("$ sh -c")
    assert "line 1\n" in log.read_text()


def test_killed_program_is_told_as_such() -> None:
    with pytest.raises(WorkError, match="killed by signal 9"):
        run(["sh", "-c", "kill -9 $$"])


def test_missing_tool_is_the_hosts_fault() -> None:
    with pytest.raises(HostError, match="no-such-tool is not installed") as caught:
        run(["no-such-tool"])
    assert caught.value.exit_code == 3


def test_lines_are_seen_as_they_come(tmp_path: Path) -> None:
    seen: list[str] = []
    run(["printf", "a\\nb"], log=tmp_path / "log", on_line=seen.append)
    assert seen == ["a", "b"]


def test_program_reading_nothing_of_its_input_is_judged_by_its_status(tmp_path: Path) -> None:
    assert run(["true"], stdin=b"x" * 1_000_000, log=tmp_path / "log").status == 0


def test_programs_die_with_us(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    code = (
        "from imagebuilder.process import run\n"
        f"run(['sh', '-c', 'echo $$ > {marker}; exec sleep 1000'])\n"
    )
    pid = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", code])
    wait_until(lambda: marker.exists() and marker.read_text().strip() != "", "did not start")
    child = int(marker.read_text())
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    wait_until(lambda: not Path(f"/proc/{child}").exists(), "the child lives on")


def test_a_program_that_may_be_ended_reads_its_stdin() -> None:
    assert run(["cat"], stdin=b"words", ask=lambda: None).stdout == "words"
    assert run(["cat"], ask=lambda: None).stdout == ""


@pytest.mark.parametrize("stream", ["", " >&2"])
def test_a_program_that_says_too_much_is_ended(stream: str) -> None:
    number = own_number()
    with pytest.raises(WorkError, match=r"yes 61\..* printed more than 1 MiB, and was stopped"):
        run(["sh", "-c", f"exec yes {number}{stream}"], most=1 << 20, check=False)
    assert not is_running(number)
    assert len(run(["head", "-c", "1000000", "/dev/zero"], most=1 << 20).stdout) == 1_000_000


def test_a_program_that_closes_its_streams_is_waited_for() -> None:
    begun = time.monotonic()
    done = run(["sh", "-c", "echo a; exec >&- 2>&-; sleep 0.5; exit 3"], check=False)
    assert (done.status, done.stdout) == (3, "a\n")
    assert time.monotonic() - begun >= 0.5
    assert run(["sh", "-c", "exec >&- 2>&-; sleep 60"], seconds=0.2, check=False).late
