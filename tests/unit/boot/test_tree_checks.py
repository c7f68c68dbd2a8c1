# SPDX-License-Identifier: Apache-2.0
"""What `imagebuilder check` tells of the checks that ran."""

from __future__ import annotations

import json

from imagebuilder.boot.tree_checks import TreeCheckResult
from imagebuilder.checks.run import tell_checks
from imagebuilder.report.types import Check, Outcome

GOOD = Check("common", "test_root_is_good", "static", Outcome.PASSED, 0.1)
SKIPPED = Check("ssh", "test_keys", "static", Outcome.SKIPPED, 0.0, "not at hand")
BAD = Check("ssh", "test_no_host_key", "static", Outcome.FAILED, 0.2, "a key\nremove it")


def test_the_result_shows_what_did_not_pass_and_why() -> None:
    assert TreeCheckResult("p@1", (GOOD, BAD, SKIPPED)).render() == (
        "SKIPPED ssh: keys\n    not at hand\n"
        "FAILED ssh: no host key\n    a key\n    remove it\n"
        "p@1: 1 passed, 1 failed, 1 skipped"
    )
    assert TreeCheckResult("p@1", (GOOD,)).render() == "p@1: 1 passed"


def test_skipped_is_no_failure() -> None:
    assert TreeCheckResult("p@1", (GOOD, SKIPPED)).passed
    assert not TreeCheckResult("p@1", (GOOD, BAD)).passed


def test_json_has_every_check() -> None:
    told = json.loads(json.dumps(TreeCheckResult("p@1", (GOOD, BAD)).as_json()))
    assert (told["image"], told["ok"]) == ("p@1", False)
    assert told["checks"][1] == {
        "group": "ssh", "name": "test_no_host_key", "kind": "static", "outcome": "failed",
        "seconds": 0.2, "message": "a key\nremove it",
    }  # fmt: skip


def test_checks_are_counted() -> None:
    assert tell_checks((GOOD,)) == "1 check"
    assert tell_checks((GOOD, GOOD, BAD)) == "3 checks, 1 failed"
