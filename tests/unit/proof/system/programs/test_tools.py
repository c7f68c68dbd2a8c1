# SPDX-License-Identifier: Apache-2.0
"""Variables that name programs, and Python without docstrings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from imagebuilder.families.shipped import ShippedFile
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system.programs.extras import prove_docstrings, prove_tools
from imagebuilder.recipe.expectations import Expectations, ExpectedEngine
from tests.unit.proof.trees import Content, Program, make_tree, running, subject, warnings

UNIT, PROFILE = "/etc/systemd/system/a.service", "/etc/profile.d/site.sh"
SITE = "/opt/a/lib/python3.13/site-packages"
FILES: Mapping[str, Content] = {
    UNIT: "[Service]\n",
    "/usr/bin/gcc": Program(),
    "/opt/there/cc": Program(),
    "/etc/fstab": "LABEL=m /models ext4 nofail 0 2\n",
    f"{SITE}/torch/__init__.py": "",
}


def about(tree: Path, files: Mapping[str, Content], *, engine: str = "") -> Subject:
    expected = Expectations(engines=(ExpectedEngine(engine, unit="a.service"),) if engine else ())
    found = subject(make_tree(tree, {**FILES, **files}), expectations=expected)
    found.__dict__["shipped"] = {}
    return found


def starting(*words: str, environment: str = "") -> Startup:
    loaded = {"Unit Load State": ("loaded",), "Environment": tuple(environment.split("|"))}
    unit = LoadedUnit("a.service", (UNIT,), loaded, {"ExecStart": (words,)})
    return Startup(frozenset(("a.service",)), {}, {"a.service": unit}, ())


@pytest.mark.parametrize(
    ("environment", "count"),
    [
        ("CC=x86_64-conda-linux-gnu-cc", 1),
        ("CC=x86_64-conda-linux-gnu-cc|CXX=x86_64-conda-linux-gnu-c++", 2),
        ("TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas", 1),
        ("PAGER=most -s", 1),
        ("CC=gcc", 0),
        ("CC=gcc -pthread", 0),
        ("CC=/usr/bin/gcc", 0),
        ("CC=cc|PATH=/opt/there:/usr/bin", 0),
        ("CC=cc", 1),
        # A disk has it, or nobody knows.
        ("CC=/models/conda/bin/cc", 0),
        ("CC=cc|PATH=/models/conda/bin:/usr/bin", 0),
        ("CC=$CONDA/bin/cc", 0),
        ("CC=", 0),
        ("ACC=gone", 0),
    ],
)
def test_variables_that_name_a_program(environment: str, count: int, tmp_path: Path) -> None:
    found = warnings(
        prove_tools(running(about(tmp_path, {}), starting("/x", environment=environment)))
    )
    assert len(found) == count
    assert all("of a.service names a program that is not in the image" in what for what in found)


def test_variables_of_logins_and_of_packages(tmp_path: Path) -> None:
    given = about(tmp_path, {PROFILE: "export EDITOR=emacs\n"})
    (found,) = warnings(prove_tools(running(given, starting("/x"))))
    assert found.startswith("EDITOR=emacs of everybody who logs in names a program")
    given.__dict__["shipped"] = {PROFILE: ShippedFile("a")}
    assert warnings(prove_tools(running(given, starting("/x")))) == []


@pytest.mark.parametrize(
    ("line", "environment", "engine", "count"),
    [
        ("/opt/a/bin/python serve.py", "PYTHONOPTIMIZE=2", "", 1),
        ("/opt/a/bin/python -OO serve.py", "", "", 1),
        ("/opt/a/bin/python3.13 -u -O -O serve.py", "", "", 1),
        ("/usr/libexec/serve", "PYTHONOPTIMIZE=2", "vllm", 1),
        ("/usr/libexec/serve", "PYTHONOPTIMIZE=2", "llama.cpp", 0),
        # Assertions only.
        ("/opt/a/bin/python serve.py", "PYTHONOPTIMIZE=1", "", 0),
        ("/opt/a/bin/python serve.py", "PYTHONOPTIMIZE=yes", "", 0),
        ("/opt/a/bin/python serve.py", "PYTHONOPTIMIZE=", "", 0),
        ("/opt/a/bin/python -O serve.py -OO", "", "", 0),
        ("/opt/a/bin/python -I serve.py", "PYTHONOPTIMIZE=2", "", 0),
        # Without a package that is known for it.
        ("/usr/bin/python3 serve.py", "PYTHONOPTIMIZE=2", "", 0),
        ("/opt/b/bin/python serve.py", "PYTHONOPTIMIZE=2", "", 0),
    ],
)
def test_python_without_docstrings(
    line: str, environment: str, engine: str, count: int, tmp_path: Path
) -> None:
    startup = starting(*line.split(), environment=environment)
    found = warnings(prove_docstrings(running(about(tmp_path, {}, engine=engine), startup)))
    assert ["removes docstrings, and a.service does not start" in what for what in found] == (
        [True] * count
    )
