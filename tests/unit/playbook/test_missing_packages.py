# SPDX-License-Identifier: Apache-2.0
"""Where packages of a playbook can be written, and what is said where they cannot."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from imagebuilder.errors import InputError
from imagebuilder.lock.types import Lock, LockedLayer
from imagebuilder.playbook.package_requests import (
    PackageRequest,
    PackageRequests,
    add_missing,
    tell_missing,
)
from imagebuilder.recipe.types import Base, Boot, Overlay, Playbook, Recipe
from imagebuilder.settings import Settings
from imagebuilder.ui import Ui

BASE = Base("b", "debian", "trixie", "amd64", "e", "apt", (), "linux-image-amd64", ())
LOCK = Lock("p", "amd64", "b", 0, (), (LockedLayer("own", ("virtual",), (), (), 0),))
OVERLAY = "description: d\npackages: [python3]\nansible:\n  - playbook: %s\n"


def make_requests(folder: Path, playbook: str) -> PackageRequests:
    """A playbook of an overlay in `folder` that asks for two packages; the lock has one."""
    folder.mkdir(parents=True)
    (folder / "overlay.yaml").write_text(OVERLAY % playbook)
    asked = (
        PackageRequest("nginx", f"{folder}/site.yml:7"),
        PackageRequest("virtual", f"{folder}/site.yml:9"),
    )
    return PackageRequests(Overlay("own", folder), Playbook("site.yml", folder, {}, {}), asked, ())


def told(request: PackageRequests, project: Path) -> str:
    """What a person reads."""
    stream = io.StringIO()
    recipe = Recipe("p", "d", BASE, (request.overlay,), {}, (), Boot("nfs", (), ()))
    ui = Ui.for_stream(stream, {})
    tell_missing(recipe, LOCK, [request], settings_of(project), ui)
    return stream.getvalue()


def settings_of(project: Path) -> Settings:
    """Settings of a project."""
    return Settings(project, project, project, project)


def test_an_overlay_that_names_its_playbook_gets_the_packages(tmp_path: Path) -> None:
    request = make_requests(tmp_path / "overlays/own", "site.yml")
    said = told(request, tmp_path)
    assert "site.yml requests 1 package that the lock does not have:" in said
    assert "  nginx (overlays/own/site.yml:7)\n" in said
    assert "run imagebuilder lock p --add-packages to add them to overlays/own/overlay.yaml" in said
    ui = Ui.for_stream(io.StringIO(), {})
    assert add_missing(LOCK, [request], settings_of(tmp_path), ui)
    text = (tmp_path / "overlays/own/overlay.yaml").read_text()
    assert text == (OVERLAY % "site.yml").replace("[python3]", "[python3, nginx]")
    assert not add_missing(LOCK, [], settings_of(tmp_path), ui)


@pytest.mark.parametrize(
    ("place", "playbook", "why"),
    [
        ("project/overlays/own", '"{{ playbook }}"', "takes its playbook from a variable"),
        ("shared/overlays/own", "site.yml", "is not a file of this project"),
    ],
)
def test_what_is_not_the_projects_own_is_left_alone(
    tmp_path: Path, place: str, playbook: str, why: str
) -> None:
    request = make_requests(tmp_path / place, playbook)
    project = tmp_path / "project"
    todo = "list them under `packages:` of your own overlay in the recipe: [nginx]"
    said = told(request, project)
    assert why in said
    assert todo in said
    with pytest.raises(InputError, match=why) as caught:
        add_missing(LOCK, [request], settings_of(project), Ui.for_stream(io.StringIO(), {}))
    assert caught.value.faults[0].hint == todo
    assert (request.overlay.path / "overlay.yaml").read_text() == OVERLAY % playbook
