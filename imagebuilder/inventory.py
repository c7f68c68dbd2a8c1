# SPDX-License-Identifier: Apache-2.0
"""List the images of the store, and collect garbage."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.digest import Json
from imagebuilder.folders import matching
from imagebuilder.image.types import read_image
from imagebuilder.lock.builds import environments, every_package
from imagebuilder.lock.file import load_lock
from imagebuilder.locks import file_lock
from imagebuilder.package_managers import POOLS
from imagebuilder.proof.memory import drop_verified
from imagebuilder.recipe.memory import drop_documents
from imagebuilder.rights import check_writable
from imagebuilder.settings import Settings
from imagebuilder.store.kept_tree import drop_trees
from imagebuilder.store.records import drop_records, find_unfinished
from imagebuilder.store.repository import LAYERS, ImageRef, Store
from imagebuilder.store.state import check_state, open_store
from imagebuilder.store.upper import remove
from imagebuilder.store.workplace import sweep
from imagebuilder.ui import Ui, format_count, format_size

LOG_DAYS = 30


@dataclass(frozen=True)
class Listed:
    """One image of the list; `built` in seconds since 1970, sizes in bytes."""

    image: ImageRef
    built: int
    size: int
    kernel: str
    packages: int

    def row(self) -> tuple[str, ...]:
        built = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.built))
        return (self.image.name, built, format_size(self.size), self.kernel, str(self.packages))

    def as_json(self) -> dict[str, Json]:
        return {
            "profile": self.image.profile,
            "version": self.image.version,
            "commit": self.image.commit,
            "built": self.built,
            "root-size": self.size,
            "kernel": self.kernel,
            "packages": self.packages,
        }


@dataclass(frozen=True)
class Collected:
    """What gc removed, or would remove."""

    images: tuple[str, ...]
    layers: int
    packages: int
    package_bytes: int
    places: int

    def as_json(self) -> dict[str, Json]:
        return {
            "images": list(self.images),
            "layers": self.layers,
            "packages": self.packages,
            "package-bytes": self.package_bytes,
            "places": self.places,
        }

    def render(self, *, dry_run: bool) -> str:
        if not (self.images or self.layers or self.packages or self.places):
            return "nothing to remove"
        verb = "would remove" if dry_run else "removed"
        return (
            f"{verb} {format_count(len(self.images), 'image')}, "
            f"{format_count(self.layers, 'layer')}, {format_count(self.packages, 'package')} "
            f"({format_size(self.package_bytes)}), {format_count(self.places, 'kept build')}"
        )


def list_images(settings: Settings) -> list[Listed]:
    """Every image, sorted by profile and age.  Raises InputError for a state that is no folder."""
    check_state(settings.state)
    store = Store(settings.state / "store")
    listed: list[Listed] = []
    for image in store.images():
        made = read_image(store, image)
        built, many = int(store.made_at(image)[0]), len(made.packages)
        listed.append(Listed(image, built, made.root.size, made.kernel.release, many))
    return listed


def collect_garbage(
    settings: Settings, ui: Ui, *, keep: int, dry_run: bool, locks: Sequence[Path] = ()
) -> Collected:
    """Keep the newest `keep` images of each profile, and what they and the locks need.

    The layers that a failed build has made stay too: the next build of its profile reuses them.

    `locks` are lock files beside those of the project whose packages stay in the pool.
    """
    store = open_store(settings)
    state = settings.state
    if not dry_run:
        check_writable(state)
    with file_lock(store.gc_lock, waiting=lambda: ui.note("waiting for a running build")):
        old = old_images(store, keep)
        kept = [image for image in store.images() if image not in old]
        needed = {r.digest for image in kept for r in read_image(store, image).layers}
        needed |= find_unfinished(state)
        layers = [digest for digest in store.layers() if digest not in needed]
        pool = unneeded_packages(settings, store, kept, locks)
        result = Collected(
            images=tuple(image.name for image in old),
            layers=len(layers),
            packages=len(pool),
            package_bytes=sum(p.stat().st_size for p in pool),
            places=len(list(matching(state / "work", "*/.kept"))),
        )
        if not dry_run:
            for image in old:
                store.remove(image.ref)
            for digest in layers:
                store.remove(f"{LAYERS}/{digest}")
            drop_records(state, needed)
            drop_verified(state, {image.profile for image in kept})
            drop_documents(state, {image.profile for image in kept})
            drop_trees(state)  # what they link would stay on the disk
            with ui.step("Pruning the store"):
                store.prune()
            for path in pool:
                path.unlink(missing_ok=True)
            sweep(state / "work", kept=True)
            remove_old_logs(state / "logs")
    return result


def old_images(store: Store, keep: int) -> list[ImageRef]:
    """The images of each profile beyond its newest `keep`."""
    images = store.images()
    old: list[ImageRef] = []
    for profile in {image.profile for image in images}:
        of_profile = [image for image in images if image.profile == profile]
        old.extend(of_profile[:-keep])
    return old


def unneeded_packages(
    settings: Settings, store: Store, kept: list[ImageRef], locks: Sequence[Path]
) -> list[Path]:
    """Pool files that no kept image and no lock names."""
    needed: set[str] = set()
    for image in kept:
        needed |= read_image(store, image).inputs
    for path in (*settings.locks.glob("*.lock"), *locks):
        lock = load_lock(path)
        needed.update(p.sha256 for p in every_package(lock))
        needed.update(w.sha256 for x in lock.layers for p in environments(x) for w in p.wheels)
    # Without the lock of the one fetch that adds (lock/pool.py).
    folders = [settings.state / name for name in POOLS]
    packages = [p for folder in folders for p in folder.glob("[!.]*") if p.is_file()]
    wheels = [p for p in matching(settings.state / "wheels", "*/*") if p.is_file()]
    return [
        *(p for p in packages if p.name.split(".")[0] not in needed),
        *(p for p in wheels if p.parent.name not in needed),
    ]


def remove_old_logs(logs: Path) -> None:
    """Drop logs of builds older than LOG_DAYS days."""
    limit = time.time() - LOG_DAYS * 86400
    for folder in logs.iterdir() if logs.is_dir() else ():
        if folder.stat().st_mtime < limit:
            remove(folder)
