# SPDX-License-Identifier: Apache-2.0
"""A bounded dictionary for facts about machines on the network."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


class Remembered(OrderedDict[str, Value]):
    """A dictionary of at most `most` entries: a new entry removes the oldest.

    Entries for which `known` returns true, such as nodes of nodes.yaml, are removed last: unknown
    machines, which can invent any number of names, displace only each other.
    """

    def __init__(self, most: int, known: Callable[[str, Value], bool] | None = None) -> None:
        super().__init__()
        self.most = most
        self.known = known

    def __setitem__(self, key: str, value: Value) -> None:
        super().__setitem__(key, value)
        if len(self) > self.most:
            self.forget_one(key)

    def forget_one(self, newest: str) -> None:
        """Drop the oldest unknown entry, or the oldest of all if every entry is known."""
        for _ in range(len(self)):
            oldest = next(iter(self))
            if oldest != newest and not (self.known and self.known(oldest, self[oldest])):
                break
            self.move_to_end(oldest)
        if (oldest := next(iter(self))) == newest:
            self.move_to_end(oldest)
            oldest = next(iter(self))
        del self[oldest]
