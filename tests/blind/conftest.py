# SPDX-License-Identifier: Apache-2.0
"""The roots that the blind corpus is planted into: those of tests/faults, and more real ones."""

from __future__ import annotations

import pytest

from imagebuilder.tree import Tree
from tests.faults.conftest import Ground, ground, ground_in, made
from tests.faults.conftest import pytest_terminal_summary as print_table
from tests.faults.roots import real

__all__ = ["clothed", "ground", "made", "pytest_terminal_summary"]
UNPLANTED = "not planted"
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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table, and below it which cases were looked for in fewer roots than others."""
    print_table(terminalreporter)
    reports = [one for kind in ("passed", "failed") for one in terminalreporter.getreports(kind)]
    told = [
        str(value) for one in reports for name, value in one.user_properties if name == UNPLANTED
    ]
    if told:
        terminalreporter.section(f"{UNPLANTED}: {len(told)}")
        for line in sorted(told):
            terminalreporter.write_line(line)
