# SPDX-License-Identifier: Apache-2.0
"""An archive with two suites, one of them a security pocket, and a project built from it."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from imagebuilder.lock.file import make_lock_file
from imagebuilder.lock.types import Lock
from imagebuilder.nightly.choose import LockChoice, choose_lock
from imagebuilder.nightly.upstream import Upstream
from imagebuilder.recipe.types import Base, Boot, Overlay, Recipe, Source
from imagebuilder.settings import Settings
from imagebuilder.ui import Ui
from tests.fixtures.aptrepo import (
    WITHOUT_PROXY,
    ArchiveServer,
    Deb,
    SigningKey,
    keyring,
    make_archive,
    make_key,
    served,
)

DATE = 1_760_000_000
DEBS = (
    Deb("base-files", "14", essential=True),
    Deb("apt", "3.0", depends="base-files"),
    Deb("libc6", "2.41-1", architecture="amd64"),
    Deb("linux-image-test", "1:7.2-1", depends="libc6"),
    Deb("libhello", "1.0"),
    Deb("hello", "1.0", depends="libhello (>= 1.0)"),
    Deb("idle", "1.0"),
)
MAIN, SECURITY = "test", "test-security"


@dataclass
class Project:
    """Settings, a recipe, and the archive behind them; `said` is what a person would read."""

    settings: Settings
    archive: Path
    server: ArchiveServer
    key: SigningKey
    said: io.StringIO = field(default_factory=io.StringIO)

    @property
    def recipe(self) -> Recipe:
        """A recipe with an overlay, from one source with both suites, as Ubuntu's archive is."""
        source = Source("test", (MAIN, SECURITY), ("main",), self.key.certificate, mirror="test")
        base = Base(
            "test-base", "debian", MAIN, "amd64", "mmdebstrap", "apt", (), "linux-image-test",
            (source,),
        )  # fmt: skip
        overlays = (Overlay("greet", Path("/overlays/greet"), packages=("hello",)),)
        return Recipe("tested", "", base, overlays, {}, (), Boot("nfs", (), ()))

    def publish(
        self,
        *news: Deb,
        security: Sequence[Deb] = (),
        date: int = DATE,
        valid_until: int | None = None,
        says: Mapping[str, str] | None = None,
    ) -> None:
        """Sign the archive anew, with `news` in the place of older packages."""
        names = {deb.name for deb in news}
        main = (*(deb for deb in DEBS if deb.name not in names), *news)
        for suite, debs in ((MAIN, main), (SECURITY, security)):
            make_archive(
                self.archive, debs, self.key,
                suite=suite, date=date, valid_until=valid_until, says=says,
            )  # fmt: skip

    def choose(self, recipe: Recipe | None = None) -> LockChoice:
        """What a night would choose; a new night each time."""
        self.said.truncate(0)
        ui = Ui(self.said)
        upstream = Upstream({"test": self.server.uri}, self.settings.cache, ui)
        return choose_lock(recipe or self.recipe, self.settings, upstream, ui)

    @property
    def solved(self) -> bool:
        """Whether apt was asked to choose the last time."""
        return "Solving" in self.said.getvalue()

    def more(self) -> Recipe:
        """The recipe with a package more."""
        overlay = replace(self.recipe.overlays[0], packages=("hello", "idle"))
        return replace(self.recipe, overlays=(overlay,))


@pytest.fixture(scope="session")
def key() -> Iterator[SigningKey]:
    """The archive's key."""
    with keyring() as home:
        yield make_key(home, "Archive")


@pytest.fixture(scope="session")
def archive(key: SigningKey, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive as it is at first."""
    folder = tmp_path_factory.mktemp("archive")
    for suite, debs in ((MAIN, DEBS), (SECURITY, ())):
        make_archive(folder, debs, key, suite=suite, date=DATE)
    return folder


@contextmanager
def make_project(folder: Path, key: SigningKey, archive: Path) -> Iterator[Project]:
    """A project without a lock, and its archive."""
    (folder / "recipes" / "locks").mkdir(parents=True)
    shutil.copytree(archive, folder / "archive")
    settings = Settings(folder, folder / "state", folder / "cache", folder / "site.yaml")
    with served(folder / "archive") as server, pytest.MonkeyPatch.context() as patch:
        for name, value in WITHOUT_PROXY.items():
            patch.setenv(name, value)
        patch.delenv("IMAGEBUILDER_MIRROR", raising=False)
        settings.site.write_text(f"mirrors: {{test: '{server.uri}'}}\n")
        yield Project(settings, folder / "archive", server, key)


@pytest.fixture(scope="session")
def first_lock(key: SigningKey, archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Lock:
    """The first lock of the project: it is the same wherever the archive is served."""
    with make_project(tmp_path_factory.mktemp("first"), key, archive) as made:
        return made.choose().lock


@pytest.fixture
def project(key: SigningKey, archive: Path, tmp_path: Path) -> Iterator[Project]:
    """A project without a lock."""
    with make_project(tmp_path, key, archive) as made:
        yield made


@pytest.fixture
def locked(project: Project, first_lock: Lock) -> Project:
    """The project with its first lock."""
    make_lock_file(first_lock, project.settings.lock_file("tested"))
    return project
