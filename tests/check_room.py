# SPDX-License-Identifier: Apache-2.0
"""Check files of a test's own, and facts for them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from imagebuilder.checks.facts import Facts
from imagebuilder.checks.find import CheckFile
from imagebuilder.digest import digest_of_file
from imagebuilder.report.types import Check, Outcome

HEAD = "from __future__ import annotations\nimport pytest\n"


def make_facts() -> Facts:
    """An image that declares next to nothing."""
    return Facts("p", "v", "6.1", ("own",), "nfs", ("quiet",), (), ("22/tcp",), (), (), "", "")


def make_file(folder: Path, body: str, name: str = "test_own.py", group: str = "own") -> CheckFile:
    """A check file with that body."""
    path = folder / group / "checks" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD + dedent(body))
    return CheckFile(group, path, digest_of_file(path))


def by_name(checks: tuple[Check, ...]) -> dict[str, tuple[Outcome, str]]:
    """Outcome and message of each check."""
    return {check.name: (check.outcome, check.message) for check in checks}
