# SPDX-License-Identifier: Apache-2.0
"""The doctor on the host itself: real fakes on a path, texts of /proc, real folders."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.doctor import HostFinding, Severity, render_findings
from imagebuilder.doctor.host import (
    Need,
    examine_engine,
    examine_features,
    examine_kvm,
    examine_memory,
    examine_need,
    examine_python,
    examine_root,
    examine_space,
    examine_state,
    examine_type,
    load_needs,
    numbers,
    type_of_mount,
)
from imagebuilder.environment import base_environment
from imagebuilder.families.tool import Tool
from imagebuilder.folders import read_mounts

MOUNTINFO = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:25 / /srv rw shared:3 - nfs4 server:/srv rw,vers=4.2
31 30 0:26 / /srv/fast\\040disk rw shared:4 master:2 - xfs /dev/sdb rw
32 22 0:27 / /srv2 rw - tmpfs tmpfs rw
"""
NEED = Need("build", "frobnicate", "frob", "-", "frobnicates")


@pytest.fixture
def bin_path(tmp_path: Path) -> Path:
    """A folder with a program, frobnicate, that tells version 2.10.1."""
    program = tmp_path / "frobnicate"
    program.write_text("#!/bin/sh\necho frobnicate from frob-utils 2.10.1\n")
    program.chmod(0o755)
    return tmp_path


@pytest.fixture
def on_path(bin_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path programs are looked for on, with that folder first."""
    monkeypatch.setenv("PATH", f"{bin_path}:{os.environ['PATH']}")
    return base_environment()["PATH"]


def test_the_table_is_complete_and_names_every_group() -> None:
    needs = load_needs()
    assert {need.group for need in needs} == {
        "clone", "build", "rpm", "serve", "nfs", "dev", "boot", "tests",
    }  # fmt: skip
    assert all(need.purpose and need.package for need in needs)
    assert len({(need.group, need.tool) for need in needs}) == len(needs)
    tools = {need.tool for need in needs}
    assert {"mmdebstrap", "ostree", "unshare", "setpriv", "shellcheck"} <= tools
    assert all(numbers(need.least) for need in needs if need.least != "-")


def test_a_tool_that_is_there_is_ok(on_path: str) -> None:
    assert examine_need(NEED, on_path) == HostFinding("frobnicate", Severity.OK, "frobnicates")


@pytest.mark.parametrize("least", ["2.9", "2.10.1"])
def test_versions_are_compared_as_numbers(on_path: str, least: str) -> None:
    finding = examine_need(replace(NEED, least=least), on_path)
    assert finding == HostFinding("frobnicate", Severity.OK, "2.10.1: frobnicates")


def test_a_tool_that_is_too_old_is_a_problem(on_path: str) -> None:
    finding = examine_need(replace(NEED, least="2.11"), on_path)
    assert (finding.level, finding.what) == (
        Severity.PROBLEM, "2.10.1 is older than 2.11, the oldest version tested",
    )  # fmt: skip


def test_a_tool_without_a_version_is_a_warning(bin_path: Path, on_path: str) -> None:
    (bin_path / "frobnicate").write_text("#!/bin/sh\necho usage\n")
    assert examine_need(replace(NEED, least="1.0"), on_path).level is Severity.WARNING


@pytest.mark.parametrize(
    ("need", "level", "mend"),
    [
        (NEED, Severity.PROBLEM, "imagebuilder setup"),
        (replace(NEED, group="clone"), Severity.PROBLEM, "scripts/host-setup --clone"),
        (replace(NEED, group="dev"), Severity.WARNING, "scripts/host-setup --dev"),
        (replace(NEED, group="boot"), Severity.WARNING, "imagebuilder setup --boot"),
        (replace(NEED, group="tests"), Severity.WARNING, "scripts/host-setup --tests"),
        (replace(NEED, tool="/no/such/*.fd"), Severity.PROBLEM, "imagebuilder setup"),
        (replace(NEED, tool="module:no_such_module"), Severity.PROBLEM, "imagebuilder setup"),
    ],
)
def test_a_missing_tool_says_what_mends_it(need: Need, level: Severity, mend: str) -> None:
    finding = examine_need(need, "/nonexistent")
    assert (finding.level, finding.fix) == (level, mend)
    assert finding.what == "is not installed: frobnicates"


def test_what_only_some_bases_need_may_be_missing() -> None:
    finding = examine_need(replace(NEED, group="rpm"), "/nonexistent")
    assert (finding.level, finding.what, finding.fix) == (
        Severity.OK,
        "is not installed; only bases with `package-manager: rpm` need it: "
        "imagebuilder setup --rpm",
        "",
    )


def test_an_engine_is_needed_only_by_bases_that_name_it(on_path: str) -> None:
    tool = Tool("frob", "frobnicate", "apt-get install frob", least=2)
    assert on_path
    assert examine_engine(tool) == HostFinding(
        "frobnicate", Severity.OK, "2.10.1: makes first layers on request"
    )
    absent = examine_engine(replace(tool, program="defrobnicate"))
    assert (absent.level, absent.what) == (
        Severity.OK,
        "is not installed; only bases with `engine: frob` need it: apt-get install frob",
    )
    old = examine_engine(replace(tool, least=3))
    assert (old.level, old.fix) == (Severity.WARNING, "apt-get install frob")
    assert "has version 2.10.1, but at least 3 is needed" in old.what


def test_patterns_and_modules_are_found(tmp_path: Path) -> None:
    (tmp_path / "OVMF_4M.fd").touch()
    assert examine_need(replace(NEED, tool=f"{tmp_path}/OVMF*.fd"), "").ok
    assert examine_need(replace(NEED, tool="module:ensurepip"), "").ok


def test_python() -> None:
    assert examine_python((3, 11, 2)).ok
    assert examine_python((3, 10, 12)).level is Severity.PROBLEM


def test_root_or_sudo(bin_path: Path) -> None:
    assert examine_root("", is_root=True).ok
    assert examine_root(str(bin_path), is_root=False).level is Severity.PROBLEM
    (bin_path / "frobnicate").rename(bin_path / "sudo")
    assert examine_root(str(bin_path), is_root=False).ok


@pytest.mark.parametrize(
    ("free", "level"),
    [
        (10 * 10**9, Severity.OK), (10**10 - 1, Severity.WARNING), (3 * 10**9, Severity.WARNING),
        (3 * 10**9 - 1, Severity.PROBLEM),
    ],
)  # fmt: skip
def test_space(free: int, level: Severity) -> None:
    assert examine_space(free, Path("/var/lib/imagebuilder")).level is level


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/lib/imagebuilder", "ext4"),
        ("/srv/netboot", "nfs4"),
        ("/srv/fast disk/state", "xfs"),
        ("/srv2", "tmpfs"),
        ("/srv20", "ext4"),
    ],
)
def test_the_longest_mount_point_counts(folder: str, kind: str) -> None:
    assert type_of_mount(Path(folder), read_mounts(MOUNTINFO.encode())) == kind


@pytest.mark.parametrize(
    ("kind", "level"),
    [
        ("ext4", Severity.OK), ("xfs", Severity.OK), ("btrfs", Severity.OK),
        ("tmpfs", Severity.WARNING),
        ("nfs4", Severity.PROBLEM), ("overlay", Severity.PROBLEM), ("vfat", Severity.PROBLEM),
        ("fuse.sshfs", Severity.PROBLEM),
    ],
)  # fmt: skip
def test_types_of_file_systems(kind: str, level: Severity) -> None:
    assert examine_type(kind, Path("/x")).level is level


def test_features_are_tried_and_nothing_is_left(tmp_path: Path) -> None:
    assert examine_features(tmp_path, "ext4", is_root=False).ok
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_refuses_is_a_problem() -> None:
    finding = examine_features(Path("/proc/self"), "proc", is_root=False)
    assert finding.level is Severity.PROBLEM
    assert finding.what.startswith("could not write in /proc/self (proc): ")


def test_a_state_directory_that_is_not_there_yet_is_judged_by_its_parent(tmp_path: Path) -> None:
    space, fitness = examine_state(tmp_path / "a" / "b", is_root=False)
    assert str(tmp_path) in space.what
    assert str(tmp_path) in fitness.what
    assert list(tmp_path.iterdir()) == []


def test_memory() -> None:
    text = "MemTotal:       {} kB\nMemFree:         1 kB\n"
    assert examine_memory(text.format(16 * 1024**2)) == HostFinding(
        "memory", Severity.OK, "17 GB in total"
    )
    assert examine_memory(text.format(1024**2)).level is Severity.WARNING
    assert examine_memory("").level is Severity.WARNING


def test_kvm_is_only_information(tmp_path: Path) -> None:
    assert examine_kvm(tmp_path).ok
    assert examine_kvm(tmp_path / "kvm").ok


def test_findings_are_shown_worst_last_with_what_mends_them() -> None:
    findings = [
        HostFinding("ostree", Severity.PROBLEM, "is not installed", "imagebuilder setup"),
        HostFinding("python", Severity.OK, "3.11.2"),
    ]
    assert render_findings(findings).splitlines() == [
        "ok       python  3.11.2",
        "problem  ostree  is not installed",
        "                 fix: imagebuilder setup",
    ]
