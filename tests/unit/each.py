# SPDX-License-Identifier: Apache-2.0
"""One test of hundreds of values: to hand out and report each takes longer than to check it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")


def for_each(values: Mapping[str, T]) -> Callable[[Callable[[T], None]], Callable[[], None]]:
    """Make a test of a check; it checks all values, and names those that fail."""

    def decorate(check: Callable[[T], None]) -> Callable[[], None]:
        def test() -> None:
            assert values
            failed = []
            for name, value in values.items():
                try:
                    check(value)
                except AssertionError as error:
                    failed.append(f"{name}: {error}")
            assert not failed, "\n".join(failed)

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        test.__module__ = check.__module__
        return test

    return decorate
