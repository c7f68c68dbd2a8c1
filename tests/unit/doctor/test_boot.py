# SPDX-License-Identifier: Apache-2.0
"""The doctor on boot tests: what it looks at, and how it says that machines are slow."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.boot.machine import MEMORY_MIB
from imagebuilder.doctor import Severity
from imagebuilder.doctor.boot import SERVERS, examine_acceleration, examine_boot, examine_free
from imagebuilder.doctor.host import Need, examine_need, load_needs
from imagebuilder.tree import make_tree


def test_a_tool_that_a_boot_test_needs_is_a_problem_with_the_command_that_mends_it() -> None:
    need = Need("boot", "frobnicate", "frob", "-", "frobnicates")
    finding = examine_need(need, "/nowhere", required=True)
    assert (finding.level, finding.fix) == (Severity.PROBLEM, "imagebuilder setup --boot")
    assert examine_need(need, "/nowhere").level is Severity.WARNING


@pytest.mark.parametrize(
    ("spare", "level"), [(0, Severity.OK), (-1, Severity.WARNING)], ids=["enough", "too little"]
)
def test_memory_is_what_is_free_now(spare: int, level: Severity) -> None:
    free = MEMORY_MIB * 1024 + spare
    finding = examine_free(f"MemTotal: 99999999 kB\nMemAvailable: {free} kB\nHugePages_Total: 0\n")
    assert finding.level is level
    assert "a machine needs 2.1 GB" in finding.what


def test_without_a_kernel_kvm_is_not_tried(tmp_path: Path) -> None:
    finding = examine_acceleration(None, "/nowhere", is_root=True)
    assert finding.ok
    assert finding == examine_acceleration(tmp_path / "vmlinuz", "/nowhere", is_root=True)


def test_everything_a_test_starts_is_looked_at(tmp_path: Path) -> None:
    subjects = {finding.subject for finding in examine_boot(make_tree(tmp_path))}
    wanted = {"qemu-system-x86_64", "ganesha.nfsd", "rpcbind", "mke2fs", "ovmf", "ipxe", *SERVERS}
    assert wanted <= subjects
    assert {"root", "memory", "kvm"} <= subjects
    assert not {"sshd", "exportfs", "xorriso", "mmdebstrap"} & subjects
    assert set(SERVERS) <= {need.tool for need in load_needs() if need.group == "serve"}
