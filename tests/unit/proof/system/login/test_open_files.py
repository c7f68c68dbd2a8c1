# SPDX-License-Identifier: Apache-2.0
"""Limits of open files above fs.nr_open."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.proof.system.login.limits import prove_open_files
from tests.unit.proof.trees import Sandbox, make_tree, subject

PASSWD = "root:x:0:0::/root:/bin/sh\ncompute:x:1000:1000::/home/compute:/bin/sh\n"


@pytest.mark.parametrize(
    ("limit", "sysctl", "who"),
    [
        ("* - nofile 2097152", "fs.nr_open = 1048576", "compute"),
        ("* hard nofile 2097152", "fs.nr_open = 1048576", "compute"),
        ("root - nofile 2097152", "fs.nr_open = 1048576", "root"),
        ("* - nofile 1048576", "fs.nr_open = 1048576", ""),
        ("* soft nofile 2097152", "fs.nr_open = 1048576", ""),
        ("* - nofile unlimited", "fs.nr_open = 1048576", ""),
        ("* - memlock 2097152", "fs.nr_open = 1048576", ""),
        ("* - nofile 2097152", "fs.file-max = 1048576", ""),
        ("* - nofile 2097152", "fs.nr_open = 1073741816", ""),
    ],
)
def test_more_open_files_than_the_kernel_allows(
    limit: str, sysctl: str, who: str, tmp_path: Path
) -> None:
    root = make_tree(
        tmp_path, {"/etc/passwd": PASSWD, "/etc/security/limits.d/9.conf": f"{limit}\n"}
    )
    run = Sandbox({"systemd-analyze cat-config sysctl.d": f"# /etc/sysctl.d/9.conf\n{sysctl}\n"})
    found = [finding.what for finding in prove_open_files(subject(root, run=run))]
    assert [f": {who} cannot have" in what for what in found] == ([True] if who else [])
