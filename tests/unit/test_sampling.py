# SPDX-License-Identifier: Apache-2.0
"""A sample of the tests has some of every file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.sampling import find_sample


@dataclass(frozen=True)
class Item:
    path: Path
    number: int


@pytest.mark.parametrize(("every", "numbers"), [(1, [0, 1, 2, 3, 4]), (2, [0, 2, 4]), (4, [0, 4])])
def test_every_file_is_in_a_sample(every: int, numbers: list[int]) -> None:
    long, short = Path("long"), Path("short")
    items = [Item(long, number) for number in range(5)]
    items.insert(3, Item(short, 0))
    found = list(find_sample(items, every))
    assert [item.number for item in found if item.path == long] == numbers
    assert [item.number for item in found if item.path == short] == [0]
