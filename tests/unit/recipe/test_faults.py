# SPDX-License-Identifier: Apache-2.0
"""Every fault that is known without a lock is in one report: the projects of faults.yaml.

`python -m tests.unit.recipe.test_faults` writes the messages anew; read what changed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import LiteralScalarString

from imagebuilder.recipe import (
    model,
    model_nightly,
    model_proof,
    model_sources,
    model_stages,
)
from imagebuilder.recipe.model_words import Model
from imagebuilder.recipe.validate import ALLOWED
from tests.unit.recipe.conftest import HERE, Project, make_project

FILE = HERE / "faults.yaml"
FORM = YAML()
FORM.width = 10_000
CASES: list[dict[str, Any]] = FORM.load(FILE)


def said(case: dict[str, Any], root: Path) -> str:
    """What is wrong with the project of a case, as the person reads it."""
    project = Project(make_project(root))
    project.write(case["files"])
    return f"{project.faults(case['profile'])}\n"


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["case"]))
def test_a_faulty_project_is_told_as_a_whole(case: dict[str, Any], tmp_path: Path) -> None:
    assert said(case, tmp_path / "project") == case["said"]


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 40
    together = next(case for case in CASES if case["case"] == "several at once, in every file")
    told = [line for line in together["said"].splitlines() if not line.startswith("  hint: ")]
    assert len(told) >= 12
    assert told == sorted(told, key=lambda line: line.split(":")[0])


def patterns(schema: object) -> Iterator[str]:
    """Every pattern in a JSON Schema."""
    inside: list[object] = []
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        yield from schema.get("patternProperties", {})
        inside = list(schema.values())
    elif isinstance(schema, list):
        inside = schema
    for each in inside:
        yield from patterns(each)


def test_every_pattern_of_a_model_is_a_rule_with_words() -> None:
    """A pattern without words would be shown to people as a regular expression."""
    found = {
        pattern
        for module in (model, model_nightly, model_proof, model_sources, model_stages)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Model)
        for pattern in patterns(kind.model_json_schema())
    }
    assert len(found) > 12
    assert found <= ALLOWED.keys()


def write_messages() -> None:
    """Fill in what each case leads to."""
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            case["said"] = LiteralScalarString(said(case, Path(folder) / "project"))
    with FILE.open("w") as stream:
        FORM.dump(CASES, stream)


if __name__ == "__main__":
    write_messages()
