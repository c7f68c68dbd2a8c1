# SPDX-License-Identifier: Apache-2.0
"""A wheel has what a clone has, in the same bytes and modes, whoever installs it."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from imagebuilder.digest import digest_of_file
from imagebuilder.init import make_project
from imagebuilder.process import Completed, run
from imagebuilder.share import INSTALLED, SHARE
from tests.faults.roots.shipped import SSH_KEY
from tests.fixtures.wheel import INSTALL, make_source_archive, make_wheel, unpack_wheel

CHECKOUT = Path(__file__).parents[2]
# What a project has of its own, and what only a clone is for.
NOT_SHIPPED = ("recipes/locks/",)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return make_wheel(CHECKOUT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module", params=sorted(INSTALL))
def installed(wheel: Path, request: pytest.FixtureRequest) -> Path:
    """The folder that an installer put the package into."""
    return unpack_wheel(wheel, request.param)


def test_the_source_archive_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    archive = make_source_archive(CHECKOUT, tmp_path)
    assert digest_of_file(make_wheel(archive, tmp_path)) == digest_of_file(wheel)


def contents(top: Path, folder: str) -> Mapping[str, tuple[str, bool]]:
    """Every file below a folder: its digest and whether it may be run; bytecode is nobody's."""
    return {
        name: (digest_of_file(path), bool(path.stat().st_mode & stat.S_IXUSR))
        for path in sorted((top / folder).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
        if not (name := os.fspath(path.relative_to(top))).startswith(NOT_SHIPPED)
    }


@pytest.mark.parametrize("folder", ["hardware", "recipes", "overlays", "pxe"])
def test_the_wheel_has_the_data_of_the_clone(installed: Path, folder: str) -> None:
    expected = contents(CHECKOUT, folder)
    assert expected
    assert contents(installed / "imagebuilder/share", folder) == expected


def test_the_wheel_has_the_package_of_the_clone(installed: Path) -> None:
    shipped = contents(installed, "imagebuilder")
    own = {name: file for name, file in shipped.items() if "/share/" not in name}
    assert own == contents(CHECKOUT, "imagebuilder")


def test_the_scripts_of_the_wheel_find_each_other(installed: Path) -> None:
    scripts = installed / "imagebuilder/share/scripts"
    said = run([scripts / "host-missing", "no-group"], cwd=Path("/"))
    assert (said.status, said.stdout) == (0, "")
    for path in scripts.iterdir():
        named = [line for line in path.read_text().splitlines() if "scripts/" in line]
        words = {word for line in named for word in line.replace("`", " ").split()}
        called = {word[8:] for word in words if word.startswith("scripts/")}
        assert {name.strip("().,;") for name in called} <= {p.name for p in scripts.iterdir()}


def test_the_program_finds_its_own_data(installed: Path) -> None:
    program = "from imagebuilder.share import INSTALLED, SHARE; print(INSTALLED, SHARE)"
    path = f"import sys; sys.path.append({str(installed)!r})"
    # Without site-packages: nothing of the clone is on its path.
    said = run([sys.executable, "-I", "-S", "-c", f"{path}; {program}"])
    assert said.stdout.split() == ["True", f"{installed}/imagebuilder/share"]
    assert (INSTALLED, SHARE) == (False, CHECKOUT)


@pytest.fixture(scope="module")
def locks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The locks of profiles that have every kind of step between them."""
    made = make_site(tmp_path_factory.mktemp("locked"))
    for profile in ("l40s", "rx7600xt"):
        said = imagebuilder(CHECKOUT, made, "lock", profile)
        assert said.status == 0, said.stderr
    return made / "recipes/locks"


@pytest.fixture
def project(tmp_path: Path, locks: Path) -> Path:
    """A project with these locks, and an ssh key for its images."""
    made = make_site(tmp_path)
    shutil.copytree(locks, made / "recipes/locks", dirs_exist_ok=True)
    return made


def make_site(top: Path) -> Path:
    """A project below `top`, and a site file with an ssh key beside it."""
    make_project(top / "nodes")
    (top / "site.yaml").write_text(f"ssh-keys: ['{SSH_KEY}']\n")
    return top / "nodes"


def imagebuilder(package: Path, project: Path, *words: str) -> Completed:
    """Run the program whose package lies in a folder, with the libraries of this environment."""
    place = project.parent
    env = {
        "PYTHONPATH": os.fspath(package),
        "PYTHONDONTWRITEBYTECODE": "1",
        "IMAGEBUILDER_PROJECT": os.fspath(project),
        "IMAGEBUILDER_SITE": f"{place}/site.yaml",
        "IMAGEBUILDER_STATE": f"{place}/state",
        "IMAGEBUILDER_CACHE": f"{place}/cache",
    }
    argv = [sys.executable, "-P", "-m", "imagebuilder.cli.main", *words]
    return run(argv, env=env, cwd=place, check=False)


def test_layers_have_the_same_digests_from_a_clone_and_a_wheel(
    installed: Path, project: Path
) -> None:
    locks = sorted((project / "recipes/locks").glob("*.lock"))
    assert locks
    for lock in locks:
        own, other = (
            imagebuilder(package, project, "plan", lock.stem, "--json")
            for package in (CHECKOUT, installed)
        )
        assert own.status == 0, own.stderr
        assert other == own


def test_an_installed_program_makes_a_project_and_finds_what_ships(
    installed: Path, project: Path
) -> None:
    made = imagebuilder(installed, project, "init", "mine")
    assert made.status == 0, made.stderr
    mine = project.parent / "mine"
    assert {path.name for path in mine.iterdir()} == {path.name for path in project.iterdir()}
    listed = json.loads(imagebuilder(installed, mine, "profiles", "--json").stdout)
    assert {p["name"]: p["origin"] for p in listed if p["name"] in ("mynode", "minimal")} == {
        "mynode": "project", "minimal": "shipped",
    }  # fmt: skip
    assert [p["name"] for p in listed if p["fault"]] == []
    assert imagebuilder(installed, mine, "setup", "--check").status in (0, 3)


def test_an_installed_program_writes_no_lock_beside_what_ships(
    installed: Path, project: Path
) -> None:
    share = os.fspath(installed / "imagebuilder/share")
    listed = json.loads(
        imagebuilder(installed, project, "--project", share, "profiles", "--json").stdout
    )
    assert {profile["origin"] for profile in listed} == {"shipped"}
    refused = imagebuilder(installed, project, "--project", share, "plan", "nope")
    assert f"error: {share}/recipes: no profile named" in refused.stderr
    refused = imagebuilder(installed, project, "--project", share, "lock", "minimal")
    assert refused.status == 2
    assert "hint: run imagebuilder init DIR to create one" in refused.stderr
    assert not (installed / "imagebuilder/share/recipes/locks").exists()
