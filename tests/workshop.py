# SPDX-License-Identifier: Apache-2.0
"""The product as its user has it: a project, a state, and the program on them."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.process import Completed, run

CHECKOUT = Path(__file__).parents[1]
SHIPPED_OVERLAYS = {path.name: path for path in (CHECKOUT / "overlays").iterdir()}


@dataclass(frozen=True)
class Workshop:
    """A project (recipes and overlays) and a state of its own, and the program on them."""

    project: Path
    state: Path
    site: Path
    cache: Path

    def env(self, **more: str) -> dict[str, str]:
        """The environment in which the program finds this workshop."""
        return {
            "IMAGEBUILDER_PROJECT": os.fspath(self.project),
            "IMAGEBUILDER_STATE": os.fspath(self.state),
            "IMAGEBUILDER_SITE": os.fspath(self.site),
            "IMAGEBUILDER_CACHE": os.fspath(self.cache),
            **more,
        }

    def argv(self, *words: str) -> list[str]:
        """The program's command line."""
        return [sys.executable, "-m", "imagebuilder.cli.main", *words]

    def __call__(self, *words: str, check: bool = True, **more: str) -> Completed:
        """Run `imagebuilder WORDS` as a process of its own."""
        return run(self.argv(*words), env=self.env(**more), check=check, cwd=self.project)

    def with_project(self, project: Path) -> Workshop:
        """The same state with a copy of this project, to be changed at will."""
        shutil.copytree(self.project, project, symlinks=True)
        return Workshop(project, self.state, self.site, self.cache)


def make_workshop(top: Path) -> Workshop:
    """The shipped recipes in a fresh workshop below `top`, with a key of its own.

    IMAGEBUILDER_TEST_POOL names a folder whose packages and indexes are used again and again; it
    saves a developer the download and changes nothing else.
    """
    for name in ("recipes", "overlays"):
        shutil.copytree(CHECKOUT / name, top / "project" / name, symlinks=True)
    for lock in (top / "project/recipes/locks").glob("*.lock"):
        lock.unlink()
    (top / "state").mkdir()
    pool = find_pool() or top / "pool"
    link_packages(pool, top / "state")
    key = top / "key"
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "tests", "-f", key])
    (top / "site.yaml").write_text(f"ssh-keys: [{key}.pub]\n")
    return workshop_at(top, pool=pool)


def link_packages(source: Path, target: Path) -> None:
    """Give `target` hard links to the packages in `source` that it lacks.

    Each state has folders of its own: what one test collects as garbage, others still have.
    """
    for name in ("debs", "wheels"):
        (target / name).mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            for file in (source / name).glob("[!.]*"):
                link_file(file, target / name / file.name)


def link_file(source: Path, target: Path) -> None:
    """Link a file, or copy it to another file system; one that is there or went away stays so."""
    with suppress(FileExistsError, FileNotFoundError):
        try:
            target.hardlink_to(source)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            shutil.copy2(source, target)


def find_pool() -> Path | None:
    """The folder that IMAGEBUILDER_TEST_POOL names."""
    named = os.environ.get("IMAGEBUILDER_TEST_POOL")
    return Path(named) if named else None


def workshop_at(top: Path, *, pool: Path) -> Workshop:
    """The workshop that make_workshop() made in `top`, or a copy of it."""
    return Workshop(
        top / "project", top / "state", top / "site.yaml", (find_pool() or pool) / "cache"
    )
