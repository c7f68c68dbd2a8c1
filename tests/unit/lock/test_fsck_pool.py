# SPDX-License-Identifier: Apache-2.0
"""`fsck --repair` fetches what is wrong in the pool, and says why where it cannot."""

from __future__ import annotations

import io
import json
import os
import shutil
from dataclasses import replace

import pytest

from imagebuilder.fsck.pool import check_pool
from imagebuilder.lock.file import make_lock_file
from imagebuilder.lock.types import Lock
from imagebuilder.recipe.load import load_recipe
from imagebuilder.settings import Settings
from imagebuilder.ui import Ui
from tests.fixtures.aptrepo import Plant
from tests.fixtures.damage import flip_byte
from tests.unit.lock.test_pool import fill
from tests.unit.lock.world import World, hello_recipe


@pytest.fixture
def settings(world: World, hello_lock: Lock, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A project whose recipe has the lock, with the packages of the lock in the pool."""
    monkeypatch.delenv("IMAGEBUILDER_MIRROR", raising=False)
    top = world.cache.parent
    bases = top / "recipes/bases"
    bases.mkdir(parents=True)
    (top / "overlays").mkdir()
    base = {
        "distribution": "debian", "suite": "test", "kernel": "linux-image-test",
        "archives": [
            {"mirror": "debian", "suites": ["test"], "components": ["main"],
             "keyring": os.fspath(world.key.certificate)},
        ],
    }  # fmt: skip
    (bases / "small.yaml").write_text(json.dumps(base))
    (top / "recipes/tested.yaml").write_text("description: Tested\nbase: small\noverlays: []\n")
    (top / "site.yaml").write_text(f"mirrors: {{debian: '{world.server.uri}'}}\n")
    settings = Settings(top, top / "state", world.cache, top / "site.yaml")
    [source] = [each.id for each in load_recipe("tested", settings).sources]
    layers = tuple(
        replace(x, packages=tuple(replace(p, source=source) for p in x.packages))
        for x in hello_lock.layers
    )
    make_lock_file(replace(hello_lock, layers=layers), settings.lock_file("tested"))
    fill(world, hello_recipe(world), hello_lock)
    (settings.state).mkdir()
    shutil.move(world.debs, settings.state / "debs")
    return settings


def test_an_altered_package_is_named_and_fetched_again(
    world: World, settings: Settings, hello_lock: Lock
) -> None:
    big = next(package for package in hello_lock.packages if package.name == "big")
    path = settings.state / "debs" / f"{big.sha256}.deb"
    right = path.read_bytes()
    ui = Ui(io.StringIO())
    assert check_pool(settings, ui, repair=True).damage == ()
    flip_byte(path)
    asked = len(world.server.asked)
    [damage] = check_pool(settings, ui, repair=False).damage
    assert (damage.where, damage.used) == (os.fspath(path), ("big=1.0:all of tested",))
    world.server.plant("pool/big_1.0_all.deb", Plant.MISSING)
    [damage] = check_pool(settings, ui, repair=True).damage
    assert not damage.repaired
    assert "no longer has big=1.0:all" in damage.hint
    world.server.mend()
    [damage] = check_pool(settings, ui, repair=True).damage
    assert damage.repaired == "fetched again"
    assert path.read_bytes() == right
    assert {*world.server.asked[asked:]} == {"pool/big_1.0_all.deb"}
