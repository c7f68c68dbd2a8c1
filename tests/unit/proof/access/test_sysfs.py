# SPDX-License-Identifier: Apache-2.0
"""What is written to sysfs at boot: what takes something from the card, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.image.proof import Level
from imagebuilder.proof.access.prove import prove_writes
from tests.unit.proof.trees import make_tree, subject

RULES, TMPFILES = "/etc/udev/rules.d/30-a.rules", "/etc/tmpfiles.d/a.conf"
RADEON = 'ACTION=="add", SUBSYSTEM=="drm", KERNEL=="card[0-9]*", DRIVERS=="amdgpu", '
LEVEL = "power_dpm_force_performance_level"


@pytest.mark.parametrize(
    ("path", "text", "level"),
    [
        (RULES, f'{RADEON}ATTR{{device/{LEVEL}}}="low"', Level.WARNING),
        (RULES, f'{RADEON}ATTR{{device/{LEVEL}}}="high"', None),
        (RULES, f"{RADEON}RUN+=\"/bin/sh -c 'echo low > /sys/x/{LEVEL}'\"", Level.WARNING),
        (RULES, f'{RADEON.replace("amdgpu", "nouveau")}ATTR{{device/{LEVEL}}}="low"', None),
        (TMPFILES, f"w /sys/class/drm/card0/device/{LEVEL} - - - - low", Level.WARNING),
        (TMPFILES, "w- /sys/bus/pci/drivers/amdgpu/unbind - - - - 0000:03:00.0", Level.FAULT),
        (TMPFILES, "w- /sys/bus/pci/drivers/snd_hda_intel/unbind - - - - 0000:03:00.1", None),
        (TMPFILES, "d /var/lib/a 0755 root root -", None),
    ],
)
def test_writes(path: str, text: str, level: Level | None, tmp_path: Path) -> None:
    root = make_tree(tmp_path, {path: f"{text}\n"})
    radeon = ("1002:7480", "Radeon RX 7600 XT", "gfx1102")
    found = list(prove_writes(subject(root, hardware=[radeon])))
    assert [one.level for one in found] == ([level] if level else [])
