# SPDX-License-Identifier: Apache-2.0
"""A wheel in an environment of its own does a newcomer's work, with no checkout on the machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from imagebuilder.process import Completed, run
from tests.fixtures.wheel import make_wheel
from tests.integration.wire_room import Room, wire_room
from tests.workshop import CHECKOUT

# Mounts an empty folder over the checkout, for this command alone.
WITHOUT_CHECKOUT = (
    "unshare", "--mount", "--", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"',
    os.fspath(CHECKOUT),
)  # fmt: skip


@dataclass(frozen=True)
class Installed:
    """The program of a wheel, and a folder for all that it makes."""

    program: Path
    place: Path

    @property
    def env(self) -> dict[str, str]:
        """Where the program keeps what it makes."""
        return {
            "IMAGEBUILDER_STATE": f"{self.place}/state",
            "IMAGEBUILDER_CACHE": f"{self.place}/cache",
            "IMAGEBUILDER_SITE": f"{self.place}/site.yaml",
        }

    def __call__(self, *words: str, cwd: Path) -> Completed:
        """Run it in a folder."""
        argv = [*WITHOUT_CHECKOUT, os.fspath(self.program), *words]
        return run(argv, env=self.env, cwd=cwd, check=False)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel of this checkout with its dependencies, in a new virtual environment."""
    place = tmp_path_factory.mktemp("installed")
    wheel = make_wheel(CHECKOUT, place)
    run([sys.executable, "-m", "venv", place / "venv"])
    run([place / "venv/bin/pip", "install", "--quiet", wheel])
    key = place / "key"
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "tests", "-f", key])
    (place / "site.yaml").write_text(f"ssh-keys: [{key}.pub]\n")
    return Installed(place / "venv/bin/imagebuilder", place)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    with wire_room(tmp_path) as made:
        yield made


def test_it_makes_builds_publishes_and_serves_a_project(installed: Installed, room: Room) -> None:
    project = installed.place / "nodes"
    for folder, words, said in (
        (installed.place, ("init", "nodes"), "mynode"),
        (project, ("setup", "--build", "--check"), "nothing is missing"),
        (project, ("build", "mynode"), "proved"),
        (project, ("check", "mynode", "-k", "my-tools"), "1 passed"),
        (project, ("publish", "mynode", "--tree", os.fspath(room.tree.path)), "mynode@"),
    ):
        done = installed(*words, cwd=folder)
        assert done.status == 0, done.stderr
        assert said in done.stdout + done.stderr
    assert (project / "recipes/locks/mynode.lock").is_file()
    served = run(
        room.at(room.server, [
            *WITHOUT_CHECKOUT, "env", *(f"{name}={value}" for name, value in installed.env.items()),
            installed.program, "serve", "--interface", "wire0", "--tree", room.tree.path, "--check",
        ]),
        check=False,
    )  # fmt: skip
    assert served.status == 0, served.stderr
    assert "wire0 can be served" in served.stdout
