# SPDX-License-Identifier: Apache-2.0
"""What checks read of a root, whose files may be links to this host, or pipes."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.unit.proof.trees import Link, make_tree


@pytest.fixture
def common(pytestconfig: pytest.Config) -> Callable[[str], Any]:
    """Imports a module of checks, whose marks its plugin would register."""
    pytestconfig.addinivalue_line("markers", "static: as the plugin does")
    return lambda name: import_module(f"imagebuilder.checks.common.{name}")


def test_checks_read_no_file_of_this_host_and_wait_for_no_pipe(
    tmp_path: Path, common: Callable[[str], Any]
) -> None:
    outside = make_tree(tmp_path / "outside", {"/group": "theirs:x:7:\n"})
    tree = tmp_path / "tree"
    make_tree(tree, {"/etc/group": Link(f"{outside.path}/group"), "/etc/sysctl.d/": ""})
    os.mkfifo(tree / "etc/passwd")
    rows = common("test_tree").rows
    assert list(rows(tree, "/etc/group")) == list(rows(tree, "/etc/passwd")) == []
    os.mkfifo(tree / "etc/machine-id")
    with pytest.raises(pytest.fail.Exception, match="is missing"):
        common("test_identity").test_machine_id_is_empty(tree)
