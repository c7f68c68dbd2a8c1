# SPDX-License-Identifier: Apache-2.0
"""Values by the YAML 1.2 core schema, and where each of them stands."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from imagebuilder.errors import InputError
from imagebuilder.recipe.positions import (
    MAX_BYTES,
    Yaml,
    load_document,
    parse_document,
    render_path,
)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("yes", "yes"), ("no", "no"), ("on", "on"), ("2026-11-21", "2026-11-21"), ("1:30", "1:30"),
        ("true", True), ("False", False), ("~", None), ("", None), ("'true'", "true"),
        ("0644", 644), ("0o644", 420), ("0x1F", 31), ("-7", -7), ("1_000", "1_000"),
        ("1.5", 1.5), ("1e3", 1000.0), ("-.inf", float("-inf")), ('"5"', "5"), ("1.2.3", "1.2.3"),
        ("|\n  two\n  lines", "two\nlines\n"), ("[a, {b: c}]", ["a", {"b": "c"}]),
    ],
)  # fmt: skip
def test_core_schema(written: str, value: Yaml) -> None:
    assert parse_document(f"key: {written}\n".encode(), "f").value == {"key": value}


def test_not_a_number_is_one() -> None:
    value = parse_document(b"key: .nan", "f").value["key"]
    assert value != value


def test_keys_are_text_as_written() -> None:
    assert parse_document(b"1: a\ntrue: b\n0644: c\n", "f").value == {
        "1": "a", "true": "b", "0644": "c"
    }  # fmt: skip


def test_marks() -> None:
    text = "a:\n  - x\n  - b: 0644\n    c: &n [1]\nd: *n\n"
    document = parse_document(text.encode(), "f.yaml")
    assert document.fault(("a", 1, "b"), "wrong").where == "f.yaml:3:8"
    assert document.fault(("a", 1, "b"), "wrong", of_key=True).where == "f.yaml:3:5"
    assert document.mark(("a", 1, "b")).raw == "0644"
    # What is not written down is where the nearest thing around it is.
    assert document.fault(("a", 1, "missing"), "wrong").where == "f.yaml:3:5"
    assert document.fault(("d", 0), "wrong").where == "f.yaml:5:4"


def test_paths_are_readable() -> None:
    path = render_path(("files", "/etc/a b", "when"))
    assert path == 'files["/etc/a b"].when'
    assert render_path(("overlays", 2)) == "overlays[2]"


def test_a_bom_is_no_fault() -> None:
    assert parse_document("\ufeffa: 1\n".encode(), "f").value == {"a": 1}


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 100_000,
        "a: &a [x]\n" + "b: [" + "*a, " * 30_000 + "]\n",
        "a:\n" + " - &x [" + "y," * 8000 + "]\n" + " - *x\n" * 8000,
        "a: [" + "{}, " * 50_000 + "]",
        "? " * 50_000,
        "- " * 50_000,
        "a: " + "9" * 200_000 + ": [",
        "a: '" + "x" * MAX_BYTES,
        "a: &a " + "x" * 128_000 + "\nb:\n" + " - *a\n" * 19_000,
        "a0: &a0 []\n"
        + "".join(f"a{n}: &a{n} {'[' * 20}*a{n - 1}{']' * 20}\n" for n in range(1, 40)),
    ],
    ids=lambda text: text[:12],
)
def test_bombs_fail_fast(text: str) -> None:
    started = time.process_time()  # of this process, however busy the machine is
    with pytest.raises(InputError):
        parse_document(text.encode(), "f")
    assert time.process_time() - started < 3


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name, what in (("fifo", "is not a file"), ("missing", "does not exist"), (".", "is not")):
        with pytest.raises(InputError, match=what):
            load_document(tmp_path / name, "shown.yaml")
