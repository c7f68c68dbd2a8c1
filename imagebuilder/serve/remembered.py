# SPDX-License-Identifier: Apache-2.0
"""What is remembered of machines on the wire: never more than a fixed number of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


class Remembered(OrderedDict[str, Value]):
    """A dictionary of at most `most` entries: the oldest goes when another comes.

    Entries for which `known` says yes, such as nodes of nodes.yaml, go last: strangers, who can
    make up as many names as they like, push out each other.
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
        """Drop the oldest stranger; the oldest of all where nobody else is one."""
        for _ in range(len(self)):
            oldest = next(iter(self))
            if oldest != newest and not (self.known and self.known(oldest, self[oldest])):
                break
            self.move_to_end(oldest)
        if (oldest := next(iter(self))) == newest:
            self.move_to_end(oldest)
            oldest = next(iter(self))
        del self[oldest]
