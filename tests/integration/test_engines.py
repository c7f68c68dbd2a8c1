# SPDX-License-Identifier: Apache-2.0
"""Engines stay interchangeable: what they make of the same locked packages is the same root."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.lock.file import load_lock
from imagebuilder.plan import make_plan
from imagebuilder.process import run
from imagebuilder.recipe.load import load_recipe
from imagebuilder.settings import load_settings
from imagebuilder.steps.bootstrap.step import BootstrapStep
from imagebuilder.steps.workspace import Workspace
from imagebuilder.store.repository import Store
from imagebuilder.store.upper import walk
from tests.workshop import Workshop

# State of tools, which only one engine leaves.
BY_MMDEBSTRAP = {"usr/share/info/dir", "var/lib/apt/extended_states", "var/lib/dpkg/arch"}
BY_DEBOOTSTRAP = {
    "etc/localtime", "var/lib/dbus/machine-id", "var/lib/dpkg/available", "var/lib/dpkg/cmethopt",
}  # fmt: skip
# It excludes manual pages only when the links to them are there.
MANUAL = re.compile(r"(etc|var/lib/dpkg)/alternatives/.*\.gz$")

pytestmark = [pytest.mark.root, pytest.mark.slow]


def listed(root: Path) -> list[str]:
    """What dpkg has in a root, with its state."""
    form = "${db:Status-Abbrev} ${Package} ${Version} ${Architecture}\n"
    words = ["dpkg-query", f"--admindir={root}/var/lib/dpkg", "--show", f"--showformat={form}"]
    return sorted(run(words).stdout.splitlines())


def files(root: Path) -> set[str]:
    """Everything in a root but folders."""
    return {
        os.fspath(path.relative_to(root))
        for path, info in walk(root)
        if not stat.S_ISDIR(info.st_mode)
    }


def test_debootstrap_makes_the_same_base(workshop: Workshop, tmp_path: Path) -> None:
    settings = load_settings(workshop.env())
    recipe = load_recipe("generic", settings)
    lock = load_lock(settings.lock_file("generic"))
    plan = make_plan(recipe, lock, layers=())
    first = plan.steps[0]
    assert isinstance(first.step, BootstrapStep)
    store = Store(workshop.state / "store")
    commit = store.find_layer(first.digest)
    assert commit
    store.checkout(commit, tmp_path / "mmdebstrap")

    (tmp_path / "u").mkdir()
    workspace = Workspace(
        tmp_path, (), "u", first.step.epoch, tmp_path / "log",
        workshop.state / "debs", workshop.state / "wheels",
    )  # fmt: skip
    replace(first.step, engine="debootstrap").apply(workspace)
    assert listed(tmp_path / "u") == listed(tmp_path / "mmdebstrap")
    one, other = files(tmp_path / "mmdebstrap"), files(tmp_path / "u")
    assert one - other <= BY_MMDEBSTRAP
    assert {name for name in other - one if not MANUAL.match(name)} <= BY_DEBOOTSTRAP
