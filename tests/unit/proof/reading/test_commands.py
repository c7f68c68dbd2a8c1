# SPDX-License-Identifier: Apache-2.0
"""Options of command lines, and what stands before their programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.proof.reading.commands import options_of, without
from imagebuilder.proof.reading.systemd import LoadedUnit
from imagebuilder.proof.reading.units import prefixes_of
from tests.unit.proof.trees import make_tree

UNIT = "/etc/systemd/system/a.service"


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("serve --port 80", ["80"]),
        ("serve --port=80 --port 81", ["80", "81"]),
        ("serve --port", [""]),
        ("serve --port= 81", [""]),
        ("serve --port --host 0.0.0.0", [""]),
        ("serve --port -p", [""]),
        ("serve --port -1", ["-1"]),
        ("serve --ports 80", []),
    ],
)
def test_values_of_an_option(line: str, values: list[str]) -> None:
    assert [each.value for each in options_of(line.split(), ("--port",))] == values


def test_a_command_line_without_options() -> None:
    line = ["serve", "--a", "1", "-b", "-c=2", "x", "--a=3", "-d", "-1"]
    assert without(line, {"--a", "-b", "-d"}) == ["serve", "-c=2", "x"]


@pytest.mark.parametrize(
    ("written", "prefixes"),
    [
        ("/opt/a b", ""),
        ('-"/opt/a b/x" --y', "-"),
        ("'+:/opt/a b/x'", "+:"),
        ('"/opt/a b/x"', ""),
        ("-/opt/a\\\n --y", ""),
    ],
)
def test_prefixes_of_a_program(written: str, prefixes: str, tmp_path: Path) -> None:
    tree = make_tree(tmp_path, {UNIT: f"[Service]\nExecStart={written}\n"})
    unit = LoadedUnit("a.service", (UNIT,))
    assert prefixes_of(tree, unit, "ExecStart", "/opt/a b/x") == prefixes
