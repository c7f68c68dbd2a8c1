# SPDX-License-Identifier: Apache-2.0
"""A small fleet, and a client of the application on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from imagebuilder.web.app import make_app
from imagebuilder.web.site import WebSite
from tests.fleet_world import FleetWorld, make_site, make_world
from tests.unit.web.acting import ActingSite, acting


@pytest.fixture
def world(tmp_path: Path) -> FleetWorld:
    return make_world(tmp_path, racks=2)


@pytest.fixture
def site(world: FleetWorld) -> WebSite:
    return make_site(world)


@pytest.fixture
def client(site: WebSite) -> Iterator[TestClient]:
    with TestClient(make_app(site, ["testserver"]), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def people(world: FleetWorld, tmp_path: Path) -> Iterator[ActingSite]:
    """A site on which people with a token of each role may act."""
    world.plant_history()
    with acting(world, tmp_path / "tokens" / "tokens.json") as made:
        yield made
