# SPDX-License-Identifier: Apache-2.0
"""A fault that many nodes share is told once."""

from __future__ import annotations

from pathlib import Path

from imagebuilder.cli.alike import fold_faults
from imagebuilder.errors import Fault
from imagebuilder.tree import make_tree
from tests.unit.cli.conftest import Program

UNKNOWN, CORRECT = 'unknown group "gpuu"', 'did you mean "gpu"?'


def test_a_wrong_word_of_800_nodes(program: Program, tmp_path: Path) -> None:
    tree, lines = make_tree(tmp_path / "tree"), ["groups: {gpu: {profile: grand}}", "nodes:"]
    for number in range(1, 801):
        lines += [
            f"  n{number:03}:",
            f"    macs: [52:54:00:00:{number // 256:02x}:{number % 256:02x}]",
            f"    group: {'gpu' if number == 7 else 'gpuu'}",
        ]
    lines += ["  other:", "    macs: [wrong]", "    profile: grand"]
    tree.nodes_file.write_text("\n".join(lines))
    done = program("nodes", "list", "--tree", str(tree.path))
    assert done.status == 2
    assert done.stderr.splitlines() == [
        f"error: {tree.nodes_file}:5:12: nodes.n[001-006,008-800].group: {UNKNOWN}",
        f"  hint: {CORRECT}",
        f'error: {tree.nodes_file}:2404:12: nodes.other.macs[0]: "wrong" is not a MAC address such '
        "as 52:54:00:77:00:01",
    ]


def test_other_faults_stay_as_they_are() -> None:
    faults = [
        Fault("a.yaml:1:1", "nodes.n1.group: x"),
        Fault("b.yaml:2:1", "nodes.n2.group: x"),
        Fault("a.yaml:3:1", "nodes.n3.group: y"),
        Fault("a.yaml:4:1", "nodes.n4.group: x", "do this"),
        Fault("a.yaml:5:1", "overlays[0]: x"),
        Fault("a.yaml:6:1", "overlays[0]: x"),
    ]
    assert fold_faults(faults) == faults
