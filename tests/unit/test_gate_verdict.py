# SPDX-License-Identifier: Apache-2.0
"""A release that fails its test fails ours with the reason where a cut log still shows it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from imagebuilder.process import Completed
from imagebuilder.report.types import Stage, TrialVerdict
from tests.boot.verdict import passed_report

PASSED = TrialVerdict(passed=True)
FAILED = TrialVerdict(
    passed=False,
    stage=Stage.UNITS,
    what="1 unit failed",
    evidence=("a", "sshd: no host keys"),
    log="console-gate-1.log",
    hint="read its journal",
)


class Answered:
    """A program that ends with a report of these checks and trials, or with an error alone."""

    def __init__(self, status: int, *verdicts: TrialVerdict, error: str = "") -> None:
        checks = [
            {"group": "ssh", "name": "test_host_keys", "outcome": outcome, "message": "two"}
            for outcome in ("passed", "failed" if status else "skipped")
        ]
        trials = [{"firmware": "uefi", "root": "nfs", "verdict": asdict(each)} for each in verdicts]
        report = json.dumps({"static": checks, "trials": trials})
        self.completed = Completed(status, "" if error else report, error)

    def __call__(self, *words: str, check: bool, **more: str) -> Completed:
        assert (words, check) == (("test", "generic", "--root", "nfs", "--json"), False)
        assert more == {"IMAGEBUILDER_TREE": "/tree"}
        return self.completed


def report(answered: Answered) -> dict[str, Any]:
    return passed_report(answered, "generic", "--root", "nfs", tree=Path("/tree"))


def test_a_report_that_passed_is_returned() -> None:
    assert report(Answered(0, PASSED))["trials"][0]["verdict"]["passed"]


def test_the_failed_checks_and_trials_are_told() -> None:
    with pytest.raises(AssertionError) as failed:
        report(Answered(1, PASSED, FAILED))
    assert str(failed.value).splitlines()[:5] == [
        "generic failed its test",
        "ssh: test_host_keys: two",
        "uefi and nfs: units: 1 unit failed; read its journal",
        "console-gate-1.log: a",
        "console-gate-1.log: sshd: no host keys",
    ]


def test_a_command_without_a_report_is_told_by_its_error() -> None:
    with pytest.raises(AssertionError, match="exit status 2\nerror: no release generic"):
        report(Answered(2, error="error: no release generic"))
