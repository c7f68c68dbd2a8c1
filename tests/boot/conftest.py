# SPDX-License-Identifier: Apache-2.0
"""Boot tests boot `generic`, really built, in a room of their own."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from imagebuilder.boot.lab import Lab
from tests.boot.lab import lab
from tests.boot.node import Image
from tests.boot.server import Published
from tests.integration.changes import add_file, linked
from tests.once import made_once
from tests.workshop import Workshop

# What tells the new version of `generic` from the old one.
NEWS = "etc/laboratory-news"
VERSIONS = "versions.json"
UNTESTED = ("--untested", "the boot is the affair of this very test")


@pytest.fixture(scope="session")
def image(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """`generic` as files: boot pair, command line, and the root as a tree."""
    folder = tmp_path_factory.mktemp("image") / "generic"
    workshop("export", "generic", os.fspath(folder))
    return Image(folder)


@pytest.fixture(scope="session")
def published(
    workshop: Workshop, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Published:
    """Two versions of `generic` in a netboot tree: the first is stable, the second candidate.

    The first one can be had over HTTP too.  All workers have the same tree, and copy it by links.
    """
    make = partial(publish_two, workshop)
    top = made_once(tmp_path_factory, request.config, "published", make)
    return Published(top / "tree", *json.loads((top / VERSIONS).read_text()))


def publish_two(workshop: Workshop, top: Path) -> None:
    changed = linked(workshop, top / "changed")  # the others see one image of `generic`
    add_file(changed.project, "llama-cpp", NEWS, "something new\n")
    there = os.fspath(top / "tree")
    old = json.loads(workshop("build", "generic", "--json").stdout)["image"]
    workshop("publish", "--format", "squashfs", old, IMAGEBUILDER_TREE=there)
    workshop("promote", "generic", *UNTESTED, IMAGEBUILDER_TREE=there)
    new = json.loads(changed("build", "generic", "--json").stdout)["image"]
    changed("publish", new, IMAGEBUILDER_TREE=there)
    versions = [image.partition("@")[2] for image in (old, new)]
    (top / VERSIONS).write_text(json.dumps(versions))


@contextlib.contextmanager
def untouched_host() -> Iterator[None]:
    """The host's mounts and network are the same before and after."""
    mounts = Path("/proc/self/mountinfo").read_text()
    nics = Path("/proc/net/dev").read_text().count(":")
    yield
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert Path("/proc/net/dev").read_text().count(":") == nics


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Lab]:
    """An empty laboratory."""
    with untouched_host(), lab(tmp_path) as empty:
        yield empty


@pytest.fixture(scope="module")
def shared_room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A laboratory for all tests of a file."""
    with untouched_host(), lab(tmp_path_factory.mktemp("room")) as empty:
        yield empty
