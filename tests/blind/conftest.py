# SPDX-License-Identifier: Apache-2.0
"""The roots that the blind corpus is planted into: those of tests/faults, and more real ones."""

from __future__ import annotations

import pytest

from imagebuilder.tree import Tree
from tests.faults.conftest import Ground, ground, ground_in, made, pytest_terminal_summary
from tests.faults.roots import real

__all__ = ["clothed", "ground", "made", "pytest_terminal_summary"]
# The recipe of each small root: the real root in its clothes has systemd, kmod, udev and sshd.
RECIPES = {
    "made-amd": "rx7600xt",
    "made-intel": "a770",
    "made-npu": "ryzen-ai-max",
    "made-nvidia": "rtx5090",
}


@pytest.fixture(scope="session")
def clothed(ground: Ground) -> Ground:
    """The real root in the clothes of every profile of RECIPES."""
    place = Tree(ground.place / "clothed")
    base = ground.releases[real.BASE]
    tree = real.make_real(ground.tree, base, place, tuple(RECIPES.values()))
    return ground_in(ground.place, tree)
