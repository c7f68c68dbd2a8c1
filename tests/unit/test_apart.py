# SPDX-License-Identifier: Apache-2.0
"""Work in a process of its own: what comes back, and how it ends."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from imagebuilder.apart import run_apart
from imagebuilder.errors import InputError, WorkError

Tell = Callable[[str], None]

# Takes minutes, without giving up the interpreter.
ENDLESS = "import re; re.match('(a*)*b', 'a' * 40)"


def test_the_result_and_the_news_come_back() -> None:
    here, heard = os.getpid(), list[str]()

    def work(tell: Tell) -> int:
        tell("first")
        tell("second")
        return os.getpid()

    assert run_apart("the work", work, heard.append) != here
    assert heard == ["first", "second"]


def test_an_error_comes_back_whole() -> None:
    def work(_: Tell) -> None:
        raise InputError("is wrong", where="a.yaml:3", hint="correct it")

    with pytest.raises(InputError) as raised:
        run_apart("the work", work)
    assert str(raised.value) == "a.yaml:3: is wrong\n  hint: correct it"


def test_an_error_of_the_system_keeps_its_number() -> None:
    with pytest.raises(FileNotFoundError) as raised:
        run_apart("the work", lambda _: Path("/nonexistent").read_bytes())
    assert raised.value.filename == "/nonexistent"


def test_what_never_ends_is_ended() -> None:
    with pytest.raises(WorkError, match="the work took more than 1 s of processor time"):
        run_apart("the work", lambda _: re.match("(a*)*b", "a" * 40), cpu_seconds=1)


def test_what_takes_all_memory_is_ended() -> None:
    def work(_: Tell) -> int:
        taken = [bytes(1 << 20)]
        while len(taken) < 4096:
            taken.append(bytes(1 << 20))
        return len(taken)

    with pytest.raises(
        WorkError, match="the work took more than 512 MiB of memory, and was stopped"
    ):
        run_apart("the work", work, memory=512 << 20)


def test_a_parser_that_fails_takes_only_its_process_with_it() -> None:
    def work(_: Tell) -> bytes:
        faulthandler.disable()  # which pytest turns on
        return ctypes.string_at(0)

    with pytest.raises(WorkError, match="the work ended unexpectedly: Segmentation fault"):
        run_apart("the work", work)


def test_a_defect_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    def work(_: Tell) -> None:
        raise KeyError("a defect")

    with pytest.raises(WorkError, match="the work ended unexpectedly: exit status 1"):
        run_apart("the work", work)
    assert "KeyError: 'a defect'" in capfd.readouterr().err


PROGRAM = f"""
import os, sys
from imagebuilder.apart import run_apart
def work(tell):
    tell(os.getpid())
    {ENDLESS}
run_apart("the work", work, lambda pid: print(pid, flush=True))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_it_ends_with_whoever_waits(number: signal.Signals) -> None:
    argv = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    ) as process:
        assert process.stdout
        apart = Path("/proc") / process.stdout.readline().strip()
        assert apart.exists()
        process.send_signal(number)
        assert process.wait(30) != 0
    for _ in range(100):
        if not apart.exists():
            return
        time.sleep(0.1)
    pytest.fail("the process is still there")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_without_a_word(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    """An exception in the middle of a lock's work came out as another one, and as a traceback."""

    def work(tell: Callable[[int], None]) -> None:
        tell(os.getpid())
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            raise RuntimeError("release unlocked lock") from None

    with pytest.raises(WorkError, match="the work ended unexpectedly"):
        run_apart("the work", work, lambda pid: os.kill(pid, number))
    assert capfd.readouterr().err == ""
