# SPDX-License-Identifier: Apache-2.0
"""Why a release failed its test, in the words that pytest repeats in the last lines of a run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from imagebuilder.process import Completed


def passed_report(
    program: Callable[..., Completed], name: str, *words: str, tree: Path
) -> dict[str, Any]:
    """Run `imagebuilder test NAME WORDS` on a tree, which must pass; its report.

    `program` runs imagebuilder, as a Workshop does.

    Fails with the verdict and its evidence otherwise: pytest's summary shows them under CI, where
    the output of the command itself is long gone.
    """
    done = program("test", name, *words, "--json", check=False, IMAGEBUILDER_TREE=os.fspath(tree))
    assert done.stdout, f"{name}: no report, exit status {done.status}\n{done.stderr[-2000:]}"
    report: dict[str, Any] = json.loads(done.stdout)
    assert done.status == 0, "\n".join((f"{name} failed its test", *reasons(report)))
    return report


def reasons(report: dict[str, Any]) -> Iterator[str]:
    """The checks that failed before a boot, and what each trial that failed says."""
    for check in report["static"]:
        if check["outcome"] not in ("passed", "skipped"):
            yield f"{check['group']}: {check['name']}: {check['message']}"
    for trial in report["trials"]:
        verdict = trial["verdict"]
        if not verdict["passed"]:
            way = f"{trial['firmware']} and {trial['root']}"
            yield f"{way}: {verdict['stage']}: {verdict['what']}; {verdict['hint']}"
            yield from (f"{verdict['log']}: {line}" for line in verdict["evidence"])
