# SPDX-License-Identifier: Apache-2.0
"""Packages that are added to a file: everything else of it stays, to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.errors import InputError
from imagebuilder.recipe.amend import add_packages

CASES = {
    "block": (
        "a: 1\npackages: # why\n  # one\n  - x  # c\n  - name: y\n    when: z  # d\n"
        "  # end\nb: [1]\n",
        "a: 1\npackages: # why\n  # one\n  - x  # c\n  - name: y\n    when: z  # d\n  - p\n  - q\n"
        "  # end\nb: [1]\n",
    ),
    "flush": ("packages:\n- x\nb: 1\n", "packages:\n- x\n- p\n- q\nb: 1\n"),
    "flow": ("packages: [x, y]  # c\nb: 1\n", "packages: [x, y, p, q]  # c\nb: 1\n"),
    "lines": ("packages: [\n  x,  # c\n]\n", "packages: [\n  x, p, q,  # c\n]\n"),
    "empty": ("packages: []\nb: 1\n", "packages: [p, q]\nb: 1\n"),
    "none": ("packages:  # later\nb: 1\n", "packages:  # later\n  - p\n  - q\nb: 1\n"),
    "no key": ("b: 1", "b: 1\npackages:\n  - p\n  - q\n"),
    "no end": ("packages:\n  - x", "packages:\n  - x\n  - p\n  - q\n"),
}


@pytest.mark.parametrize("case", CASES)
def test_nothing_else_changes(tmp_path: Path, case: str) -> None:
    before, after = CASES[case]
    file = tmp_path / "overlay.yaml"
    file.write_text(before)
    file.chmod(0o640)
    add_packages(file, "own", ["p", "q"])
    assert file.read_text() == after
    assert file.stat().st_mode & 0o777 == 0o640


def test_what_cannot_be_added_to_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "overlay.yaml"
    text = "a: &list [x]\npackages: *list\n"
    file.write_text(text)
    with pytest.raises(InputError, match="could not add packages") as caught:
        add_packages(file, "own", ["p"])
    assert "p" in caught.value.faults[0].hint
    assert file.read_text() == text
