# SPDX-License-Identifier: Apache-2.0
"""The program, in this process and in one of its own, on a small project."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from imagebuilder.cli.program import run as run_program
from imagebuilder.process import Completed

Program = Callable[..., Completed]
Complete = Callable[[str], list[str]]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with two profiles, and a state below it, which the program finds."""
    for name in ("recipes/bases", "recipes/locks", "overlays"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("generic", "grand"):
        (tmp_path / f"recipes/{name}.yaml").write_text(f"description: {name}\n")
    monkeypatch.setenv("IMAGEBUILDER_PROJECT", os.fspath(tmp_path))
    monkeypatch.setenv("IMAGEBUILDER_STATE", os.fspath(tmp_path / "state"))
    monkeypatch.setenv("IMAGEBUILDER_SITE", os.fspath(tmp_path / "site.yaml"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("PROFILE", raising=False)
    return tmp_path


@pytest.fixture
def program(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Program]:
    """`program(*words)`: its exit code and what it said."""
    del project

    def call(*words: str) -> Completed:
        monkeypatch.setattr(sys, "argv", ["imagebuilder", *words])
        status = run_program()
        return Completed(status, *capfd.readouterr())

    saved = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)}
    yield call
    for number, handler in saved.items():
        signal.signal(number, handler)


@pytest.fixture
def complete(program: Program, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """`complete(line)`: what the shell offers for its last word, which may be empty."""

    def call(line: str) -> list[str]:
        words = ["imagebuilder", *line.split(" ")]
        with monkeypatch.context() as given:
            given.setenv("_IMAGEBUILDER_COMPLETE", "complete_bash")
            given.setenv("COMP_WORDS", " ".join(words))
            given.setenv("COMP_CWORD", str(len(words) - 1))
            return program().stdout.split()

    return call


@pytest.fixture
def fake_ostree(project: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """`fake_ostree(script)`: a store with two images, whose `ostree` is this shell script."""

    def make(script: str) -> Path:
        images = project / "state/store/refs/heads/image/demo"
        images.mkdir(parents=True)
        (project / "state/store/config").write_text("[core]\nmode=bare\n")
        for name in ("tmp", "objects"):
            (project / "state/store" / name).mkdir()
        for number, digest in enumerate("ab"):
            ref = images / f"2026010{number}000000-{digest * 8}"
            ref.write_text(digest * 64)
            os.utime(ref, (number, number))
        tool = project / "bin/ostree"
        tool.parent.mkdir()
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
        return project / "state"

    return make
