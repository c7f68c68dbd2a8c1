# SPDX-License-Identifier: Apache-2.0
"""Commands beside tens of thousands of made-up records of nodes: `pytest -s` shows the figures."""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path

import pytest

from imagebuilder.process import run
from imagebuilder.publish.channel.move import promote
from imagebuilder.publish.publish import publish
from imagebuilder.store.repository import ImageRef, Store
from imagebuilder.tree import Tree
from tests.integration.published import PROFILE, UNTESTED, quiet

pytestmark = pytest.mark.root

MANY = 50_000
COMMANDS = ("releases", "gc --releases --dry-run", "drift")
TIMES_AS_LONG = 2.5  # at most, as beside no record: 1.4 as it is, 4 to 6 if each is read once
ROUNDS = 3
NODES = f"nodes:\n  n2: {{macs: ['52:54:00:77:00:02'], profile: {PROFILE}}}\n"


def test_tens_of_thousands_of_records_hardly_slow_a_command_down(
    store: Store, images: list[ImageRef], tree: Tree
) -> None:
    (tree.path / "nodes.yaml").write_text(NODES)
    publish(store, images[0], tree, quiet(), channel="candidate")
    promote(tree, PROFILE, quiet(), untested=UNTESTED)
    few = {command: seconds(command, tree, store) for command in COMMANDS}
    make_records(tree, MANY, images[0].version)
    many = {command: seconds(command, tree, store) for command in COMMANDS}
    print()
    for command in COMMANDS:
        print(f"{command:26} {few[command]:5.2f} s, beside {MANY} records {many[command]:5.2f} s")
    slow = {c: many[c] / few[c] for c in COMMANDS if many[c] > TIMES_AS_LONG * few[c]}
    assert slow == {}


def seconds(command: str, tree: Tree, store: Store) -> float:
    """The processor time of the shortest of some runs: what else the machine does is not in it."""
    argv = [
        sys.executable,
        "-m",
        "imagebuilder.cli.main",
        *command.split(),
        "--tree",
        str(tree.path),
    ]
    taken = []
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run(argv, env={"IMAGEBUILDER_STATE": os.fspath(store.path.parent)}, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return min(taken)


def make_records(tree: Tree, many: int, version: str) -> None:
    """What an earlier version kept of `many` machines that a stranger made up."""
    seen = Path(tree.path / "seen")
    for number in range(many):
        mac = ":".join(f"{number:012x}"[at : at + 2] for at in range(0, 12, 2))
        record = {
            "mac": mac, "node": "", "profile": PROFILE, "version": version, "address": "10.0.0.9",
            "stage": "root", "root": "nfs", "first": "2026-11-20T00:00:00+00:00",
            "last": "2026-11-20T00:00:00+00:00", "given": "",
        }  # fmt: skip
        (seen / f"{mac.replace(':', '-')}.json").write_text(json.dumps(record))
