# SPDX-License-Identifier: Apache-2.0
"""Switch many nodes at once: each on its own, so that a dead BMC delays nobody."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from imagebuilder.errors import ImagebuilderError
from imagebuilder.fleet.power.protocol import PowerDriver

AT_ONCE = 64


def switch_all(
    drivers: Mapping[str, PowerDriver], action: Callable[[PowerDriver], object]
) -> dict[str, object]:
    """What `action` returns for each node, or the error it raised."""

    def one(driver: PowerDriver) -> object:
        try:
            return action(driver)
        except ImagebuilderError as error:
            return error

    if not drivers:
        return {}
    with ThreadPoolExecutor(min(AT_ONCE, len(drivers))) as pool:
        return dict(zip(drivers, pool.map(one, drivers.values()), strict=True))
