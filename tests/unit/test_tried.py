# SPDX-License-Identifier: Apache-2.0
"""The table of what was booted: every shipped profile is in it, and it is what the record says."""

from __future__ import annotations

import json
from pathlib import Path

from imagebuilder.report.types import REPORT
from scripts.benchmark.tried import (
    BEGIN,
    END,
    PAGE,
    Tried,
    main,
    read_record,
    read_report,
    render,
    with_report,
)
from tests.unit.report import samples

CHECKOUT = Path(__file__).parents[2]


def test_the_page_says_what_was_recorded() -> None:
    page = (CHECKOUT / PAGE).read_text()
    written = page.partition(BEGIN)[2].partition(END)[0]
    assert written == render(read_record(CHECKOUT), CHECKOUT)
    for recipe in (CHECKOUT / "recipes").glob("*.yaml"):
        assert f"| `{recipe.stem}` |" in written


def test_what_did_not_happen_is_never(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / f"recipes/{name}.yaml").touch()
    results = {
        "a": Tried("2026-11-23", "yes", {"uefi": "PASS", "bios": "FAIL in ssh"}, "cpu"),
        "b.other": Tried("2026-11-22", "no: error: full", {}),
    }
    assert not results["a"].passed
    assert render(results, tmp_path).splitlines()[2:] == [
        "| `a` | its own | yes | PASS | FAIL in ssh | cpu | 2026-11-23 |",
        "| `b` | its own | never | never | never | - | - |",
        "| `b` | `other` | no: error: full | never | never | - | 2026-11-22 |",
        "| `c` | its own | never | never | never | - | - |",
    ]


def test_a_profile_that_is_not_shipped_is_refused(tmp_path: Path) -> None:
    assert main(["minimal.absent"], CHECKOUT) == 2
    assert main(["absent"], tmp_path) == 2


def test_a_report_from_elsewhere_counts() -> None:
    before = Tried("2026-01-01", "yes", {"bios": "PASS"})
    report = samples.passed()
    after = with_report(before, report)
    assert after.boots == {"bios": "PASS"} | {trial.firmware: "PASS" for trial in report.trials}
    assert after.date == report.started[:10]
    text = "demo@1: published\n" + json.dumps(REPORT.encode(report), indent=1)
    assert read_report(text) == report
