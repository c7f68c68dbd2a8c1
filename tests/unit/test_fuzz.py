# SPDX-License-Identifier: Apache-2.0
"""A sample of the fuzzer; the whole is `make fuzz`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz import run
from tests.fuzz.run import Watch, case_of, run_case, run_cases, scratch
from tests.fuzz.targets import TARGETS, Target
from tests.sampling import times


@pytest.mark.parametrize("name", TARGETS)
def test_no_file_does_more_than_be_refused(name: str) -> None:
    result = run_cases(name, range(times(6, 900)), seed=1)
    assert result.violations == []
    assert result.begins


def test_a_case_is_the_same_again() -> None:
    assert case_of("lock", 1, 5) == case_of("lock", 1, 5)
    assert case_of("lock", 1, 5) != case_of("lock", 1, 6)


def crash(content: bytes) -> None:
    raise KeyError(content)


def spin(content: bytes) -> None:
    begun = run.used()
    while run.used() - begun < 0.2:
        len(content)


def touch(content: bytes) -> None:
    (Path(os.environ["FUZZ_OUTSIDE"]) / "x").write_bytes(content)


@pytest.mark.parametrize(
    ("load", "what"), [(crash, "KeyError"), (spin, "took 0."), (touch, "touched: open /")]
)
def test_the_fuzzer_finds_what_is_planted(
    load: Callable[[bytes], None], what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FUZZ_OUTSIDE", str(tmp_path))
    monkeypatch.setattr(run, "MAX_SECONDS", 0.1)
    monkeypatch.setitem(TARGETS, "planted", Target((b"{}",), lambda _: load))
    said: list[str] = []
    result = run_cases("planted", range(2), 1, said.append)
    assert len(result.violations) == 2
    assert all(what in violation for violation in said)


def test_removing_below_an_open_folder_is_told_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b").touch()
    with scratch() as watch:
        assert isinstance(watch, Watch)
        folder = os.open(tmp_path / "a", os.O_RDONLY)
        watch.active = True
        os.unlink("b", dir_fd=folder)
        watch.active = False
        os.close(folder)
        assert watch.touched == [f"os.remove {tmp_path / 'a/b'}"]


def test_an_error_that_cannot_be_printed_is_a_violation() -> None:
    from imagebuilder.errors import InputError

    def refuse(content: bytes) -> None:
        raise InputError("\ud800", where=str(content))

    assert "cannot be printed" in run_case(refuse, b"")[1]
