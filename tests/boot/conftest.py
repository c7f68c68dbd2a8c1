# SPDX-License-Identifier: Apache-2.0
"""Boot tests boot `generic`, really built, in a room of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.boot.lab import Lab, lab
from tests.boot.node import Image
from tests.workshop import Workshop


@pytest.fixture(scope="session")
def image(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """`generic` as files: boot pair, command line, and the root as a tree and as squashfs."""
    top = tmp_path_factory.mktemp("image")
    workshop("export", "generic", os.fspath(top / "tree"))
    workshop("export", "--squashfs", "generic", os.fspath(top / "packed"))
    (top / "packed/root.squashfs").rename(top / "tree/root.squashfs")
    return Image(top / "tree")


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Lab]:
    """An empty laboratory; the host's mounts and network are the same before and after."""
    mounts = Path("/proc/self/mountinfo").read_text()
    nics = Path("/proc/net/dev").read_text().count(":")
    with lab(tmp_path) as empty:
        yield empty
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert Path("/proc/net/dev").read_text().count(":") == nics
