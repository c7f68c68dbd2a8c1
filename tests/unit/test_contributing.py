# SPDX-License-Identifier: Apache-2.0
"""CONTRIBUTING.md says where to add what: the files and names in its table are there."""

from __future__ import annotations

import re
from pathlib import Path

from tests.faults.site import VERBS

CHECKOUT = Path(__file__).parent.parent.parent
PLACES = ("", "imagebuilder/")
PATH = re.compile(r"`([\w./-]+/[\w./-]*|[\w-]+\.(?:py|md|txt|toml))`")
# `NIC_DRIVERS` of `checks/initrd.py`, `parse_place()` of `transport/places.py`
NAME_IN_FILE = re.compile(r"`(\w+)(?:\(\))?` (?:of|in) `([\w./-]+\.py)`")


def wrong_places(text: str) -> list[str]:
    """What the text names and the checkout does not have."""
    found = [path for path in PATH.findall(text) if "NAME" not in path and not places_of(path)]
    return found + [
        f"{name} in {path}"
        for name, path in NAME_IN_FILE.findall(text)
        if not any(re.search(rf"\b{name}\b", place.read_text()) for place in places_of(path))
    ]


def places_of(path: str) -> list[Path]:
    """Where a path may be: of the checkout, of the package, or the end of a path of either."""
    direct = [CHECKOUT / place / path for place in PLACES if (CHECKOUT / place / path).exists()]
    below = [CHECKOUT / "imagebuilder", CHECKOUT / "overlays"]
    return direct or [place for top in below for place in top.glob(f"*/{path}")]


def test_every_step_of_a_fault_is_described() -> None:
    text = (CHECKOUT / "docs/faults.md").read_text()
    lines = [line.strip() for verb in VERBS.values() for line in (verb.__doc__ or "").splitlines()]
    assert [line for line in lines if line not in text] == []


def test_every_place_is_there() -> None:
    assert wrong_places((CHECKOUT / "CONTRIBUTING.md").read_text()) == []


def test_a_wrong_place_is_found() -> None:
    text = (
        "`NIC_DRIVERS` of `checks/common/test_kernel.py`, `parse_place()` of `transport/places.py`"
    )
    assert wrong_places(text) == ["NIC_DRIVERS in checks/common/test_kernel.py"]
    assert wrong_places("`nodes/absent.py`, `steps/`, `step/`") == ["nodes/absent.py", "step/"]
