# SPDX-License-Identifier: Apache-2.0
"""Small projects to read recipes from."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from imagebuilder.errors import InputError
from imagebuilder.recipe.load import load_recipe
from imagebuilder.recipe.types import Recipe
from imagebuilder.settings import Settings

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Project:
    """A project in a temporary folder with the base debian-trixie, and the home of a person."""

    root: Path

    @property
    def settings(self) -> Settings:
        """Settings that read this project only."""
        root = self.root
        return Settings(root, root / "state", root / "cache", root / "site.yaml")

    def write(self, files: Mapping[str, str]) -> None:
        """Put files into it."""
        for path, text in files.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text)

    def load(self, profile: str = "p") -> Recipe:
        """The recipe of a profile."""
        env = {"HOME": str(self.root / "home")}
        return load_recipe(profile, self.settings, env=env)

    def faults(self, profile: str = "p") -> str:
        """What is wrong with a profile, as the person sees it, without the folder's name."""
        with pytest.raises(InputError) as caught:
            self.load(profile)
        return str(caught.value).replace(f"{self.root}/", "")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with one base and no profile."""
    return Project(make_project(tmp_path / "project"))


def make_project(root: Path, case: Path | None = None) -> Path:
    """Make a project at `root`, with a copy of `case` in it."""
    if case:
        shutil.copytree(case, root, symlinks=True)
    (root / "overlays").mkdir(parents=True, exist_ok=True)
    (root / "recipes" / "bases").mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "base" / "debian-trixie.yaml", root / "recipes" / "bases")
    return root
