# SPDX-License-Identifier: Apache-2.0
"""Bytecode that depends on no modification time (PEP 552)."""

from __future__ import annotations

import os
import py_compile
import sys
from pathlib import Path
from py_compile import PycInvalidationMode

from imagebuilder.process import run
from imagebuilder.steps.bytecode import uncheck


def make_pyc(folder: Path, mode: PycInvalidationMode) -> Path:
    """A module and its bytecode."""
    source = folder / "module.py"
    source.write_text("ANSWER = 42\n")
    made = py_compile.compile(os.fspath(source), invalidation_mode=mode, doraise=True)
    assert made is not None
    return Path(made)


def test_checked_becomes_unchecked_and_is_believed(tmp_path: Path) -> None:
    pyc = make_pyc(tmp_path, PycInvalidationMode.CHECKED_HASH)
    assert uncheck(tmp_path) == []
    assert pyc.read_bytes()[4:8] == b"\x01\x00\x00\x00"
    # The interpreter takes it although the source says otherwise now: nothing is compared.
    (tmp_path / "module.py").write_text("ANSWER = 0\n")
    os.utime(tmp_path / "module.py", (0, 0))
    said = run([sys.executable, "-c", "import module; print(module.ANSWER)"], cwd=tmp_path)
    assert said.stdout == "42\n"


def test_bytecode_that_goes_by_time_is_told(tmp_path: Path) -> None:
    pyc = make_pyc(tmp_path, PycInvalidationMode.TIMESTAMP)
    assert uncheck(tmp_path) == [pyc.relative_to(tmp_path)]


def test_links_and_other_files_are_left_alone(tmp_path: Path) -> None:
    outside = tmp_path / "outside.pyc"
    outside.write_bytes(b"abcd\x03\x00\x00\x00rest")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "link.pyc").symlink_to(outside)
    (tree / "data").write_bytes(b"abcd\x03\x00\x00\x00rest")
    assert uncheck(tree) == []
    assert outside.read_bytes()[4:8] == b"\x03\x00\x00\x00"
