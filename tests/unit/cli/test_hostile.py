# SPDX-License-Identifier: Apache-2.0
"""What strangers put into records, reports and consoles comes out of no command as it went in."""

from __future__ import annotations

import json
import os
import tracemalloc
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.cli.context import print_json, print_table, print_text
from imagebuilder.digest import Json
from imagebuilder.tree import ReleaseName, Tree
from tests.unit.cli.conftest import Program
from tests.unit.nodes_world import MAC1, node_tree
from tests.unit.planted_reports import NO_ROOT, make_report, plant
from tests.unit.web_log import boots, report_line, write_log

MARK = "PLANTED"
SPITE = (
    f"{MARK}\x1b[2J\x1b]0;owned\x07\x9b31m\r\n  host key  forged\x00\x7f\x85\u2028"
    "\u202e\u2066\u200b\ufeff\U000e0041\x08\x0b"
)
NODES = f"nodes: {{n1: {{macs: ['{MAC1}'], profile: generic}}}}\n"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A tree with a node, and spite wherever somebody else writes."""
    made = node_tree(tmp_path)
    made.nodes_file.write_text(NODES)
    quoted = "".join(f"%{byte:02x}" for byte in SPITE.encode())
    boots(made, MAC1, "generic/v1")
    for mac in (MAC1, "52:54:00:77:00:99"):
        uri = f"/report/generic/v1?stage={quoted}&root={quoted}&node={mac}"
        write_log(made, report_line(uri, agent=SPITE.replace("\n", "")))
    value = {key: SPITE for key in ("node", "profile", "version", "address", "first", "last")}
    record = {**value, "mac": "52:54:00:77:00:77", "stage": SPITE, "root": SPITE, "given": ""}
    made.seen("52:54:00:77:00:77").write_text(json.dumps(record))
    verdict = replace(NO_ROOT, what=SPITE, evidence=(SPITE, SPITE))
    plant(made, make_report(made, "generic@v1", 1, verdict=verdict))
    for log in made.reports(ReleaseName("generic", "v1")).glob(f"*/{NO_ROOT.log}"):
        log.write_text(SPITE * 3)
    return made


def unfit(text: str) -> set[str]:
    """The characters of a text that do more than show themselves; lines and tabs are ours."""
    return {c for c in text if unicodedata.category(c)[0] == "C" and c not in "\n\t"} | (
        {*text} & {"\u2028", "\u2029"}
    )


@pytest.mark.parametrize(
    "words",
    [
        ("nodes", "show", "n1"),
        ("nodes", "show", "n1", "--json"),
        ("nodes", "list"),
        ("releases",),
        ("releases", "--json"),
        ("drift",),
        ("gc", "--releases", "--dry-run"),
        ("report", "generic@v1"),
        ("report", "generic@v1", "--json"),
        ("report", "generic@v1", "--html", "-"),
        ("report", "generic@v1", "--junit", "-"),
    ],
    ids=" ".join,
)
def test_no_command_says_what_a_stranger_wants(
    tree: Tree, program: Program, words: tuple[str, ...]
) -> None:
    done = program(*words, "--tree", str(tree.path))
    said = done.stdout + done.stderr
    assert "Traceback" not in said
    assert unfit(said) == set()
    if words[0] == "report":
        assert MARK in said
    if "--html" not in words and "--junit" not in words:  # there, text is inside elements
        forged = [line for line in said.splitlines() if line.strip().startswith("host key  forged")]
        assert forged == []


def test_a_node_shows_what_a_damaged_record_said_on_one_line(tree: Tree, program: Program) -> None:
    fields = dict.fromkeys(("node", "stage", "root"), SPITE)
    times = dict.fromkeys(("first", "last"), "2026-11-20T12:00:00+00:00")
    named = {"mac": MAC1, "profile": "generic", "version": "v1", "address": "192.0.2.5"}
    tree.reports_log.unlink()
    tree.seen(MAC1).write_text(json.dumps({**named, **fields, **times, "node": "n1"}))
    done = program("nodes", "show", "n1", "--tree", str(tree.path))
    (line,) = [line for line in done.stdout.splitlines() if MARK in line]
    assert line.startswith("booted last")
    assert r"PLANTED\x1b[2J" in line
    assert unfit(done.stdout) == set()
    assert sum(line.startswith("log in with") for line in done.stdout.splitlines()) == 1


def test_a_forgotten_value_moves_nothing_and_no_cell_begins_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_text(SPITE)
    print_text("\x1b[32mready\x1b[0m")
    print_table([["a", SPITE], ["b", "c"]], ("one", "two"), empty="")
    said = capsys.readouterr().out
    assert unfit(said) == set()
    assert said.splitlines()[-2].startswith(f"a    {MARK}")
    assert said.splitlines()[-1] == "b    c"


def test_long_results_are_printed_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON has six characters for each NUL that a node says."""
    said: list[Json] = [{"node": f"n{number}", "output": "\0" * 1_000_000} for number in range(8)]
    with Path(os.devnull).open("w", encoding="utf-8") as nothing:
        monkeypatch.setattr("sys.stdout", nothing)
        tracemalloc.start()
        print_json(said)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 30_000_000, "all at once they take 100 MB"
