# SPDX-License-Identifier: Apache-2.0
"""A wrong PROFILE ends `make image` and `make smoke` before anything is installed or made."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from imagebuilder.process import Completed, run
from imagebuilder.recipe.variant import offer_profiles
from imagebuilder.settings import load_settings

CLONE = Path(__file__).parents[2]
INSTALLS = "#!/bin/sh\ntouch installed\nexit 7\n"


def make(clone: Path, target: str, profile: str, project: Path | None = None) -> Completed:
    """`make TARGET PROFILE=...` in a copy of what it needs, in which host-setup leaves a file."""
    if not clone.exists():
        shutil.copytree(CLONE / "recipes", clone / "recipes")
        shutil.copytree(CLONE / "scripts", clone / "scripts")
        for name in ("Makefile", "pyproject.toml"):
            shutil.copy(CLONE / name, clone)
        (clone / "scripts/host-setup").write_text(INSTALLS)
    env = {"PATH": os.environ["PATH"], "HOME": os.fspath(clone)}
    if project:
        env["IMAGEBUILDER_PROJECT"] = os.fspath(project)
    argv = ["make", "-C", os.fspath(clone), target, f"PROFILE={profile}"]
    return run(argv, env=env, check=False)


@pytest.mark.parametrize("target", ["image", "smoke"])
@pytest.mark.parametrize(
    ("profile", "said"),
    [
        ("", "make {} needs PROFILE=NAME\n"),
        ("minmal", 'make {}: no profile named "minmal"\n  hint: did you mean "minimal"?\n'),
        ("minimal.debian-trixei", 'did you mean "minimal.debian-trixie"?\n'),
        ("rx 7600xt", 'make {}: no profile named "rx 7600xt"\n  hint: did you mean "rx7600xt"?\n'),
        ("*", 'make {}: no profile named "*"\nprofiles: '),
    ],
)
def test_a_wrong_profile_is_told_and_nothing_is_installed(
    tmp_path: Path, target: str, profile: str, said: str
) -> None:
    clone = tmp_path / "clone"
    done = make(clone, target, profile)
    assert done.status == 2
    assert said.format(target) in done.stderr
    assert "\nprofiles: a770 generic l40s minimal " in done.stderr
    assert not (clone / "installed").exists()
    assert not (clone / ".venv").exists()


def test_a_profile_that_exists_goes_on_to_the_host(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    make(clone, "image", "minimal.debian-forky.mkosi")
    assert (clone / "installed").exists()


def test_the_profiles_of_ones_own_project_count(tmp_path: Path) -> None:
    own = tmp_path / "own"
    (own / "recipes").mkdir(parents=True)
    (own / "recipes/web.yaml").touch()
    assert 'did you mean "web"?' in make(tmp_path / "clone", "image", "wbe", own).stderr
    make(tmp_path / "clone", "image", "web", own)
    assert (tmp_path / "clone/installed").exists()


def test_the_shell_knows_the_forms_that_the_program_knows(tmp_path: Path) -> None:
    """A form that only one of them knew would be refused, or told too late."""
    settings = load_settings({"HOME": os.fspath(tmp_path)}, project=CLONE)
    offered = {name for start in ("minimal", "minimal.", "minimal.debian-trixie.")
               for name in offer_profiles(start, settings)}  # fmt: skip
    assert len(offered) > 12
    for name in offered:
        done = run([CLONE / "scripts/known-profile", "make image", name], check=False)
        assert (done.status, done.stderr) == (0, "")
