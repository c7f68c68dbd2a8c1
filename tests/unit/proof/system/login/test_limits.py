# SPDX-License-Identifier: Apache-2.0
"""Limits of all sessions of users."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.families.shipped import ShippedFile
from imagebuilder.image.proof import Level
from imagebuilder.proof.system.login.limits import prove_session_limits
from tests.unit.proof.trees import make_tree, subject

FILE = "/etc/systemd/system/user-.slice.d/50-site.conf"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("MemoryMax=8G\nTasksMax=512", "MemoryMax=8G and TasksMax=512"),
        ("MemoryHigh=512M", "MemoryHigh=512M"),
        ("CPUQuota=200%", "CPUQuota=200%"),
        ("AllowedCPUs=0-1", "AllowedCPUs=0-1"),
        ("MemoryMax=64G", ""),
        ("MemoryMax=90%", ""),
        ("MemoryMax=infinity\nTasksMax=infinity", ""),
        ("TasksMax=33%", ""),
        ("CPUQuota=6400%", ""),
        ("#CPUQuota=200%", ""),
    ],
)
def test_limits_of_sessions(lines: str, said: str, tmp_path: Path) -> None:
    given = subject(make_tree(tmp_path, {FILE: f"[Slice]\n{lines}\n"}))
    given.__dict__["shipped"] = {}
    found = [(each.level, each.what) for each in prove_session_limits(given)]
    what = f"what users run over ssh is limited by {said}: programs that compute may need more"
    assert found == ([(Level.WARNING, what)] if said else [])


def test_what_a_package_ships_is_its_own(tmp_path: Path) -> None:
    given = subject(make_tree(tmp_path, {FILE: "[Slice]\nTasksMax=33\n"}))
    given.__dict__["shipped"] = {FILE: ShippedFile("systemd")}
    assert list(prove_session_limits(given)) == []
