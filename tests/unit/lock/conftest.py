# SPDX-License-Identifier: Apache-2.0
"""One key and one built pool for all tests; an archive and a server for each."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from imagebuilder.lock.types import Lock
from tests.fixtures.aptrepo import (
    WITHOUT_PROXY,
    SigningKey,
    keyring,
    make_archive,
    make_deb,
    make_key,
    served,
)
from tests.unit.lock.world import DATE, DEBS, HELLO, World, hello_recipe


@pytest.fixture(autouse=True)
def _loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy for the loopback."""
    for name, value in WITHOUT_PROXY.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def keys() -> Iterator[tuple[SigningKey, SigningKey]]:
    """The archive's key, and a stranger's."""
    with keyring() as home:
        yield make_key(home, "Archive"), make_key(home, "Stranger")


@pytest.fixture(scope="session")
def template(keys: tuple[SigningKey, SigningKey], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive that never ends, with every package of the tests in its pool."""
    folder = tmp_path_factory.mktemp("template")
    make_archive(folder, DEBS, keys[0], date=DATE)
    make_deb(HELLO, folder / "pool" / HELLO.file_name)
    return folder


@pytest.fixture
def world(keys: tuple[SigningKey, SigningKey], template: Path, tmp_path: Path) -> Iterator[World]:
    """An archive of its own, served."""
    folder = tmp_path / "archive"
    shutil.copytree(template / "dists", folder / "dists")
    shutil.copytree(template / "pool", folder / "pool", copy_function=os.link)
    with served(folder) as server:
        yield World(
            folder, server, keys[0], tmp_path / "cache", tmp_path / "debs", tmp_path / "wheels"
        )


@pytest.fixture(scope="session")
def hello_lock(
    keys: tuple[SigningKey, SigningKey],
    template: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Lock:
    """A lock of `hello_recipe()`: it is the same wherever the archive is served."""
    away = tmp_path_factory.mktemp("away")
    with served(template) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in WITHOUT_PROXY.items():
            patch.setenv(name, value)
        world = World(template, server, keys[0], away / "cache", away / "debs", away / "wheels")
        return world.lock(hello_recipe(world))
