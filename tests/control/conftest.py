# SPDX-License-Identifier: Apache-2.0
"""What the test of the control node starts from: a checkout, its wheel, disks and a release."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from imagebuilder.process import run
from imagebuilder.settings import DEFAULT_STATE
from tests.control.disk import Disk, make_disk
from tests.control.installed import Installed, install
from tests.control.page import Page
from tests.control.released import release
from tests.control.world import ADDRESS, Builder, wires
from tests.workshop import CHECKOUT, Workshop


@pytest.fixture(scope="session")
def kept() -> Path:
    """Where disks stay for the next run."""
    return Path(os.environ.get("IMAGEBUILDER_STATE") or DEFAULT_STATE) / "control-node"


@pytest.fixture(scope="session")
def page() -> Page:
    return Page()


@pytest.fixture(scope="session")
def disk(kept: Path) -> Disk:
    """A Debian that nothing of the page was typed on."""
    return make_disk(kept, ADDRESS)


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of what this checkout has, changes that are not committed included."""
    target = tmp_path_factory.mktemp("clone")
    listed = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                 cwd=CHECKOUT).stdout.split("\0")  # fmt: skip
    for name in filter(None, listed):
        if (CHECKOUT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes((CHECKOUT / name).read_bytes())
            (target / name).chmod((CHECKOUT / name).stat().st_mode & 0o777)
    return target


@pytest.fixture(scope="session")
def built(disk: Disk, checkout: Path, page: Page, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout after "Build the wheel"."""
    work = tmp_path_factory.mktemp("wheel")
    with wires(work, disk) as room:
        for block in page.take("Build the wheel"):
            Builder(room, None, checkout).type_online(block.script)
    return checkout


@pytest.fixture(scope="session")
def installed(kept: Path, disk: Disk, built: Path, page: Page) -> Installed:
    """The control node after "Install the tool"."""
    return install(kept, disk, built, page.take("Install the tool"))


@pytest.fixture(scope="session")
def released(
    kept: Path, disk: Disk, built: Path, page: Page, tmp_path_factory: pytest.TempPathFactory
) -> Workshop:
    """The builder after "Build and test a release"."""
    blocks = page.take("Build and test a release")
    return release(kept, disk, built, blocks, tmp_path_factory.mktemp("release"))


@pytest.fixture
def builder(
    installed: Installed, released: Workshop, built: Path, tmp_path: Path
) -> Iterator[Builder]:
    """The builder on the wire of a control node that is not switched on."""
    with wires(tmp_path, installed.disk) as room:
        yield Builder(room, released, built)
