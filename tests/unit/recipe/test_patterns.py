# SPDX-License-Identifier: Apache-2.0
"""Patterns of vars: those that cannot be compiled, and those that never come to an end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from imagebuilder.errors import InputError
from imagebuilder.recipe import patterns
from imagebuilder.recipe.patterns import MOST_WAYS, pattern_problem, ways
from tests.unit.recipe.conftest import Project, make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(make_project(tmp_path, None))
    recipe = "description: d\nbase: debian-trixie\noverlays: [own]\n"
    made.write({"recipes/p.yaml": recipe})
    return made


def declare(project: Project, pattern: str, default: str) -> None:
    var = {
        "type": "string",
        "description": "a var of tests",
        "pattern": pattern,
        "default": default,
    }
    project.write(
        {
            "overlays/own/overlay.yaml": json.dumps(
                {"description": "an overlay of tests", "vars": {"v": var}}
            )
        }
    )


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("a{99999999999}", "the repetition number is too large"),
        ("(" * 3000 + "a" + ")" * 3000, "it is too large"),
        ("(", "missing ), unterminated subpattern at position 0"),
    ],
    ids=lambda text: text[:20],
)
def test_what_is_no_regular_expression(project: Project, pattern: str, why: str) -> None:
    declare(project, pattern, "a")
    with pytest.raises(InputError) as caught:
        project.load()
    [fault] = caught.value.faults
    assert fault.where.startswith("overlays/own/overlay.yaml:1:")
    assert fault.what == f"vars.v.pattern: is not a regular expression: {why}"


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*$", "a?" * 40 + "a" * 40])
def test_a_pattern_without_end(
    project: Project, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    monkeypatch.setattr(patterns, "CPU_SECONDS", 1)
    pattern_problem.cache_clear()
    declare(project, pattern, "a" * 39 + "!")
    with pytest.raises(InputError, match=r"took more than 1 s of processor time, and was stopped"):
        project.load()


@pytest.mark.parametrize("pattern", ["[a-z]+", "([a-z]+)+"])
def test_the_first_value_that_does_not_match(pattern: str) -> None:
    assert pattern_problem(pattern, ("a", "b")) == ""
    assert pattern_problem(pattern, ("a", "1", "2")) == f'"1" does not match {pattern}'


@pytest.mark.parametrize(
    ("pattern", "few"),
    [
        ("[a-z]+", True), ("a{1,3}", True), (r"\+\*[*+?]+", True), ("[]*]+[^]+]", True),
        ("auto|all|[0-9]+", True), ("(?i)a+", True), ("(?:a)b", True), (r"\(a\)+", True),
        ("a+b+", True), ("(?:a|b){9}", True), ("a?a?", True), ("a{2}", True), ("a{,9}", True),
        ("[0-9]+[.][0-9]+([.][0-9]+)?", True), ("([0-9]{1,3}([.][0-9]{1,3}){3})?", True),
        ("(a)+", False), ("(a){2,}", False), ("(a+){8}", False), ("(a|a){25}", False),
        ("a?" * 30, False), ("a*" * 8, False), ("a{0,30}" * 8, False), ("(a|b)*", False),
        ("a+b{999999}", True), ("a{1,99999999999}" * 8, False),
    ],
)  # fmt: skip
def test_what_is_matched_at_once(pattern: str, few: bool) -> None:  # noqa: FBT001
    assert (ways(pattern, 20) <= MOST_WAYS) is few
