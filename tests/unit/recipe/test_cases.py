# SPDX-License-Identifier: Apache-2.0
"""Golden cases: each folder of cases/ is a small project and what its profile `p` must lead to.

`expected-errors.txt` is what the person reads, `expected.json` the resolved recipe.
`python -m tests.unit.recipe.test_cases` writes them all again; read what it changed.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path

import pytest

from imagebuilder.errors import InputError
from imagebuilder.recipe.types import Recipe
from tests.unit.recipe.conftest import HERE, Project, make_project

CASES = sorted(path for path in (HERE / "cases").iterdir() if path.is_dir())


def outcome(case: Path, root: Path) -> tuple[str, str]:
    """The name of the file that a case must have, and what must be in it."""
    project = Project(make_project(root, case))
    try:
        return "expected.json", recipe_text(project.load(), root)
    except InputError as error:
        return "expected-errors.txt", f"{error}\n".replace(f"{root}/", "")


def recipe_text(recipe: Recipe, root: Path) -> str:
    """The recipe as JSON, its paths relative to the project."""

    def plain(value: object) -> str:
        return value.decode() if isinstance(value, bytes) else str(value).replace(f"{root}/", "")

    return json.dumps(dataclasses.asdict(recipe), indent=1, default=plain) + "\n"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Path, tmp_path: Path) -> None:
    name, text = outcome(case, tmp_path / "project")
    assert (case / name).is_file(), text
    assert text == (case / name).read_text(), f"python -m {__name__} writes {name} again"


def test_there_are_enough_cases_of_either_kind() -> None:
    kinds = [name for case in CASES for name in ("expected.json", "expected-errors.txt")
             if (case / name).is_file()]  # fmt: skip
    assert len(kinds) == len(CASES)
    assert kinds.count("expected-errors.txt") >= 30
    assert kinds.count("expected.json") >= 3


def make_expected() -> None:
    """Write what each case leads to."""
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            name, text = outcome(case, Path(folder) / "project")
        for old in case.glob("expected*"):
            old.unlink()
        (case / name).write_text(text)


if __name__ == "__main__":
    make_expected()
