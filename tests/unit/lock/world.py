# SPDX-License-Identifier: Apache-2.0
"""A small archive, its server and a recipe for it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from imagebuilder.lock.types import Lock
from imagebuilder.recipe.types import Base, Boot, ExpiredRelease, Overlay, Recipe, Source
from imagebuilder.resolve import make_lock
from tests.fixtures.aptrepo import DAY, ArchiveServer, Deb, SigningKey, make_archive

DATE = 1_760_000_000
DEBS = (
    Deb("base-files", "14", essential=True),
    Deb("apt", "3.0", depends="base-files"),
    Deb("libc6", "2.41-1", architecture="amd64"),
    Deb("linux-image-test", "1:7.2-1", depends="libc6"),
    Deb("python3", "3.13.5-1", depends="libc6 (>= 2.30)"),
    Deb("libhello", "1.0"),
    Deb("hello", "1.0", depends="libhello (>= 1.0)"),
    Deb("hello-doc", "1.0"),
    Deb("rival", "1.0", conflicts="hello"),
    Deb("broken", "1.0", depends="nowhere (>= 3)"),
    Deb("big", "1.0", files={"/usr/share/big": "0123456789" * 40000}),
)
HELLO = Deb("hello", "2.0", depends="libhello (>= 1.0)")


@dataclass(frozen=True)
class World:
    """An archive at `folder`, served by `server`, and where a lock keeps its things."""

    folder: Path
    server: ArchiveServer
    key: SigningKey
    cache: Path
    debs: Path
    wheels: Path
    notes: list[str] = field(default_factory=list)

    @property
    def mirrors(self) -> dict[str, str]:
        return {"test": self.server.uri}

    @property
    def source(self) -> Source:
        return Source("test", ("test",), ("main",), self.key.certificate, mirror="test")

    def archive(
        self,
        debs: Sequence[Deb] = DEBS,
        *,
        date: int = DATE,
        valid_until: int | None = None,
        key: SigningKey | None = None,
        says: Mapping[str, str] | None = None,
    ) -> None:
        """Make the archive (again)."""
        signer = key or self.key
        make_archive(self.folder, debs, signer, date=date, valid_until=valid_until, says=says)

    def recipe(self, *overlays: Overlay, source: Source | None = None) -> Recipe:
        """A recipe on this archive."""
        base = Base(
            "test-base", "debian", "test", "amd64", "mmdebstrap", "apt", (), "linux-image-test",
            (source or self.source,),
        )  # fmt: skip
        return Recipe("tested", "", base, overlays, {}, (), Boot("nfs", (), ()))

    def lock(
        self,
        recipe: Recipe,
        previous: Lock | None = None,
        *,
        siblings: Sequence[Lock] = (),
        keep: bool = False,
        allow_older: bool = False,
    ) -> Lock:
        """Lock `recipe`; what was said is in `notes`."""
        return make_lock(
            recipe, self.mirrors, self.cache,
            previous=previous, siblings=siblings, keep=keep, allow_older=allow_older,
            progress=self.notes.append,
        )  # fmt: skip


def overlay(name: str, *packages: str) -> Overlay:
    """An overlay that has packages alone."""
    return Overlay(name, Path("/overlays") / name, packages=packages)


def accepting(source: Source, days: int) -> Source:
    """`source` with a consent to an expired Release."""
    return replace(source, expired_release=ExpiredRelease(days, "the mirror here stands still"))


def days_ago(count: int) -> int:
    """That many days before now, and an hour, in seconds since 1970."""
    return int(time.time()) - count * DAY - 3600


def hello_recipe(world: World) -> Recipe:
    """A recipe with two overlays and seven packages."""
    return world.recipe(overlay("greet", "hello"), overlay("more", "big"))


def chosen(lock: Lock) -> dict[str, list[str]]:
    """Names and versions by layer."""
    return {
        layer.overlay: [f"{package.name} {package.version}" for package in layer.packages]
        for layer in lock.layers
    }


@dataclass
class Shown:
    """A progress bar that remembers."""

    total: int = 0
    count: int = 0
    ended: bool = False

    def start(self, total: int, what: str) -> None:
        assert what
        self.total = total

    def advance(self, count: int) -> None:
        self.count += count

    def done(self) -> None:
        self.ended = True
