# SPDX-License-Identifier: Apache-2.0
"""Waiting for nodes: whoever interrupts it hears who is missing; a BMC that takes its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from imagebuilder.cli.fleet import render_group
from imagebuilder.fleet import verbs
from imagebuilder.fleet.ssh import Said
from imagebuilder.fleet.verbs import Crew, await_nodes, cycle, refusals
from imagebuilder.nodes.types import Node
from imagebuilder.tree import make_tree


def test_an_interrupt_tells_who_is_missing_and_why(tmp_path: Path) -> None:
    heard: list[str] = []
    nodes = tuple(Node(name, ("52:54:00:00:00:01",), "gpu") for name in ("n1", "n2"))
    crew = Crew(make_tree(tmp_path / "tree"), nodes, {}, heard.append)
    asked: list[Sequence[str]] = []

    def seek(_: Crew, names: Sequence[str]) -> Mapping[str, str]:
        if asked:
            raise KeyboardInterrupt
        asked.append(names)
        return {"n1": "is up"}

    with pytest.raises(KeyboardInterrupt):
        await_nodes(crew, ["n1", "n2"], 60, seek)
    assert heard == [
        "n1: is up after 0 s",
        "n2: not done: never reported a boot to this tree, and does not answer to ssh",
    ]


def test_what_nodes_say_moves_no_cursor() -> None:
    shown = render_group("n1", 1, 0, "\x1b[2Jgone\r\n\x1b]0;title\x07ok\n")
    assert shown.endswith("gone\nok")
    assert refusals({"n1": Said("n1", 1, "a\x1b[2Jb\n")}) == {"n1": "did not take the command: ab"}


@pytest.mark.parametrize("before", ["", " ", "\x1b[m", "\u00a0"])
def test_a_node_cannot_speak_for_another_one(before: str) -> None:
    rule = "-" * 15
    said = f"up\n{before}{rule}\nn2 (1)\n{before}{rule}{before}\nhacked\n"
    lines = render_group("n1", 1, 0, said).splitlines()
    assert [number for number, line in enumerate(lines) if line == rule] == [0, 2]
    assert render_group("n1", 1, 0, " a | b\n---+---\n").endswith("\n---+---")


class LateBmc:
    """Its power goes at the last of `looks` looks after it was cut; `on` before that is lost."""

    def __init__(self, looks: int) -> None:
        self.looks = looks
        self.came_back = False

    def on(self) -> None:
        self.came_back = self.looks == 0

    def off(self) -> None:
        self.came_back = False

    def is_on(self) -> bool | None:
        self.looks -= 1
        return self.looks > 0


@pytest.mark.parametrize(
    ("looks", "limit", "expected"),
    [(3, 60.0, {}), (10**9, 0.05, {"n1": "still has power 0.05 s after it was cut"})],
)
def test_power_comes_back_only_after_it_went(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    looks: int,
    limit: float,
    expected: Mapping[str, str],
) -> None:
    monkeypatch.setattr(verbs, "POLL", 0.01)
    monkeypatch.setattr(verbs, "OFF_SECONDS", limit)
    bmc = LateBmc(looks)
    crew = Crew(make_tree(tmp_path / "tree"), (), {"n1": bmc}, lambda _: None)
    failed = cycle(crew, ["n1"])
    assert {name: outcome.words for name, outcome in failed.items()} == expected
    assert bmc.came_back is (not expected)
