# SPDX-License-Identifier: Apache-2.0
"""What a node measured of itself when it looked at its health: `card-celsius:67,memory-used:...`.

A part of its signed report (health_report.py).  Names that are not known here, of a newer image,
are left out, and so is what cannot be.
"""

from __future__ import annotations

from collections.abc import Mapping

# By name, what is too large to be: degrees, bytes, percent of what is usual in this boot.
LIMITS = {
    "processor-celsius": 1000,
    "card-celsius": 1000,
    "memory-used": 10**13,
    "memory-size": 10**13,
    "card-memory-used": 10**13,
    "card-memory-size": 10**13,
    "speed": 1000,
}
READING = r"[a-z-]{1,24}:[0-9]{1,15}"
READINGS = rf"{READING}(?:,{READING}){{0,15}}"


def parse_readings(text: str) -> Mapping[str, int]:
    """The values by name; nothing in what matches READINGS is too much for a record."""
    said = (word.partition(":") for word in text.split(",") if word)
    found = {name: int(number) for name, _, number in said}
    return {name: found[name] for name in LIMITS if name in found and found[name] < LIMITS[name]}


def render_readings(values: Mapping[str, int]) -> str:
    return ",".join(f"{name}:{value}" for name, value in values.items())
