# SPDX-License-Identifier: Apache-2.0
"""Whether this host's clock can be believed, from what was written down before.

No version hangs on it: an image is named by the date of the archive it is from.  What does is the
end of Release files, the order of boot tests, and how long ago a node was seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

DAY = 86400
# Archives of a distribution in use are younger than this.
OLD_DAYS = 60
# Clocks of two machines may differ so much without anybody having to know.
SKEW_S = 600


def clock_warnings(now: float, *, lock: int, night: float, release: int) -> Iterator[str]:
    """What is odd about the time `now`; all in seconds since 1970, 0 for what there is none of.

    `lock` is the newest epoch of a lock file, `night` the beginning of the newest night before, and
    `release` the date of the newest Release file.
    """
    for moment, what in (
        (night, "the night before began"),
        (max(lock, release), "the newest archive was made"),
    ):
        if moment > now + SKEW_S:
            yield (
                f"this host's clock says {said(now)}, but {what} {said(moment)}: it was set back, "
                "or was ahead; look at its time synchronisation"
            )
    if release and now - release > OLD_DAYS * DAY:
        days = int(now - release) // DAY
        yield (
            f"the newest archive is {days} days old by this host's clock ({said(now)}): the mirror "
            "stands still, or the clock is ahead"
        )


def said(moment: float) -> str:
    """A moment for people, in UTC."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M UTC")
