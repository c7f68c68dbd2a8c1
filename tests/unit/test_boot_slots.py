# SPDX-License-Identifier: Apache-2.0
"""No more workers than cores boot machines at a time."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.boot_slots import BootSlots


def test_a_worker_waits_for_a_slot(tmp_path: Path) -> None:
    first, second, third = (BootSlots(str(tmp_path), 2) for _ in range(3))
    first.take()
    second.take()
    second.take()  # the one it has
    waiting = threading.Thread(target=third.take)
    waiting.start()
    waiting.join(0.5)
    assert waiting.is_alive()
    second.free()
    waiting.join(10)
    assert not waiting.is_alive()
    assert third.held is not None
    first.free()
    third.free()
    third.free()
    assert third.held is None
