# SPDX-License-Identifier: Apache-2.0
"""A node's boots are those whose tickets it was given; nobody adds to them without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.nodes.evidence.report_log import MOST, find_boots
from imagebuilder.nodes.types import Node
from imagebuilder.tree import Tree, make_tree

MAC = "52:54:00:77:00:01"
NODE = Node("n1", (MAC,), "rx")
ONE, TWO, OTHER = "1" * 32, "2" * 32, "3" * 32


def script(time: str, secret: str, mac: str = MAC) -> str:
    uri = f"/nodes/{mac.replace(':', '-')}/boot.ipxe"
    return f'{{"time":"{time}","address":"10.0.0.7","uri":"{uri}","ticket":"{secret}"}}'


def report(time: str, secret: str, stage: str, version: str = "v2") -> str:
    uri = f"/report/{secret}/rx/{version}?stage={stage}&node={MAC}"
    return f'{{"time":"{time}","address":"10.0.0.7","uri":"{uri}","agent":"curl"}}'


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_tree(tmp_path / "tree")


def write(tree: Tree, *lines: str, old: bool = False) -> None:
    log = tree.serve / ("reports.log.1" if old else "reports.log")
    log.write_text("".join(f"{line}\n" for line in lines))


def test_boots_are_told_apart_by_their_tickets(tree: Tree) -> None:
    write(
        tree,
        script("2026-11-23T10:00:00+00:00", ONE),
        report("2026-11-23T10:00:20+00:00", ONE, "network"),
        old=True,
    )
    write(
        tree,
        report("2026-11-23T10:00:24+00:00", ONE, "root"),
        script("2026-11-23T12:00:00+01:00", TWO),
        report("2026-11-23T11:00:30+00:00", TWO, "failed", "v3"),
    )
    newest, first = find_boots(tree, NODE)
    assert (newest.begun, newest.release) == ("2026-11-23T11:00:00+00:00", "rx@v3")
    assert [step.stage for step in newest.steps] == ["failed"]
    assert [step.stage for step in first.steps] == ["network", "root"]
    assert len(find_boots(tree, NODE, 1)) == 1


def test_a_report_without_the_ticket_of_a_boot_is_nobodys(tree: Tree) -> None:
    write(
        tree,
        script("2026-11-23T10:00:00+00:00", ONE),
        script("2026-11-23T10:00:01+00:00", OTHER, "52:54:00:77:00:02"),
        report("2026-11-23T10:00:20+00:00", OTHER, "failed"),
        report("2026-11-23T10:00:21+00:00", "4" * 32, "failed"),
        "no line of the web server",
    )
    (boot,) = find_boots(tree, NODE)
    assert (boot.release, boot.steps) == ("", ())


def test_one_who_reports_without_end_is_bounded(tree: Tree) -> None:
    more = [report("2026-11-23T10:00:20+00:00", ONE, f"s{n}") for n in range(100)]
    write(tree, script("2026-11-23T10:00:00+00:00", ONE), *more)
    assert len(find_boots(tree, NODE)[0].steps) == 32


def test_of_a_long_log_the_end_is_read(tree: Tree) -> None:
    filler = "x" * 1000
    first = script("2026-11-23T09:00:00+00:00", ONE)
    write(tree, first, *[filler] * (MOST // 1000), script("2026-11-23T10:00:00+00:00", TWO))
    assert [boot.begun for boot in find_boots(tree, NODE)] == ["2026-11-23T10:00:00+00:00"]


def test_there_is_no_log_yet(tree: Tree) -> None:
    assert find_boots(tree, NODE) == ()
