# SPDX-License-Identifier: Apache-2.0
"""The small archive that the tests of locks have too."""

from __future__ import annotations

from tests.unit.lock.conftest import _loopback, hello_lock, keys, template, world

__all__ = ["_loopback", "hello_lock", "keys", "template", "world"]
