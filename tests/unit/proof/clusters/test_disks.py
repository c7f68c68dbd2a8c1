# SPDX-License-Identifier: Apache-2.0
"""Lists of the disks of one machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.proof.clusters.state import prove_disks
from imagebuilder.proof.reading.systemd import Startup
from tests.unit.proof.trees import Content, Program, make_tree, running, subject

LIST, CONFIG = "/etc/lvm/devices/system.devices", "/etc/lvm/lvm.conf"
ONE = "VERSION=1.1.3\nIDTYPE=sys_wwid IDNAME=eui.002538b141b0c2f7 DEVNAME=/dev/nvme0n1 PVID=k3XU\n"
BY_ID = 'devices {{\n  global_filter = [ "a|/dev/disk/by-id/{}|", "r|.*|" ]\n}}\n'


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({LIST: ONE}, f"{LIST} lists the disks of one machine (eui.002538b141b0c2f7)"),
        ({LIST: ONE, CONFIG: "devices {\n  use_devicesfile = 1\n}\n"}, "lists the disks"),
        ({CONFIG: BY_ID.format("nvme-S4EVNX0R123456")}, "accepts the disks of one machine alone"),
        ({LIST: ONE, CONFIG: "devices {\n  use_devicesfile = 0\n}\n"}, ""),
        ({LIST: "IDTYPE=devname IDNAME=/dev/sdb DEVNAME=/dev/sdb PVID=k3XU\n"}, ""),
        (
            {LIST: ONE, "/etc/lvm/lvmlocal.conf": 'devices {\n devicesfile = "site.devices"\n}\n'},
            "",
        ),
        ({LIST: ONE, "/etc/tmpfiles.d/lvm.conf": f"r {LIST}\n"}, ""),
        ({CONFIG: BY_ID.format("nvme-*")}, ""),
        ({CONFIG: 'devices {\n  filter = [ "a|/dev/nvme0n1|", "r|.*|" ]\n}\n'}, ""),
        ({CONFIG: 'devices {\n  # global_filter = [ "a|.*|" ]\n}\n'}, ""),
    ],
)
def test_disks_of_one_machine(files: dict[str, Content], said: str, tmp_path: Path) -> None:
    nothing = Startup(frozenset(), {}, {}, ())
    given = subject(make_tree(tmp_path, {"/usr/sbin/lvm": Program(), **files}))
    given.__dict__["shipped"] = {}
    found = [finding.what for finding in prove_disks(running(given, nothing))]
    assert [said in what for what in found] == ([True] if said else [])


def test_without_lvm_nobody_reads_it(tmp_path: Path) -> None:
    given = subject(make_tree(tmp_path, {LIST: ONE}))
    assert list(prove_disks(running(given, Startup(frozenset(), {}, {}, ())))) == []
