# SPDX-License-Identifier: Apache-2.0
"""A look that failed is told as one, and is never taken for absence."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.doctor.finding import Severity
from imagebuilder.doctor.host import load_needs, nearest_folder
from imagebuilder.doctor.serve import (
    examine_firewall,
    examine_nfs,
    examine_serve,
    examine_tree,
    read_ufw,
)
from imagebuilder.tree import Tree, make_tree

UNREADABLE = Path("/sys/bus/platform/drivers_probe")  # for root too


def test_a_firewall_that_we_may_not_read_is_not_none(tmp_path: Path) -> None:
    with pytest.raises(PermissionError):
        UNREADABLE.read_text()
    assert read_ufw(UNREADABLE) is None
    (finding,) = examine_firewall(read_ufw(UNREADABLE))
    assert "this needs root" in finding.what
    assert read_ufw(tmp_path / "ufw.conf") == ""
    assert list(examine_firewall("")) == []
    (finding,) = examine_firewall("ENABLED=yes\n")
    assert finding.level is Severity.WARNING


def test_an_nfs_server_that_we_may_not_look_at_is_no_problem() -> None:
    finding = examine_nfs(running=None)
    assert finding.level is Severity.OK
    assert "this needs root" in finding.what


def test_the_nearest_folder_is_one_that_we_see(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert nearest_folder(tmp_path / "file/below") == tmp_path
    assert nearest_folder(tmp_path / "gone/below") == tmp_path


def test_nothing_is_asked_for_that_only_a_builder_needs(tmp_path: Path) -> None:
    needs = load_needs()
    serving = {need.tool for need in needs if need.group in ("serve", "nfs")}
    building = {need.tool for need in needs if need.group == "build"} - serving
    assert {"mmdebstrap", "apt-get"} <= building
    found = examine_serve(Tree(tmp_path), "")
    assert {finding.subject for finding in found}.isdisjoint(building)
    assert "ostree" in {finding.subject for finding in found}, "a release is made here too"


@pytest.mark.parametrize("separate", [False, True])
def test_files_of_this_host_beside_the_export_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, separate: bool
) -> None:
    monkeypatch.setattr("imagebuilder.doctor.serve.has_separate_mount", lambda _: separate)
    tree = make_tree(tmp_path / "tree")
    found = {each.subject: each for each in examine_tree(tree, is_root=False)}
    assert ("export" not in found) is separate
    if not separate:
        assert found["export"].level is Severity.WARNING
        assert found["export"].fix == f"put {tree.path} on a file system of its own"
