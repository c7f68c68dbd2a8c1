# SPDX-License-Identifier: Apache-2.0
"""Check this host's clock against times that were recorded before.

No version depends on the clock: the version of an image is the date of its archive.  The expiry of
Release files, the order of boot tests and the age of a node's last sign do depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

DAY = 86400
# Archives of a distribution in use are younger than this.
OLD_DAYS = 60
# A smaller difference between the clocks of two machines is not worth a warning.
SKEW_S = 600


def clock_warnings(now: float, *, lock: int, run: float, release: int) -> Iterator[str]:
    """What is odd about the time `now`; all times in seconds since 1970, 0 if unknown.

    `lock` is the newest epoch of a lock file, `run` the start of the previous nightly run, and
    `release` the date of the newest Release file.
    """
    for moment, what in (
        (run, "the previous nightly run began"),
        (max(lock, release), "the newest archive was made"),
    ):
        if moment > now + SKEW_S:
            yield (
                f"this host's clock says {said(now)}, but {what} {said(moment)}: the clock was set "
                "back, or was fast before; check its time synchronisation"
            )
    if release and now - release > OLD_DAYS * DAY:
        days = int(now - release) // DAY
        yield (
            f"the newest archive is {days} days old by this host's clock ({said(now)}): the mirror "
            "is no longer updated, or the clock is fast"
        )


def said(moment: float) -> str:
    """A time for people, in UTC."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M UTC")
