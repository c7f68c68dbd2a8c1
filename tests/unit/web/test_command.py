# SPDX-License-Identifier: Apache-2.0
"""The command, where it cannot serve."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from imagebuilder.process import run
from tests.fleet_world import FleetWorld

pytestmark = pytest.mark.slow

# A program for which one package is not installed.
WITHOUT = """
import sys
sys.modules[sys.argv.pop(1)] = None
from imagebuilder.cli.main import main
main()
"""


@pytest.mark.parametrize("package", ["starlette", "uvicorn", "prometheus_client"])
def test_without_its_packages_it_says_what_to_install(world: FleetWorld, package: str) -> None:
    argv = [sys.executable, "-c", WITHOUT, package, "web", "--tree", str(world.tree.path)]
    done = run(argv, env={"HOME": os.fspath(world.reports)}, check=False)
    assert done.status == 3
    assert f"the web server needs {package}, which is not installed" in done.stderr
    assert "hint: run pip install 'imagebuilder[web]'" in done.stderr


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--listen", "0.0.0.0"], 2, "is every address"),
        (["--listen", "here"], 2, "is not ADDRESS:PORT"),
        (["--listen", "192.0.2.77"], 3, "cannot listen"),
        (["--tree", "/nonexistent"], 2, "the netboot tree does not exist"),
        (["--ask", "-1"], 2, "--ask"),
    ],
)
def test_what_cannot_be_served(
    world: FleetWorld, tmp_path: Path, words: list[str], status: int, said: str
) -> None:
    argv = [sys.executable, "-m", "imagebuilder.cli.main", "web"]
    env = {"HOME": os.fspath(tmp_path), "IMAGEBUILDER_TREE": os.fspath(world.tree.path)}
    done = run([*argv, *words], env=env, check=False)
    assert (done.status, said in done.stderr) == (status, True), done.stderr
