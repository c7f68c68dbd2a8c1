# SPDX-License-Identifier: Apache-2.0
"""Profiles of TuneD that it does not find."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.system.programs.helpers import prove_tuning
from tests.unit.proof.trees import make_tree, running, subject

NEW = {"/usr/lib/tuned/profiles/balanced/tuned.conf": "[main]\nsummary=x\n"}
OLD = {"/usr/lib/tuned/balanced/tuned.conf": "[main]\nsummary=x\n"}
SITE = "[main]\ninclude=balanced\n"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({**NEW, "/etc/tuned/gpu/tuned.conf": SITE}, "but /etc/tuned/gpu/tuned.conf is in a fold"),
        ({**NEW}, "the profile gpu is not in /etc/tuned/profiles or /usr/lib/tuned/profiles"),
        ({**OLD, "/etc/tuned/profiles/gpu/tuned.conf": SITE}, "in a folder of other releases"),
        ({**NEW, "/etc/tuned/profiles/gpu/tuned.conf": "[main]\ninclude=latency, balanced\n"},
         "the profile latency is not in"),
        ({**NEW, "/etc/tuned/profiles/gpu/tuned.conf": SITE}, ""),
        ({**NEW, "/etc/tuned/profiles/gpu/tuned.conf": "[main]\ninclude=-latency balanced\n"}, ""),
        ({**NEW, "/etc/tuned/profiles/gpu/tuned.conf": "[main]\ninclude=${f:x:y}\n"}, ""),
        ({**OLD, "/etc/tuned/gpu/tuned.conf": SITE}, ""),
        # Without a profile of its own, nobody knows where it looks.
        ({"/etc/tuned/gpu/tuned.conf": SITE}, ""),
    ],
)  # fmt: skip
def test_the_active_profile(files: dict[str, str], said: str, tmp_path: Path) -> None:
    values = {"Unit Load State": ("loaded",)}
    commands = {"ExecStart": (("/usr/sbin/tuned", "-l", "-P"),)}
    unit = LoadedUnit("tuned.service", (), values, commands)
    given = subject(make_tree(tmp_path, {**files, "/etc/tuned/active_profile": "gpu\n"}))
    for jobs, expected in ((frozenset((unit.name,)), said), (frozenset[str](), "")):
        found = [
            f.what for f in prove_tuning(running(given, Startup(jobs, {}, {unit.name: unit}, ())))
        ]
        assert [expected in what for what in found] == ([True] if expected else [])
