# SPDX-License-Identifier: Apache-2.0
"""`imagebuilder console`, as it is typed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from imagebuilder.process import run
from imagebuilder.tree import Tree
from tests.unit.cli.conftest import Program
from tests.unit.nodes_world import node_tree

SECRET = "hunter2"
NODES = """\
defaults: {netconsole: true}
nodes:
  n1: {macs: ["52:54:00:77:00:01"], profile: generic}
  n2: {macs: ["52:54:00:77:00:02"], profile: generic, netconsole: false}
  n3:
    macs: ["52:54:00:77:00:03"]
    profile: generic
    netconsole: false
    power: {driver: ipmi, address: "bmc3:9623", credentials: bmc}
"""


@pytest.fixture
def tree(project: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A tree with three nodes, and two boots of the first one."""
    made = node_tree(project)
    made.nodes_file.write_text(NODES)
    monkeypatch.setenv("IMAGEBUILDER_TREE", os.fspath(made.path))
    folder = made.consoles("n1")
    folder.mkdir(parents=True)
    (folder / "20261122T080000Z.log").write_text("[    0.000000] old\n")
    (folder / "20261123T090000Z.log").write_text("[    0.000000] new\n[    9.000000] panic\n")
    return made


def test_the_last_boot_is_printed_and_earlier_ones_if_asked(program: Program, tree: Tree) -> None:
    del tree
    last = "--- boot of 2026-11-23 09:00:00 UTC ---\n[    0.000000] new\n[    9.000000] panic\n"
    assert program("console", "n1").stdout == last
    old = "--- boot of 2026-11-22 08:00:00 UTC ---\n[    0.000000] old\n"
    assert program("console", "n1", "--boots", "7").stdout == old + last
    (boot,) = json.loads(program("console", "n1", "--json").stdout)
    assert boot == {
        "boot": "2026-11-23T09:00:00+00:00",
        "lines": ["[    0.000000] new", "[    9.000000] panic"],
    }


@pytest.mark.parametrize(
    ("words", "what", "hint"),
    [
        (("n2",), "n2 does not send its messages", "set `netconsole: true` for n2"),
        (("n3",), "n3 does not send its messages", "use --serial to connect through its BMC"),
        (("n9",), 'unknown node "n9"', ""),
        (("n1", "--serial"), "its power driver is ssh", "only the driver ipmi supports it"),
        (("n3", "--serial"), "no credentials named bmc", ""),
        (("n1", "--follow", "--json"), "--follow cannot be combined with --json", ""),
    ],
)
def test_what_cannot_be_shown_is_an_error(
    program: Program, tree: Tree, words: tuple[str, ...], what: str, hint: str
) -> None:
    del tree
    done = program("console", *words)
    assert (done.status, done.stdout) == (2, "")
    assert what in done.stderr
    assert hint in done.stderr


def test_a_node_that_sent_nothing_yet(program: Program, tree: Tree) -> None:
    for path in tree.consoles("n1").iterdir():
        path.unlink()
    assert program("console", "n1").stdout.startswith("no messages from n1 yet")
    assert program("console", "n1", "--json").stdout == "[]\n"


def test_the_serial_console_is_ipmitools(project: Path, tree: Tree) -> None:
    """It takes the place of our process; the password is in its environment alone."""
    tool = project / "bin/ipmitool"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\necho "$@"\necho "password $IPMI_PASSWORD"\nexit 7\n')
    tool.chmod(0o755)
    place = project / "home/imagebuilder/credentials/bmc"
    place.parent.mkdir(parents=True)
    place.write_text(f"user: admin\npassword: {SECRET}\n")
    place.chmod(0o600)
    env = {
        "PATH": f"{tool.parent}:{os.environ['PATH']}",
        "XDG_CONFIG_HOME": os.fspath(project / "home"),
    }
    words = ["console", "n3", "--serial", "--tree", os.fspath(tree.path)]
    argv = [sys.executable, "-m", "imagebuilder.cli.main", *words]
    done = run(argv, env=env, check=False)
    assert done.status == 7
    said = "-I lanplus -N 5 -R 3 -H bmc3 -p 9623 -U admin -E sol activate"
    assert done.stdout == f"{said}\npassword {SECRET}\n"
    assert "type ~. to disconnect" in done.stderr
