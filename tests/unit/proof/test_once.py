# SPDX-License-Identifier: Apache-2.0
"""What several threads need is made once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from imagebuilder.proof.facts import Once


def test_all_who_ask_at_once_get_the_one_that_was_made() -> None:
    once: Once[str, object] = Once()
    ready = Barrier(4)

    def ask(key: str) -> object:
        ready.wait()
        return once.get(key, object)

    with ThreadPoolExecutor(4) as pool:
        first, second, third, other = pool.map(ask, ["a", "a", "a", "b"])
    assert first is second is third
    assert first is not other
    assert once.made() == {"a": first, "b": other}


def test_an_error_is_everybodys() -> None:
    once: Once[str, int] = Once()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            once.get("a", lambda: 1 // 0)
    assert once.get("b", lambda: 1) == 1
    assert once.made() == {"b": 1}
