# SPDX-License-Identifier: Apache-2.0
"""What runs on nodes and in roots runs on their Python: 3.9 on Enterprise Linux 9.

Syntax is what ast(3) knows of older versions; of the library, these are the names that were used
here and came later.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from imagebuilder.playbook import controller
from tests.unit.test_shipped_recipes import CHECKOUT, load, overlay

OLDEST, NEWER = (3, 9), (3, 11)
SHEBANG = re.compile(r"#!/usr/bin/python3 ")
SCRIPT = CHECKOUT / "overlays/compute-node/scripts/newer-python"
INSIDE = Path(controller.__file__).parent / "inside"
# Overlays that refuse Rocky Linux.
ELSEWHERE = ("llama-cpp", "vllm")
# Keywords of functions, and names, that Python got after 3.9.
KEYWORDS = {
    ("zip", "strict"),
    ("dataclass", "slots"),
    ("dataclass", "kw_only"),
    ("glob", "root_dir"),
}
NAMES = frozenset((
    "pairwise", "StrEnum", "UTC", "tomllib", "file_digest", "hardlink_to", "bit_count", "walk_up",
    "chdir", "aclosing", "batched", "ExceptionGroup", "assert_never", "Self", "TypeAlias",
    "ParamSpec", "is_junction", "add_note", "EncodingWarning", "anext", "aiter",
))  # fmt: skip


def programs() -> dict[Path, tuple[int, int]]:
    """Every Python program of the overlays and of playbooks in a root, and the oldest Python."""
    found = {path: OLDEST for path in INSIDE.glob("*.py")}
    newer = SCRIPT.read_text().split("sed -i")[1].split()
    for path in sorted(CHECKOUT.glob("overlays/*/files/**/*")):
        if path.relative_to(CHECKOUT).parts[1] in ELSEWHERE or not path.is_file():
            continue
        if SHEBANG.match(path.read_bytes()[:60].decode(errors="replace")):
            found[path] = NEWER if path.name in newer else OLDEST
    return found


def too_new(text: str, version: tuple[int, int]) -> Iterator[str]:
    """What of a program an older Python does not have."""
    try:
        tree = ast.parse(text, feature_version=version)
    except SyntaxError as error:
        yield str(error.msg)
        return
    if version >= NEWER:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            yield from (f"{name}({k.arg}=)" for k in node.keywords if (name, k.arg) in KEYWORDS)
            if name in ("isinstance", "issubclass") and isinstance(node.args[-1], ast.BinOp):
                yield f"{name}(A | B)"
        elif isinstance(node, ast.Attribute) and node.attr in NAMES:
            yield node.attr
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.name for alias in node.names if alias.name in NAMES)


@pytest.mark.parametrize(("path", "version"), programs().items(), ids=lambda each: str(each)[-40:])
def test_a_program_runs_on_the_oldest_python(path: Path, version: tuple[int, int]) -> None:
    assert list(too_new(path.read_text(), version)) == []


def test_there_are_programs() -> None:
    names = {path.name for path in programs()}
    assert {"shim.py", "prepare.py", "health", "health-check", "alive-nvidia"} <= names


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("match a:\n case 1: pass", "Pattern matching is only supported in Python 3.10"),
        ("zip(a, b, strict=True)", "zip(strict=)"),
        ("isinstance(a, int | str)", "isinstance(A | B)"),
        ("from itertools import pairwise", "pairwise"),
        ("hashlib.file_digest(a)", "file_digest"),
    ],
)
def test_what_is_too_new_is_found(text: str, said: str) -> None:
    assert [found for found in too_new(text, OLDEST) if found.startswith(said)]


def test_the_health_checks_get_a_newer_python(tmp_path: Path) -> None:
    """The script of Rocky Linux, in a folder that stands for the root."""
    folder = tmp_path / "usr/lib/imagebuilder"
    shutil.copytree(CHECKOUT / "overlays/compute-node/files/usr/lib/imagebuilder", folder)
    newer = tmp_path / "python3.11"
    newer.symlink_to(sys.executable)
    text = SCRIPT.read_text().replace("cd /usr", f"cd {tmp_path}/usr")
    text = text.replace("newer=/usr/bin", f"newer={tmp_path}")
    subprocess.run(["sh", "-c", text], check=True)
    for name in ("health", "health-check"):
        first = (folder / name).read_text().splitlines()[0]
        assert first == f"#!{newer} -IS"
        assert (folder / name).stat().st_mode & 0o111
    assert (folder / "health.d/alive-driver").read_text().startswith("#!/bin/sh\n")


def test_only_rocky_linux_changes_them(tmp_path: Path) -> None:
    rocky = overlay(load("minimal.rocky-9", tmp_path), "compute-node")
    assert [script.name for script in rocky.scripts] == ["scripts/newer-python"]
    assert "python3.11" in rocky.packages
    debian = overlay(load("minimal", tmp_path), "compute-node")
    assert (debian.scripts, debian.packages) == ((), ("python3", "sudo"))
