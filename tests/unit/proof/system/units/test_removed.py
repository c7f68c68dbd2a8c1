# SPDX-License-Identifier: Apache-2.0
"""Limits that systemd no longer has."""

from __future__ import annotations

from pathlib import Path

from imagebuilder.proof.reading.systemd import Complaint, Startup
from imagebuilder.proof.system.units.ignored import prove_removed
from tests.unit.proof.trees import make_tree, running, subject

UNIT = "/etc/systemd/system/convert.service"


def found(tmp_path: Path, settings: str, *keys: str) -> list[str]:
    root = make_tree(tmp_path, {UNIT: f"[Service]\nExecStart=/opt/convert\n{settings}"})
    said = "Support for option {}= has been removed and it is ignored"
    complaints = tuple(Complaint(UNIT, said.format(key)) for key in keys)
    startup = Startup(frozenset(), {}, {}, complaints)
    return [f"{f.what} {f.hint}" for f in prove_removed(running(subject(root), startup))]


def test_a_limit_that_systemd_ignores_is_a_warning(tmp_path: Path) -> None:
    memory, shares = found(
        tmp_path, "MemoryLimit=8G\nStartupCPUShares=9\n", "MemoryLimit", "StartupCPUShares"
    )
    assert memory.startswith(f"MemoryLimit=8G of {UNIT} has no effect")
    assert shares.endswith("set StartupCPUWeight= instead")


def test_the_new_setting_beside_it_is_enough(tmp_path: Path) -> None:
    assert found(tmp_path, "MemoryLimit=8G\nMemoryMax=8G\n", "MemoryLimit") == []


def test_a_removed_setting_that_limits_nothing_is_no_problem(tmp_path: Path) -> None:
    assert found(tmp_path, "CPUAccounting=yes\n", "CPUAccounting") == []
