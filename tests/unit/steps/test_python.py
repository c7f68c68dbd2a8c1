# SPDX-License-Identifier: Apache-2.0
"""The script that installs wheels, with the real uv."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from imagebuilder.files import read_text
from imagebuilder.steps.python import INSTALL, find_uv

pytestmark = pytest.mark.slow

NAMES = ("aaa", "bbb", "ccc")


def make_wheel(folder: Path, name: str) -> str:
    """A wheel with a module and a program that others have too; its line of requirements."""
    path, info = folder / f"{name}-1.0-py3-none-any.whl", f"{name}-1.0.dist-info"
    files = {
        "shared/__init__.py": f"brought_by = {name!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\ntool = {name}:main\n",
    }
    record = "".join(f"{target},,\n" for target in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for target, content in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(zipfile.ZipInfo(target), content)
    return f"{name}==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


def install(wheels: Path, environment: Path, cache: Path) -> None:
    places = map(str, (find_uv(), wheels, environment, sys.executable))
    words = ["sh", "-c", INSTALL, "sh", *places]
    env = {
        "PATH": os.defpath, "UV_CACHE_DIR": os.fspath(cache), "UV_OFFLINE": "1",
        "UV_NO_CONFIG": "1", "UV_PYTHON_DOWNLOADS": "never",
        "PYC_INVALIDATION_MODE": "UNCHECKED_HASH",
    }  # fmt: skip
    subprocess.run(words, check=True, capture_output=True, env=env)


def test_of_wheels_with_the_same_file_the_last_one_wins_each_time(tmp_path: Path) -> None:
    """The bug: uv installs wheels in another order each time, so one lock gave several layers."""
    wheels, environment = tmp_path / "wheels", tmp_path / "v"
    wheels.mkdir()
    lines = [make_wheel(wheels, name) for name in NAMES]
    (wheels / "requirements.txt").write_text("".join(lines))
    found = []
    for _ in range(4):
        install(wheels, environment, tmp_path / "cache")
        (shared,) = environment.glob("lib/python*/site-packages/shared")
        assert read_text(shared / "__init__.py") == "brought_by = 'ccc'\n"
        (compiled,) = shared.glob("__pycache__/*.pyc")
        assert b"ccc" in compiled.read_bytes()
        assert "from ccc import main" in read_text(environment / "bin/tool")
        files = (path for path in environment.rglob("*") if path.is_file())
        found.append({path: path.read_bytes() for path in files})
        shutil.rmtree(environment)
    assert all(each == found[0] for each in found)


def test_a_wheel_that_differs_from_the_lock_fails_the_step(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    first, second = (make_wheel(wheels, name) for name in NAMES[:2])
    (wheels / "requirements.txt").write_text(first[:-5] + "0000\n" + second)
    with pytest.raises(subprocess.CalledProcessError):
        install(wheels, tmp_path / "v", tmp_path / "cache")
