# SPDX-License-Identifier: Apache-2.0
"""The program's way with streams and signals, as a process of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from imagebuilder.process import Completed, run

pytestmark = pytest.mark.slow

NAMES = (
    "IMAGEBUILDER_PROJECT", "IMAGEBUILDER_STATE", "IMAGEBUILDER_SITE", "PATH",
)  # fmt: skip


def shell(script: str, *words: str, **env: str) -> Completed:
    """Run a shell script whose "$@" is the program with `words`."""
    argv = ["sh", "-c", script, "sh", sys.executable, "-m", "imagebuilder.cli.main", *words]
    return run(argv, env={**{name: os.environ[name] for name in NAMES}, **env}, check=False)


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("script", "status"),
    [
        ('"$@" | true', 0),
        ('{ "$@" || echo "status $?" >&2; } | true', 0),
        ('"$@" >&-', 0),
        ('"$@" <&- >&- 2>&-', 0),
        ('"$@" > /dev/full', 1),
    ],
)
def test_nobody_listens(script: str, status: int) -> None:
    done = shell(script, "profiles")
    assert done.status == status
    told = "error: standard output: could not write the result: No space left on device\n"
    assert done.stderr == (told if status else "")


@pytest.mark.usefixtures("project")
def test_help_to_nobody() -> None:
    assert shell('"$@" | true', "--help").stderr == ""
    assert shell('"$@" >&-', "--help").stderr == ""


@pytest.mark.parametrize("signal", ["INT", "TERM", "HUP"])
def test_stopped(fake_ostree: Callable[[str], Path], signal: str) -> None:
    """A program that stops us while we wait for it, which is what Ctrl-C looks like."""
    fake_ostree(f"kill -s {signal} $PPID; sleep 5")
    done = shell('exec "$@"', "show", "demo")
    assert (done.status, done.stdout, done.stderr) == (130, "", "interrupted\n")


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("signal", ["INT", "TERM", "HUP"])
@pytest.mark.parametrize(
    ("module", "lines"),
    [
        ("typer", "{}"),
        ("typer", "try:\n    {}\nexcept BaseException:\n    pass\nfrom time import *\nsleep(20)"),
        ("sitecustomize", "import atexit\natexit.register(lambda: {})"),
    ],
    ids=["while it loads", "while it loads, swallowed", "while it ends"],
)
def test_stopped_before_and_after_the_command(
    tmp_path: Path, signal: str, module: str, lines: str
) -> None:
    """Nothing has begun, or all is done: there is nothing to say."""
    kill = f"os.kill(os.getpid(), signal.SIG{signal})"
    text = f"import os, signal\n{lines.format(kill)}\n"
    (tmp_path / f"{module}.py").write_text(text, encoding="utf-8")
    done = shell('exec "$@"', "--version", PYTHONPATH=str(tmp_path))
    assert (done.status, done.stderr) == (130, "")


@pytest.mark.usefixtures("project")
def test_interrupt_that_is_to_be_ignored(tmp_path: Path) -> None:
    """Shells start commands in the background like that."""
    text = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    (tmp_path / "sitecustomize.py").write_text(text, encoding="utf-8")
    done = shell('trap "" INT; exec "$@"', "profiles", PYTHONPATH=str(tmp_path))
    assert (done.status, done.stderr) == (0, "")


def test_hangup_that_is_to_be_ignored(fake_ostree: Callable[[str], Path]) -> None:
    fake_ostree("kill -s HUP $PPID; echo after >&2; exit 1")
    done = shell('trap "" HUP; exec "$@"', "show", "demo")
    assert done.status == 1
    assert "after" in done.stderr


@pytest.mark.usefixtures("project")
def test_completion_speaks_to_the_shell() -> None:
    for words, wanted in (("imagebuilder bu", "build"), ("imagebuilder build gr", "grand")):
        done = shell(
            '"$@"', _IMAGEBUILDER_COMPLETE="complete_bash", COMP_WORDS=words,
            COMP_CWORD=str(words.count(" ")),
        )  # fmt: skip
        assert done.stdout.split() == [wanted]
