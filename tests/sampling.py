# SPDX-License-Identifier: Apache-2.0
"""What `make test` does with a sample, and `make test-all` whole.

IMAGEBUILDER_TEST_ALL=1, which `make test-all` sets, is the whole.  IMAGEBUILDER_TEST_EVERY=8 runs
every eighth test of each file: what the same tests say on another system is known by few of them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

ALL = os.environ.get("IMAGEBUILDER_TEST_ALL") == "1"
EVERY = int(os.environ.get("IMAGEBUILDER_TEST_EVERY", "1"))


def times(sample: int, whole: int) -> int:
    """How often something is repeated."""
    return whole if ALL else sample


class InFile(Protocol):
    """A test, as pytest has it."""

    @property
    def path(self) -> Path: ...


Item = TypeVar("Item", bound=InFile)


def find_sample(items: Iterable[Item], every: int) -> Iterator[Item]:
    """The first test of each file, and every so many after it."""
    seen: Counter[Path] = Counter()
    for item in items:
        if seen[item.path] % every == 0:
            yield item
        seen[item.path] += 1
