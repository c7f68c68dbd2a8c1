# SPDX-License-Identifier: Apache-2.0
"""Values that a node measured during its health check: `card-celsius:67,memory-used:...`.

They are part of its signed report (health_report.py).  Unknown names, from a newer image, are
skipped, as are impossible values.
"""

from __future__ import annotations

from collections.abc import Mapping

# Impossible values by name: degrees, bytes, percent of the usual value in this boot.
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
    """The values by name; text that matches READINGS always fits into a record."""
    said = (word.partition(":") for word in text.split(",") if word)
    found = {name: int(number) for name, _, number in said}
    return {name: found[name] for name in LIMITS if name in found and found[name] < LIMITS[name]}


def render_readings(values: Mapping[str, int]) -> str:
    return ",".join(f"{name}:{value}" for name, value in values.items())
