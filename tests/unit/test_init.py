# SPDX-License-Identifier: Apache-2.0
"""A new project is whole, and what it finds: its own files first, then what ships."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.cli.work import find_replaced
from imagebuilder.errors import FullError, InputError
from imagebuilder.init import make_project
from imagebuilder.nightly.site import choose_profiles
from imagebuilder.recipe.find import find_profiles
from imagebuilder.recipe.load import load_recipe
from imagebuilder.settings import Settings, load_settings
from imagebuilder.share import SHARE
from tests.faults.roots.shipped import SSH_KEY
from tests.fixtures.full import file_size_limit
from tests.unit.test_workflow import command_faults


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A new project."""
    make_project(tmp_path / "nodes")
    return tmp_path / "nodes"


@pytest.fixture
def settings(project: Path, tmp_path: Path) -> Settings:
    """Settings as the program has them in it, with an ssh key in the site file."""
    (tmp_path / "site.yaml").write_text(f"ssh-keys: ['{SSH_KEY}']\n")
    site = {"IMAGEBUILDER_SITE": str(tmp_path / "site.yaml"), "HOME": str(tmp_path)}
    return load_settings(site, state=tmp_path / "state", project=project)


def test_the_recipe_of_a_new_project_loads(settings: Settings) -> None:
    recipe = load_recipe("mynode", settings)
    shipped = load_recipe("minimal", settings)
    assert recipe.overlays[:-1] == shipped.overlays
    assert recipe.overlays[-1].name == "my-tools"
    assert [file.target for file in recipe.overlays[-1].files] == ["/etc/profile.d/my-tools.sh"]


def test_a_full_disk_is_that_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "nodes"
    with file_size_limit(600), pytest.raises(FullError) as caught:
        make_project(folder)
    (fault,) = caught.value.faults
    assert (fault.where, fault.what) == (str(tmp_path), "no space left")
    assert fault.hint == "free some space there, or use a folder on another disk"
    assert list(tmp_path.iterdir()) == []


def test_own_files_come_first_and_it_shows(settings: Settings) -> None:
    overlay = settings.project / "overlays/ssh/overlay.yaml"
    overlay.parent.mkdir()
    overlay.write_text("description: My own ssh\n")
    (settings.project / "recipes/minimal.yaml").write_text(
        "base: debian-bookworm\noverlays: [netboot, ssh]\n"
    )
    assert load_recipe("mynode", settings).base.name == "debian-bookworm"
    folders = settings.find_overlays()
    assert folders["ssh"] == overlay.parent
    assert settings.origin(folders["ssh"]) == "project, replaces shipped"
    origins = {profile.name: profile.origin for profile in find_profiles(settings)}
    assert origins["mynode"] == "project"
    assert origins["minimal"] == "project, replaces shipped"
    assert origins["generic"] == "shipped"


def test_a_recipe_of_its_own_extends_the_one_that_it_replaces(settings: Settings) -> None:
    shipped = load_recipe("generic", settings)
    own = settings.project / "recipes/generic.yaml"
    own.write_text("extends: generic\noverlays: [my-tools]\n")
    (settings.project / "recipes/other.yaml").write_text("extends: generic\n")
    for profile in ("generic", "other"):
        recipe = load_recipe(profile, settings)
        assert [o.name for o in recipe.overlays] == [
            *(o.name for o in shipped.overlays),
            "my-tools",
        ]
        assert recipe.base == shipped.base
    (found,) = (each for each in find_profiles(settings) if each.name == "generic")
    assert (found.fault, found.origin) == ("", "project, replaces shipped")


@pytest.mark.parametrize(
    "recipes",
    [
        {"alone": "extends: alone\n"},
        {"generic": "extends: minimal\n", "minimal": "extends: generic\n"},
    ],
    ids=["nothing ships under its name", "two of its own"],
)
def test_recipes_that_extend_each_other_are_a_fault(
    settings: Settings, recipes: dict[str, str]
) -> None:
    for name, text in recipes.items():
        (settings.project / f"recipes/{name}.yaml").write_text(text)
    with pytest.raises(InputError, match="profiles extend each other"):
        load_recipe(next(iter(recipes)), settings)


def test_a_long_chain_of_recipes_is_a_fault(settings: Settings) -> None:
    (settings.project / "recipes/r0.yaml").write_text("extends: minimal\ndescription: The first\n")
    for number in range(1, 300):
        text = f"extends: r{number - 1}\n"
        (settings.project / f"recipes/r{number}.yaml").write_text(text)
    assert load_recipe("r31", settings).base.name == "debian-trixie"
    with pytest.raises(InputError, match=r"r\d+\.yaml:1:10: extends: more than 32 profiles"):
        load_recipe("r299", settings)
    listed = find_profiles(settings)
    assert sum("more than 32" in profile.fault for profile in listed) == 300 - 32


def test_a_plan_names_the_bases_and_overlays_that_are_replaced(settings: Settings) -> None:
    assert find_replaced(load_recipe("minimal", settings), settings) == ([], [])
    for name in ("recipes/bases/debian-trixie.yaml", "overlays/ssh/overlay.yaml"):
        own = settings.project / name
        own.parent.mkdir(parents=True)
        own.write_text((SHARE / name).read_text())
    (settings.project / "overlays/ssh/overlay.yaml").write_text("description: My own ssh\n")
    assert find_replaced(load_recipe("minimal", settings), settings) == (["debian-trixie"], ["ssh"])


def test_a_night_is_about_the_projects_own_profiles(settings: Settings) -> None:
    assert choose_profiles((), settings) == (("mynode",), ())
    settings.locks.mkdir()
    settings.lock_file("generic").touch()
    assert choose_profiles((), settings) == (("mynode", "generic"), ())


def test_the_project_is_the_nearest_folder_upwards(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(project / "overlays/my-tools")
    assert load_settings({"HOME": "/"}).project == project
    monkeypatch.chdir(tmp_path)
    assert load_settings({"HOME": "/"}).project == SHARE


def test_what_ships_is_no_project_to_write_into(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imagebuilder.settings.INSTALLED", True)
    settings.check_project()
    with pytest.raises(InputError, match="run imagebuilder init DIR to create one"):
        replace(settings, project=SHARE).check_project()


def test_the_commands_of_its_readme_exist(project: Path) -> None:
    lines = [
        line for line in (project / "README.md").read_text().splitlines() if "    " in line[:4]
    ]
    assert len(lines) > 5
    assert [fault for line in lines for fault in command_faults(line.strip())] == []


def test_no_file_is_left_out(project: Path) -> None:
    files = {os.fspath(p.relative_to(project)) for p in project.rglob("*") if p.is_file()}
    assert {".gitignore", ".github/workflows/images.yml", "imagebuilder.schema.json"} <= files
    assert not [name for name in files if "dot-" in name or "__pycache__" in name]
    assert project.stat().st_mode & 0o777 == 0o777 & ~umask()


def umask() -> int:
    """The process's own."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("what", ["folder", "file", "link", "here"])
def test_what_is_there_is_refused_and_stays(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "nodes"
    if what == "folder":
        place.mkdir()
        (place / "notes").write_text("mine\n")
    elif what == "file":
        place.write_text("mine\n")
    elif what == "link":
        place.symlink_to("elsewhere")
    else:
        place.mkdir()
        monkeypatch.chdir(place)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(
        InputError, match=f"{place}: is (not empty|not a folder|the current folder)"
    ):
        make_project(place)
    assert sorted(tmp_path.rglob("*")) == before
