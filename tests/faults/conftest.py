# SPDX-License-Identifier: Apache-2.0
"""The corpus of faults: what to run, the good images, the table at the end.

IMAGEBUILDER_FAULTS is `all`, `static` (what needs no boot) or `some`, the default: static and the
cheap boots, where of the static checks only the one that must fail is run.
IMAGEBUILDER_FAULTS_TREE names a netboot tree with good releases, published with both --format; it
saves a developer the build of `generic`, and has other profiles tried as well.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from imagebuilder.boot.acceleration import Acceleration, probe
from imagebuilder.publish.find import find_releases
from imagebuilder.tree import ReleaseName, Tree
from tests.faults.copies import Copies
from tests.faults.fault import Fault
from tests.faults.roots import ROOTS, real
from tests.faults.roots.made import PREFIX
from tests.faults.table import Row, render

ROW = "row of the table"
SETS = ("all", "static", "some")


@dataclass(frozen=True)
class Ground:
    """The good releases by profile, a folder beside them, and the copies in it."""

    tree: Tree
    releases: dict[str, ReleaseName]
    place: Path
    copies: Copies


def ground_in(place: Path, tree: Tree) -> Ground:
    """The releases of a tree."""
    found = {one.profile: one for one in find_releases(tree)}
    return Ground(tree, found, place, Copies(place))


def ground_of(fault: Fault, request: pytest.FixtureRequest) -> Ground:
    """The good image a fault is planted into: a real one, or a small root that is made."""
    kinds = {PREFIX: "made", real.PREFIX: "real_ground"}
    kind = next((kinds[begin] for begin in kinds if fault.image.startswith(begin)), "ground")
    found: Ground = request.getfixturevalue(kind)
    return found


def chosen() -> str:
    """Which set of faults to run."""
    name = os.environ.get("IMAGEBUILDER_FAULTS", "some")
    if name not in SETS:
        raise pytest.UsageError(f"IMAGEBUILDER_FAULTS={name} is none of {', '.join(SETS)}")
    return name


def is_chosen(fault: Fault) -> bool:
    """Whether this run is to plant a fault."""
    return chosen() == "all" or not fault.boots or (fault.cheap and chosen() == "some")


@pytest.fixture(scope="session")
def ground(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """The good images, published."""
    place = tmp_path_factory.mktemp("faults")
    there = os.environ.get("IMAGEBUILDER_FAULTS_TREE")
    if not there:
        workshop = request.getfixturevalue("workshop")
        there = os.fspath(place / "tree")
        formats = ("--format", "squashfs", "--format", "erofs")
        workshop("publish", *formats, "generic", IMAGEBUILDER_TREE=there)
    return ground_in(place, Tree(Path(there)))


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """The small roots."""
    place = tmp_path_factory.mktemp("made")
    tree = Tree(place / "tree")
    for make in ROOTS:
        make(tree)
    return ground_in(place, tree)


@pytest.fixture(scope="session")
def real_ground(ground: Ground) -> Ground:
    """The real root in the clothes of other profiles."""
    tree = real.make_real(ground.tree, ground.releases[real.BASE], Tree(ground.place / "real"))
    return ground_in(ground.place, tree)


@pytest.fixture(scope="session")
def acceleration(ground: Ground) -> Acceleration:
    """How machines are run here."""
    name = ground.releases["generic"]
    return probe(ground.tree.release(name) / "vmlinuz", ground.place)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of what all workers have found."""
    reports = [one for kind in ("passed", "failed") for one in terminalreporter.getreports(kind)]
    told = [value for one in reports for name, value in one.user_properties if name == ROW]
    rows = [Row(**json.loads(str(value))) for value in told]
    if rows:
        terminalreporter.section("faults")
        for line in render(sorted(rows, key=lambda row: (row.kind, row.fault))):
            terminalreporter.write_line(line)
