# SPDX-License-Identifier: Apache-2.0
"""Where a run finds its project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from imagebuilder.errors import InputError
from imagebuilder.settings import find_caller, load_settings


def test_the_old_name_of_the_variable_is_refused(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    with pytest.raises(InputError, match="now called IMAGEBUILDER_PROJECT"):
        load_settings({"IMAGEBUILDER_HOUSE": str(tmp_path)}, project=tmp_path)


@pytest.mark.root
@pytest.mark.parametrize(
    ("env", "caller"),
    [
        ({}, None),
        ({"SUDO_UID": "1000", "SUDO_GID": "100"}, (1000, 100)),
        ({"SUDO_UID": "0", "SUDO_GID": "0"}, None),
        ({"SUDO_UID": "1000"}, None),
        ({"SUDO_UID": "-1", "SUDO_GID": "100"}, None),
    ],
)
def test_who_called_sudo(env: dict[str, str], caller: tuple[int, int] | None) -> None:
    assert find_caller(env) == caller


@pytest.fixture
def below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, with a folder of ours in it in which the command is typed."""
    place = tmp_path / "shared"
    (place / "recipes").mkdir(parents=True)
    (place / "mine").mkdir()
    monkeypatch.chdir(place / "mine")
    return place


def test_a_project_where_everybody_may_write_has_to_be_named(below: Path) -> None:
    assert load_settings({}).project == below
    below.chmod(0o1777)
    with pytest.raises(InputError, match="everybody may put recipes"):
        load_settings({})
    assert load_settings({}, project=below).project == below
    assert load_settings({"IMAGEBUILDER_PROJECT": str(below)}).project == below


@pytest.mark.root
def test_a_project_of_another_user_has_to_be_named(below: Path) -> None:
    os.chown(below, 4321, 4321)
    with pytest.raises(InputError, match="belongs to user 4321, and nobody named it"):
        load_settings({})
    assert load_settings({}, project=below).project == below
    called = {"SUDO_UID": "4321", "SUDO_GID": "4321"}
    assert load_settings(called).project == below


@pytest.mark.root
def test_a_checkout_whose_program_runs_needs_no_name(
    below: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(below, 4321, 4321)
    monkeypatch.setattr("imagebuilder.settings.SHARE", below)
    assert load_settings({}).project == below


def test_a_user_whom_the_host_does_not_know_is_told_to_set_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container that runs as any number."""
    (tmp_path / "recipes").mkdir()
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    with pytest.raises(InputError, match=r"no user with the number 4000000000\n.*set HOME to"):
        load_settings({}, project=tmp_path)
    assert load_settings({"HOME": "/h"}, project=tmp_path).site.is_relative_to("/h")
