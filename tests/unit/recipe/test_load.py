# SPDX-License-Identifier: Apache-2.0
"""What a case in a folder cannot say about load_recipe."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from imagebuilder.digest import canonical_json
from imagebuilder.errors import Fault, InputError
from imagebuilder.recipe.keys import find_fingerprints
from imagebuilder.recipe.load import load_recipe, sorted_faults
from tests.unit.recipe.conftest import HERE, Project

VENDOR = HERE / "cases" / "good" / "overlays" / "a" / "keys" / "vendor.asc"


def test_an_unknown_profile(project: Project) -> None:
    project.write({"recipes/rx7600xt.yaml": "base: debian-trixie\n"})
    with pytest.raises(InputError) as caught:
        load_recipe("rx7600", project.settings, env={"HOME": "/nonexistent"})
    assert str(caught.value) == (
        'recipes: no profile named "rx7600"\n  hint: did you mean "rx7600xt"?'
    )
    assert caught.value.exit_code == 2
    for name in ("../recipes/rx7600xt", "", "a/b", "x\n"):
        with pytest.raises(InputError, match="no profile named"):
            load_recipe(name, project.settings, env={"HOME": "/nonexistent"})


def test_vars_are_json(project: Project) -> None:
    project.write(
        {
            "recipes/p.yaml": "base: debian-trixie\noverlays: [a]\n",
            "overlays/a/overlay.yaml": "description: An overlay of the tests\n"
            "vars: {names: {type: list, default: [a], description: Names}}\n",
        }
    )
    assert canonical_json(project.load().vars) == b'{"names":["a"]}'


def test_faults_are_in_the_order_of_files_and_lines() -> None:
    places = ["b:10:1", "a", "b:9:20", "b:9:3", "a:2", "b:9:3"]
    faults = sorted_faults(Fault(where, "x") for where in places)
    assert [fault.where for fault in faults] == ["a", "a:2", "b:9:3", "b:9:20", "b:10:1"]


def test_fingerprints_are_those_of_primary_keys(tmp_path: Path) -> None:
    assert find_fingerprints(VENDOR) == ("45E3916716342DFF638846C90EC84E63A40B801C",)
    (tmp_path / "-odd name").write_bytes(VENDOR.read_bytes())
    assert find_fingerprints(tmp_path / "-odd name") == find_fingerprints(VENDOR)
    cut = tmp_path / "cut.asc"
    cut.write_bytes(VENDOR.read_bytes()[:200])
    assert find_fingerprints(cut) == ()


def test_an_unreadable_folder_is_no_traceback(project: Project) -> None:
    project.write({"recipes/p.yaml": "base: debian-trixie\n"})
    project.write({"site.yaml/x": ""})
    assert project.faults() == "site.yaml: is not a file"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_files_of_other_overlays_need_not_be_files(
    project: Project, make: Callable[[Path], None]
) -> None:
    project.write(
        {
            "recipes/p.yaml": "base: debian-trixie\n",
            "site.yaml": "vars: {elsewhere: 1, nowhere: 2}\n",
            "overlays/a/overlay.yaml": "vars: {elsewhere: {type: integer}}\n",
            "overlays/odd/files/x": "",
        }
    )
    make(project.root / "overlays/odd/overlay.yaml")
    assert project.faults() == "site.yaml:1:31: vars.nowhere: no overlay declares this var"


def test_a_check_that_is_no_file(project: Project) -> None:
    project.write(
        {
            "recipes/p.yaml": "base: debian-trixie\noverlays: [a]\n",
            "overlays/a/overlay.yaml": "description: An overlay of the tests\n",
            "overlays/a/checks/test_a.py": "pass\n",
        }
    )
    project.load()
    check = project.root / "overlays/a/checks/test_b.py"
    os.mkfifo(check)
    assert project.faults() == "overlays/a/checks/test_b.py: cannot be read: Is not a file"
