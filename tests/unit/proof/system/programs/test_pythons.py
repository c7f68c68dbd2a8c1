# SPDX-License-Identifier: Apache-2.0
"""Python scripts of a site, read by an interpreter and not run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from imagebuilder.image.proof import Level
from imagebuilder.process import Completed, run
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system.programs.syntax import (
    MOST_ARGUMENT,
    PythonScript,
    prove_python_scripts,
)
from tests.unit.proof.trees import Sandbox, subject

SAID = "node-readings, which a.service starts (ExecStart=),"


def on_host(argv: Sequence[str], *, seconds: int = 60) -> Completed:
    assert seconds
    return run(list(argv), check=False)


def told(
    folder: Path, text: str, *, matters: bool = True, python_path: str = "", given: str = ""
) -> list[tuple[Level, str]]:
    path = folder / "readings"
    path.write_text(text)
    script = PythonScript(str(path), given, SAID, (sys.executable,), python_path, matters)
    asked: Subject = subject(folder, run=on_host)
    return [(each.level, each.what) for each in prove_python_scripts(asked, [script])]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("import os\nfrom gone_module.version import X\n", "ends at line 2: PY has no module gone"),
        ("import os, gone_module\n", "ends at line 1: PY has no module gone_module"),
        ("import os\nprint 'x'\n", "cannot run: line 2 is not valid for PY (Missing parenthe"),
        ("import os.path, json.decoder\n", ""),
        ("try:\n    import gone_module\nexcept ImportError:\n    pass\n", ""),
        ("def f():\n    import gone_module\n", ""),
        ("import sys\nsys.path.insert(0, '/opt/more')\nimport gone_module\n", ""),
        ("import beside\nimport gone_module\n", ""),
        ("from . import gone_module\n", ""),
        ("raise SystemExit('it was run')\n", ""),
        ("", ""),
    ],
)
def test_what_an_interpreter_says_of_a_script(text: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("")
    found = told(tmp_path, text)
    if not what:
        assert found == []
        return
    ((level, said),) = found
    assert level is Level.FAULT
    assert said.startswith(f"{SAID} {what.replace('PY', sys.executable)}")


def test_modules_of_the_services_own_search_path(tmp_path: Path) -> None:
    more = tmp_path / "more"
    more.mkdir()
    (more / "gone_module.py").write_text("")
    assert told(tmp_path, "import gone_module\n")
    assert told(tmp_path, "import gone_module\n", python_path=str(more)) == []


def test_a_text_is_read_in_the_place_of_its_file(tmp_path: Path) -> None:
    assert told(tmp_path, "import gone_module\n", given="import os") == []
    ((level, _),) = told(tmp_path, "", given="import gone_module", matters=False)
    assert level is Level.WARNING


def test_more_scripts_than_one_argument_takes(tmp_path: Path) -> None:
    def script(text: str) -> PythonScript:
        return PythonScript("/x", text, SAID, (sys.executable,), "", matters=True)

    padding = f"#{'x' * (MOST_ARGUMENT // 3)}\n"
    scripts = [script(f"{padding}import gone_{number}\n") for number in range(7)]
    asked = subject(tmp_path, run=on_host)
    found = [each.what for each in prove_python_scripts(asked, [script(padding * 4), *scripts])]
    assert [what.rpartition(" ")[2] for what in found] == [f"gone_{number}" for number in range(7)]


def test_an_interpreter_that_is_missing_says_nothing(tmp_path: Path) -> None:
    asked = subject(tmp_path, run=Sandbox())
    script = PythonScript("/x", "", SAID, ("/usr/bin/python3",), "", matters=True)
    assert list(prove_python_scripts(asked, [script])) == []
