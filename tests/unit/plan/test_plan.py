# SPDX-License-Identifier: Apache-2.0
"""The plan by value: golden cases (a folder a case) and the properties that digests must have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from imagebuilder.plan import Action, Plan, make_plan
from imagebuilder.reasons import LayerRecord
from tests.unit.plan.world import make_world

CASES = Path(__file__).parent / "cases"


def render(plan: Plan) -> str:
    """A plan as the golden files have it."""
    lines: list[str] = []
    for step in plan.steps:
        leaf = " (leaf)" if step.step.leaf else ""
        lines.append(f"{step.action} {step.step.title}{leaf}: {step.reason}")
        lines.extend(f"    {change}" for change in step.changes)
    return "\n".join(lines) + "\n"


def records(plan: Plan) -> tuple[LayerRecord, ...]:
    """The plan's layers as the manifest of its image would have them."""
    return tuple(LayerRecord(s.step.title, s.digest, s.step.inputs()) for s in plan.steps)


def follow(case: Mapping[str, Any]) -> tuple[Plan | None, Plan]:
    """The plan before (all built) and the plan now."""
    now = make_world(case["now"])
    if "before" not in case:
        return None, make_plan(now.recipe, now.lock, layers=frozenset())
    before = make_world(case["before"])
    first = make_plan(before.recipe, before.lock, layers=frozenset())
    gone = case.get("gone", [])
    built = frozenset(s.digest for s in first.steps if s.step.title not in gone)
    second = make_plan(
        now.recipe,
        now.lock,
        layers=built,
        images=frozenset({f"demo@{first.version}"}),
        previous=records(first),
        compared_with="V1",
    )
    return first, second


@pytest.mark.parametrize("folder", sorted(CASES.iterdir()), ids=lambda folder: folder.name)
def test_case(folder: Path) -> None:
    case = json.loads((folder / "case.json").read_text())
    before, now = follow(case)
    assert render(now) == (folder / "plan.txt").read_text()
    if before is not None:
        assert now.ready == (before.version == now.version)


def test_plan_is_a_function_of_its_arguments() -> None:
    case = {"now": {"overlays": {"a": {"packages": {"foo": "1"}, "files": {"/etc/a": "x"}}}}}
    assert follow(case)[1] == follow(case)[1]


@pytest.mark.parametrize(
    "change",
    [
        {"packages": {"libc6": "2.44"}},
        {"engine": "debootstrap"},
        {"cmdline": ["quiet"]},
        {"overlays": {"a": {"packages": {"foo": "2"}}}},
        {"overlays": {"a": {"packages": {"foo": "1"}, "files": {"/etc/a": "x"}}}},
        {"overlays": {"a": {"packages": {"foo": "1"}, "enable": ["a.service"]}}},
        {"overlays": {"a": {"packages": {"foo": "1"}, "prune": ["/usr/share/doc/*"]}}},
        {"overlays": {"a": {"packages": {"foo": "1"}, "listens": ["22/tcp"]}}},
    ],
)
def test_every_input_changes_the_version(change: dict[str, object]) -> None:
    plain = {"overlays": {"a": {"packages": {"foo": "1"}}}}
    _, before = follow({"now": plain})
    _, after = follow({"now": {**plain, **change}})
    assert before.version != after.version
    assert before.root.digest != after.root.digest


def test_config_files_do_not_make_a_new_initrd_but_boot_files_do() -> None:
    def initrd(files: dict[str, str]) -> str:
        _, plan = follow({"now": {"overlays": {"a": {"files": files}}}})
        return plan.leaf.digest

    plain = initrd({"/etc/a": "x"})
    assert initrd({"/etc/a": "y"}) == plain
    for target in ("/etc/modprobe.d/a.conf", "/usr/lib/dracut/dracut.conf.d/a.conf"):
        assert initrd({"/etc/a": "x", target: "y"}) != plain


def test_an_overlays_name_is_not_an_input() -> None:
    _, one = follow({"now": {"overlays": {"a": {"packages": {"foo": "1"}}}}})
    _, other = follow({"now": {"overlays": {"b": {"packages": {"foo": "1"}}}}})
    assert one.version == other.version


def test_version_sorts_by_epoch() -> None:
    def version(epoch: int) -> str:
        _, plan = follow({"now": {"overlays": {"a": {"packages": {"foo": "1"}, "epoch": epoch}}}})
        return plan.version

    versions = [version(epoch) for epoch in (1_790_000_000, 1_790_000_001, 1_890_000_000)]
    assert versions == sorted(versions)
    assert versions[0].startswith("20260921")


def test_ready_plan_builds_nothing() -> None:
    case = {"overlays": {"a": {"packages": {"foo": "1"}}}}
    _, plan = follow({"before": case, "now": case})
    assert plan.ready
    assert all(step.action is Action.REUSE for step in plan.steps)
