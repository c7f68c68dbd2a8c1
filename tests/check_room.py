# SPDX-License-Identifier: Apache-2.0
"""Check files of a test's own, and facts for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from types import MappingProxyType

from imagebuilder.checks.facts import Facts
from imagebuilder.checks.find import CheckFile
from imagebuilder.digest import Json, digest_of_file
from imagebuilder.image.types import ImageLayer
from imagebuilder.report.types import Check, Outcome
from tests.images import IMAGE

HEAD = "from __future__ import annotations\nimport pytest\n"


def make_facts(declared: Mapping[str, Json] = MappingProxyType({})) -> Facts:
    """An image that declares this and next to nothing else."""
    layer = ImageLayer("configure own", "l2", dict(declared), 0, 0)
    image = replace(
        IMAGE, profile="p", version="v", overlays=("own",), listens=("22/tcp",), layers=(layer,)
    )
    return Facts(image)


def make_file(folder: Path, body: str, name: str = "test_own.py", group: str = "own") -> CheckFile:
    """A check file with that body."""
    path = folder / group / "checks" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD + dedent(body))
    return CheckFile(group, path, digest_of_file(path))


def by_name(checks: tuple[Check, ...]) -> dict[str, tuple[Outcome, str]]:
    """Outcome and message of each check."""
    return {check.name: (check.outcome, check.message) for check in checks}
