# SPDX-License-Identifier: Apache-2.0
"""A small fleet, and a client of the application on it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from imagebuilder.web.app import make_app
from imagebuilder.web.site import WebSite
from tests.fleet_world import FleetWorld, make_site, make_world
from tests.unit.web.acting import ActingSite, acting


@pytest.fixture
def fleet_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty folder, the same for every test: the same nodes.yaml there is parsed once."""
    folder = tmp_path_factory.getbasetemp() / "fleet"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def world(fleet_folder: Path) -> FleetWorld:
    return make_world(fleet_folder, racks=2)


@pytest.fixture
def site(world: FleetWorld) -> WebSite:
    return make_site(world)


@pytest.fixture
def client(site: WebSite) -> Iterator[TestClient]:
    with TestClient(make_app(site, ["testserver"]), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def steady_world(tmp_path_factory: pytest.TempPathFactory) -> FleetWorld:
    return make_world(tmp_path_factory.mktemp("steady"), racks=2)


@pytest.fixture(scope="module")
def steady_client(steady_world: FleetWorld) -> Iterator[TestClient]:
    """A client for tests that only read, of a fleet that nothing changes."""
    app = make_app(make_site(steady_world), ["testserver"])
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def people(world: FleetWorld, tmp_path: Path) -> Iterator[ActingSite]:
    """A site on which people with a token of each role may act."""
    world.plant_history()
    with acting(world, tmp_path / "tokens" / "tokens.json") as made:
        yield made


@pytest.fixture(scope="module")
def steady_people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ActingSite]:
    """Such a site for tests that change nothing of it, which they check."""
    folder = tmp_path_factory.mktemp("steady")
    world = make_world(folder, racks=2)
    world.plant_history()
    with acting(world, folder / "tokens" / "tokens.json") as made:
        yield made
        assert made.records() == ()
