# SPDX-License-Identifier: Apache-2.0
"""Integration tests run as root: a root filesystem cannot be made otherwise."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from imagebuilder.store.repository import ImageRef, Store, make_store
from imagebuilder.tree import Tree, make_tree
from tests.integration.published import make_image, memory_folder

BUSYBOX = (
    "sh", "cat", "ls", "mkdir", "rm", "mv", "touch", "tar", "realpath", "env", "id", "sleep",
    "date", "hostname", "ip", "mount", "echo", "chmod", "ln", "mkfifo", "stat", "dirname", "kill",
    "mknod", "test", "printf", "head", "grep",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _as_root() -> None:
    """Fail, not skip: a suite that ran nothing must not look green."""
    assert os.geteuid() == 0, "integration tests need root: make integration asks for it"


@pytest.fixture(autouse=True)
def _host_is_untouched() -> Iterator[None]:
    """The host's mount table is the same before and after every test."""
    before = Path("/proc/self/mountinfo").read_text()
    yield
    assert Path("/proc/self/mountinfo").read_text() == before


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return make_store(tmp_path / "state/store")


@pytest.fixture
def busybox(tmp_path: Path) -> Path:
    """A work directory whose tree `c` is a tiny root: a static busybox with its links."""
    work = tmp_path / "work"
    root = work / "c"
    for name in ("usr/bin", "usr/sbin", "etc", "proc", "sys", "dev", "run", "tmp"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "sbin"):
        (root / name).symlink_to(f"usr/{name}")
    shell = root / "usr/bin/busybox"
    shell.write_bytes(Path("/bin/busybox").read_bytes())
    shell.chmod(0o755)
    for name in BUSYBOX:
        (root / "usr/bin" / name).symlink_to("busybox")
    return work


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder in memory, for releases and all they are made of."""
    with memory_folder() as folder:
        yield folder


@pytest.fixture
def tree(place: Path) -> Tree:
    """An empty tree."""
    return make_tree(place / "netboot")


@pytest.fixture
def images(store: Store, place: Path) -> list[ImageRef]:
    """Four images that share nearly everything, oldest first."""
    return [make_image(store, place, number) for number in range(1, 5)]
