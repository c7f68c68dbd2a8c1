# SPDX-License-Identifier: Apache-2.0
"""`imagebuilder test` as its user types it: a report that opens the gate, and one that does not.

IMAGEBUILDER_TEST_KILLS is how often test_killed_at_any_moment_nothing_is_left kills,
IMAGEBUILDER_TEST_KILLS_WITHIN the seconds in which it does.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.boot.conftest import untouched_host
from tests.boot.server import Published, copy_tree
from tests.boot.verdict import passed_report
from tests.integration.changes import add_file, linked
from tests.integration.started import (
    PATIENCE,
    find_descendants,
    orphans_are_ours,
    start,
    wait_until,
)
from tests.sampling import ALL, times
from tests.workshop import Workshop

pytestmark = pytest.mark.boot

KILLS = int(os.environ.get("IMAGEBUILDER_TEST_KILLS", times(2, 10)))
WITHIN = float(os.environ.get("IMAGEBUILDER_TEST_KILLS_WITHIN", "12"))
# What every machine passes, whatever its firmware: BIOS machines bring iPXE with them.
PASSED = [
    "dhcp", "ipxe", "release", "kernel", "initrd", "network", "root", "switch-root", "units", "ssh",
    "checks", "inference", "shutdown", "reboot",
]  # fmt: skip


@pytest.fixture
def tree(published: Published, tmp_path: Path) -> Path:
    """A tree of one's own with both versions of `generic`."""
    return copy_tree(published, tmp_path / "tree")


def report_of(workshop: Workshop, name: str, *words: str, tree: Path) -> dict[str, Any]:
    """Test a release, which must pass and leave this host as it was; the report."""
    with untouched_host():
        return passed_report(workshop, name, *words, tree=tree)


def check_boot(
    report: dict[str, Any], firmware: str, root: str, stages: list[str]
) -> list[dict[str, Any]]:
    """The machines of the one trial, which passed these stages; no check of theirs has failed."""
    (trial,) = report["trials"]
    assert (trial["firmware"], trial["root"]) == (firmware, root)
    assert trial["verdict"]["passed"]
    for machine in trial["machines"]:
        passed = [reached["stage"] for reached in machine["stages"]]
        assert [stage for stage in passed if stage not in ("firmware", "boot-file")] == stages
        assert {check["outcome"] for check in machine["checks"]} <= {"passed", "skipped"}
    found: list[dict[str, Any]] = trial["machines"]
    return found


def check_report(report: dict[str, Any], firmware: str, root: str) -> None:
    """What the report of a node that is as it should be says."""
    (machine,) = check_boot(report, firmware, root, PASSED)
    assert {check["outcome"] for check in report["static"]} <= {"passed", "skipped"}
    assert len(report["static"]) > 50
    assert len(machine["checks"]) > 10
    inference = report["trials"][0]["inference"]
    assert (inference["expected"], inference["used"]) == ("cpu", "cpu")
    assert inference["tokens"] > 8


def test_over_uefi_and_nfs_a_release_passes_and_may_become_stable(
    workshop: Workshop, published: Published, tree: Path, tmp_path: Path
) -> None:
    page, junit = tmp_path / "report.html", tmp_path / "report.xml"
    there = os.fspath(tree)

    # 1. Without a report it may not.
    refused = workshop("promote", "generic", check=False, IMAGEBUILDER_TREE=there)
    assert refused.status == 1
    assert "imagebuilder test generic" in refused.stderr

    # 2. It boots.
    files = ("--html", os.fspath(page), "--junit", os.fspath(junit))
    report = report_of(workshop, "generic", *files, tree=tree)
    check_report(report, "uefi", "nfs")
    assert report["version"] == published.new, "the candidate"
    assert "<html" in page.read_text()
    assert not ET.parse(junit).findall(".//failure")

    # 3. Now it may, and the journal says why.
    workshop("promote", "generic", IMAGEBUILDER_TREE=there)
    last = json.loads((tree / "journal.jsonl").read_text().splitlines()[-1])
    assert (last["event"], last["report"]) == ("promote", report["id"])
    listed = json.loads(workshop("releases", "generic", "--json", IMAGEBUILDER_TREE=there).stdout)
    assert {entry["version"]: entry["tested"] for entry in listed}[published.new] is True


def test_over_bios_and_http_a_release_passes(
    workshop: Workshop, published: Published, tree: Path
) -> None:
    words = ("--firmware", "bios", "--root", "http")
    if ALL:
        report = report_of(workshop, f"generic@{published.old}", *words, tree=tree)
        check_report(report, "bios", "http")
        return
    # A selection of checks ends after the first boot: the second one is UEFI's to show.
    report = report_of(workshop, f"generic@{published.old}", *words, "-k", "netboot", tree=tree)
    (machine,) = check_boot(report, "bios", "http", PASSED[: PASSED.index("checks") + 1])
    assert machine["checks"]


def test_a_lease_in_the_tree_ends_the_test_at_once_and_the_gate_stays_shut(
    workshop: Workshop, published: Published, tree: Path, tmp_path: Path
) -> None:
    changed = linked(workshop, tmp_path / "changed")
    there = os.fspath(tree)
    lease = "var/lib/NetworkManager/eth0.lease"
    add_file(changed.project, "llama-cpp", lease, "ADDRESS=10.0.0.7\n", 0o644)
    image = json.loads(changed("build", "generic", "--json").stdout)["image"]
    changed("publish", image, IMAGEBUILDER_TREE=there)
    done = changed("test", "generic", check=False, IMAGEBUILDER_TREE=there)
    assert done.status == 1
    assert "FAILED in stage static" in done.stdout
    assert f"/{lease}" in done.stdout
    refused = changed("promote", "generic", check=False, IMAGEBUILDER_TREE=there)
    assert refused.status == 1
    assert "the static checks failed" in refused.stderr
    assert (tree / "channels/generic/stable").readlink().name == published.old


def test_killed_at_any_moment_nothing_is_left(
    workshop: Workshop, published: Published, tree: Path, tmp_path: Path
) -> None:
    words = workshop.argv("test", f"generic@{published.old}", "--firmware", "bios")
    env = workshop.env(IMAGEBUILDER_TREE=os.fspath(tree))
    for number in range(KILLS):
        with untouched_host(), orphans_are_ours():
            running = start(words, env, tmp_path / f"kill{number}")
            time.sleep(random.uniform(0.5, WITHIN))  # any moment will do
            assert running.find_end() is None, running.stderr
            running.send(signal.SIGKILL)
            running.wait(PATIENCE)
            wait_until(lambda: not find_descendants(), "processes of a killed test are left")
        assert processes_that_see(tree) == []
    # What it was working on is swept by the next one.
    workshop("test", "generic@nothing", check=False, IMAGEBUILDER_TREE=os.fspath(tree))
    assert not list((tree / "reports/generic").rglob("report.json"))


def processes_that_see(tree: Path) -> list[str]:
    """The command lines of all processes, whatever their namespaces, that have `tree` mounted."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it may end meanwhile
            if os.fspath(tree) in (process / "mountinfo").read_text():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found
