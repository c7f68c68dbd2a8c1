# SPDX-License-Identifier: Apache-2.0
"""The list of profiles bears with broken ones."""

from __future__ import annotations

from imagebuilder.recipe.find import ProfileSummary, find_profiles
from tests.unit.recipe.conftest import Project


def test_profiles(project: Project) -> None:
    project.write(
        {
            "overlays/a/overlay.yaml": "not: read\n",
            "recipes/child.yaml": "description: A child\nextends: good\noverlays: [b]\n",
            "recipes/good.yaml": "description: Good\nbase: debian-trixie\noverlays: [a]\n"
            "hardware: [{pci: '1002:7480', name: Radeon}]\n",
            "recipes/orphan.yaml": "extends: nobody\n",
            "recipes/syntax.yaml": "a: [\n",
            "recipes/baseless.yaml": "description: Baseless\n",
            "recipes/based.yaml": "base: debian\n",
        }
    )
    summaries = {summary.name: summary for summary in find_profiles(project.settings)}
    assert list(summaries) == ["based", "baseless", "child", "good", "orphan", "syntax"]
    assert summaries["good"] == ProfileSummary(
        "good", "Good", "debian-trixie", ("a",), ("Radeon",), "project"
    )
    assert summaries["child"].overlays == ("a", "b")
    assert {name: summary.fault.splitlines()[0] for name, summary in summaries.items()
            if summary.fault} == {
        "based": 'recipes/based.yaml:1:7: base: no base named "debian"',
        "baseless": 'recipes/baseless.yaml:1:1: the key "base" is missing',
        "child": 'recipes/child.yaml:3:12: overlays[0]: no overlay named "b"',
        "orphan": 'recipes/orphan.yaml:1:10: extends: no profile named "nobody"',
        "syntax": "recipes/syntax.yaml:2:1: not valid YAML: "
                  "expected the node content, but found '<stream end>'",
    }  # fmt: skip


def test_no_recipes(project: Project) -> None:
    assert find_profiles(project.settings) == ()
