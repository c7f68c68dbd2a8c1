# SPDX-License-Identifier: Apache-2.0
"""A maintenance window: `Sun 02:00-05:00`, `Mon..Fri 22:00-04:00`, `01:00-05:00`.

Times are local times in the time zone of this host.  When daylight saving time begins or ends, a
window that contains the change is an hour shorter or longer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
DAY = f"({'|'.join(DAYS)})"
WINDOW = re.compile(
    rf"(?:(?P<days>{DAY}(\.\.{DAY})?(,{DAY}(\.\.{DAY})?)*) )?"
    r"(?P<begin>([01]\d|2[0-3]):[0-5]\d)-(?P<end>([01]\d|2[0-3]):[0-5]\d|24:00)"
)


@dataclass(frozen=True)
class Window:
    """The days on which it begins (0 is Monday), and its minutes of the day.

    A window that ends at or before its start ends on the next day.
    """

    days: frozenset[int]
    begin: int
    end: int

    def contains(self, moment: datetime) -> bool:
        """Whether a time, with its zone, is in the window in the local time of this host."""
        local = moment.astimezone()
        minute, day = 60 * local.hour + local.minute, local.weekday()
        if self.begin < self.end:
            return day in self.days and self.begin <= minute < self.end
        late, early = minute >= self.begin, minute < self.end
        return (late and day in self.days) or (early and (day - 1) % 7 in self.days)


def parse_window(text: str) -> Window:
    """Parse a window.  Raises ValueError with examples."""
    match = WINDOW.fullmatch(text)
    if match is None:
        raise ValueError("is not a window such as `Sun 02:00-05:00` or `Mon..Fri 22:00-04:00`")
    begin, end = minute_of(match["begin"]), minute_of(match["end"])
    if begin == end:
        raise ValueError("is empty; for a whole day, write `00:00-24:00`")
    days: set[int] = set(range(7))
    if match["days"]:
        days = {day for part in match["days"].split(",") for day in days_of(part)}
    return Window(frozenset(days), begin, end)


def days_of(part: str) -> list[int]:
    """The numbers of `Sat`, or of `Sat..Mon`."""
    first, _, last = part.partition("..")
    begin = DAYS.index(first)
    return [(begin + n) % 7 for n in range((DAYS.index(last or first) - begin) % 7 + 1)]


def minute_of(text: str) -> int:
    hour, _, minute = text.partition(":")
    return 60 * int(hour) + int(minute)
