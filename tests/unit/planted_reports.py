# SPDX-License-Identifier: Apache-2.0
"""Reports as a boot test leaves them, without the boot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from imagebuilder.publish.release.content import release_digests
from imagebuilder.report.save import begin_report, save_report
from imagebuilder.report.types import (
    ORDER,
    Check,
    MachineReport,
    Outcome,
    Reached,
    Report,
    Stage,
    Trial,
    TrialVerdict,
)
from imagebuilder.tree import ReleaseName, Tree

PASSED = TrialVerdict(passed=True)
NO_ROOT = TrialVerdict(
    passed=False,
    stage=Stage.ROOT,
    what="mount.nfs4: access denied",
    log="uefi+nfs-console-gate-1.log",  # as the boot test names it
)


def make_report(
    tree: Tree,
    name: str,
    number: int,
    *,
    root: str = "nfs",
    verdict: TrialVerdict = PASSED,
    selection: str = "",
    other: Mapping[str, str] | None = None,
    checks: int = 3,
) -> Report:
    """Report `number` of the release `profile@version`; `other` are digests it has otherwise."""
    profile, _, version = name.partition("@")
    ran = tuple(
        Check("common", f"test_{index}", "boot", Outcome.PASSED, 0.1, "as it should be" * 5)
        for index in range(checks)
    )
    stages = tuple(Reached(stage, float(index)) for index, stage in enumerate(ORDER))
    machine = MachineReport("gate-1", "52:54:00:77:00:01", "10.77.0.11", stages, ran, NO_ROOT.log)
    return Report(
        id=f"20261121T1000{number:02}Z",
        profile=profile,
        version=version,
        digests=release_digests(tree, ReleaseName(profile, version)) | dict(other or {}),
        started=f"2026-11-21T10:00:{number:02}+00:00",
        seconds=61.0,
        acceleration="kvm",
        why="a kernel started",
        host="here",
        tool="0",
        selection=selection,
        sizes={},
        files={},
        static=(),
        trials=(Trial("uefi", root, (machine,), verdict, 60.0),),
    )


def plant(tree: Tree, report: Report) -> Path:
    """Save a report as the boot test does."""
    with begin_report(tree, report.release, report.id) as staged:
        (staged / NO_ROOT.log).write_text("1.0 Linux version 7.0\n")
        return save_report(tree, report, staged)
