# SPDX-License-Identifier: Apache-2.0
"""What `apt-cache madison` says, and how a security pocket is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.families.apt.names import parse_offers
from imagebuilder.lock.changes import is_mixed, is_security
from imagebuilder.recipe.types import Source

SAID = """\
   openssl | 3.0.13-0ubuntu3.6 | http://archive.ubuntu.com/ubuntu noble-updates/main amd64 Packages
   openssl | 3.0.13-0ubuntu3.6 | http://archive.ubuntu.com/ubuntu noble-security/main amd64 Packages
   openssl |    3.0.13-0ubuntu3 | http://archive.ubuntu.com/ubuntu noble/main amd64 Packages
   openssl | 3.0.13-0ubuntu3 | http://archive.ubuntu.com/ubuntu noble/main Sources
  cuda-12 | 12.8 | https://developer.download.nvidia.com/compute/cuda  Packages
"""


def test_what_madison_says() -> None:
    assert parse_offers(SAID) == {
        ("openssl", "3.0.13-0ubuntu3.6"): ["noble-updates", "noble-security"],
        ("openssl", "3.0.13-0ubuntu3"): ["noble"],
    }


@pytest.mark.parametrize(
    ("suite", "security"),
    [("trixie", False), ("trixie-security", True), ("noble-apps-security", True),
     ("noble-updates", False), ("/", False)],
)  # fmt: skip
def test_security_pockets(suite: str, security: bool) -> None:  # noqa: FBT001  # a column
    assert is_security(suite) is security


@pytest.mark.parametrize(
    ("suites", "mixed"),
    [(("noble", "noble-security"), True), (("trixie", "trixie-updates"), False),
     (("trixie-security",), False)],
)  # fmt: skip
def test_mixed_sources(suites: tuple[str, ...], mixed: bool) -> None:  # noqa: FBT001  # a column
    assert is_mixed(Source("x", suites, ("main",), Path("/key"))) is mixed
