# SPDX-License-Identifier: Apache-2.0
"""The releases, and the three nodes, both for all tests: they follow one another."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from imagebuilder.settings import DEFAULT_STATE
from tests.rollout.releases import Releases, make_releases
from tests.rollout.world import World, world


@pytest.fixture(scope="session")
def kept() -> Path:
    """Where logs and figures stay."""
    folder = Path(os.environ.get("IMAGEBUILDER_STATE") or DEFAULT_STATE) / "rollout"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Releases:
    return make_releases(tmp_path_factory.mktemp("releases"))


@pytest.fixture(scope="session")
def three(releases: Releases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Three nodes that run the old release."""
    with world(tmp_path_factory.mktemp("rollout"), releases) as nodes:
        yield nodes
