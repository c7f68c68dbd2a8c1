# SPDX-License-Identifier: Apache-2.0
"""Servers that chronyd never selects."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.system.programs.helpers import prove_time_sources
from tests.unit.proof.trees import make_tree, running, subject

FILE = "/etc/chrony/chrony.conf"
TWO = "server a iburst\nserver b iburst\n"


def found(
    tmp_path: Path, files: dict[str, str], command: str = "/usr/sbin/chronyd -n"
) -> list[str]:
    values = {"Unit Load State": ("loaded",)}
    unit = LoadedUnit("chrony.service", (), values, {"ExecStart": (tuple(command.split()),)})
    startup = Startup(frozenset((unit.name,)), {}, {unit.name: unit}, ())
    given = subject(make_tree(tmp_path, {"/etc/x": "", **files}))
    return [finding.what for finding in prove_time_sources(running(given, startup))]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{TWO}authselectmode require\n", "authselectmode require of /etc/chrony/chrony.conf"),
        (f"{TWO}AuthSelectMode require\n", "none has nts or key"),
        (f"{TWO}minsources 3\n", "minsources 3 of /etc/chrony/chrony.conf, but it has only 2"),
        (f"{TWO}authselectmode prefer\nminsources 2\n", ""),
        (f"{TWO}server c iburst nts\nauthselectmode require\n", ""),
        (f"{TWO}server c key 1\nauthselectmode require\n", ""),
        (f"{TWO}refclock PPS /dev/pps0\nauthselectmode require\n", ""),
        ("pool a iburst\nminsources 4\n", ""),
        ("pool a iburst maxsources 2\nminsources 3\n", "it has only 2 of them"),
        (f"{TWO}sourcedir /run/chrony-dhcp\nminsources 3\n", ""),
        (f"{TWO}! authselectmode require\n# minsources 3\nauthselectmode\n", ""),
        ("authselectmode require\n", ""),
    ],
)
def test_a_clock_that_nobody_sets(text: str, said: str, tmp_path: Path) -> None:
    told = found(tmp_path, {FILE: text})
    assert [said in what for what in told] == ([True] if said else [])


def test_files_that_chronyd_is_told_to_read(tmp_path: Path) -> None:
    files = {
        FILE: "server a\n",
        "/etc/site.conf": "confdir /etc/chrony/conf.d\ninclude /etc/more/*.conf\n",
        "/etc/chrony/conf.d/a.conf": "authselectmode require\n",
        "/etc/more/a.conf": "server a\n",
    }
    assert found(tmp_path, files) == []
    assert len(found(tmp_path, files, "/usr/sbin/chronyd -n -f /etc/site.conf")) == 1
    assert found(tmp_path, {FILE: f"{TWO}authselectmode require\n"}, "/usr/sbin/ntpd") == []
