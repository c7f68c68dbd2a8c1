# SPDX-License-Identifier: Apache-2.0
"""A sample of the tests has some of every file, and slow files start first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import FIRST, UNIT
from tests.sampling import find_sample
from tests.workshop import CHECKOUT


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


def test_what_starts_first_is_there() -> None:
    ours = [name for name in FIRST if name.startswith(UNIT)]
    assert ours
    assert [name for name in ours if not (CHECKOUT / name).is_file()] == []
