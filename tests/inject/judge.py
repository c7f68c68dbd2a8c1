# SPDX-License-Identifier: Apache-2.0
"""What must hold after a disturbed command, and after the same command again."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.digest import digest_of_file
from imagebuilder.errors import ImagebuilderError
from imagebuilder.lock.file import load_lock
from imagebuilder.process import run
from imagebuilder.publish.find import find_releases
from imagebuilder.store.repository import ImageRef, Store
from tests.inject.cases import Case, project_of, store_of, tree_of
from tests.integration.published import channels_of, check_objects, check_tree

# What holds times, inodes and locks, and what the next command sweeps.
FLEETING = (
    "netboot/work/", "state/work/", "netboot/journal.jsonl", "netboot/verified/",
    "netboot/locks/", "state/locks/",
    "netboot/repo/tmp/", "state/store/tmp/", "netboot/repo/.lock", "state/store/.lock",
)  # fmt: skip
Snapshot = dict[str, str]


def snapshot(world: Path, case: Case) -> Snapshot:
    """Every file, folder and link with what a person could tell it by."""
    found: Snapshot = {}
    for path in sorted(world.rglob("*")):
        name = os.fspath(path.relative_to(world))
        if not name.startswith((*FLEETING, *case.passing)):
            inside = name.removeprefix("netboot/")
            made_up = inside.startswith(case.made_up) if case.made_up else False
            if inside.startswith("given/"):
                name = "netboot/given/*"
            found[name] = describe(path, content=not made_up)
    return found


def describe(path: Path, *, content: bool) -> str:
    """Kind, mode, owner, and content or target."""
    info = path.lstat()
    head = f"{stat.filemode(info.st_mode)} {info.st_uid}:{info.st_gid}"
    if stat.S_ISLNK(info.st_mode):
        return f"{head} -> {path.readlink()}"
    if stat.S_ISREG(info.st_mode) and content:
        return f"{head} {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
    return head


@dataclass(frozen=True)
class State:
    """What people and nodes see: releases, channels, marks, nodes, and what the builder has.

    `images` are their names with their manifests, `layers` their digests with their commits, `pool`
    the names of packages; `locks` are profiles with the sums of their lock files.
    """

    releases: frozenset[str]
    channels: tuple[tuple[str, str], ...]
    kept: frozenset[str]
    nodes: bool
    locks: tuple[tuple[str, str], ...]
    images: frozenset[str]
    layers: frozenset[str]
    pool: frozenset[str]


def state_of(world: Path) -> State:
    """What is there."""
    tree, store = tree_of(world), Store(store_of(world))
    locks = sorted((project_of(world) / "recipes/locks").glob("*.lock"))
    return State(
        releases=frozenset(map(str, find_releases(tree))),
        channels=tuple(sorted(channels_of(tree).items())),
        kept=frozenset(path.name for path in (tree.path / "kept").glob("*/[!.]*")),
        nodes=tree.nodes_file.exists(),
        locks=tuple((path.stem, digest_of_file(path)) for path in locks),
        images=frozenset(f"{image.name} {manifest_sum(store, image)}" for image in store.images()),
        layers=frozenset(f"{digest} {commit}" for digest, commit in store.layers().items()),
        pool=frozenset(path.name for path in pool_of(world)),
    )


def manifest_sum(store: Store, image: ImageRef) -> str:
    """What tells two images of one name apart, but for what is true of one build only."""
    return hashlib.sha256(store.read(image.commit, "/manifest.json").encode()).hexdigest()[:16]


def pool_of(world: Path) -> list[Path]:
    """The packages in the pool of the builder."""
    return sorted((store_of(world).parent / "debs").glob("[!.]*.deb"))


def differences(old: Snapshot, new: Snapshot) -> list[str]:
    """Names that are in one only, or are different."""
    return [
        f"{name}: {old.get(name, 'absent')} -> {new.get(name, 'absent')}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]


def between(before: State, after: State, now: State) -> list[str]:
    """What is neither old nor new.  Several releases go one after the other."""
    faults = []
    for name in ("channels", "kept", "nodes", "locks"):
        if getattr(now, name) not in (getattr(before, name), getattr(after, name)):
            faults.append(f"{name}: {getattr(now, name)}")
    for name in ("releases", "images", "layers", "pool"):
        old, new, found = (getattr(each, name) for each in (before, after, now))
        if not (old & new) <= found <= (old | new):
            faults.append(f"{name}: {sorted(found)}")
    return faults


def find_faults(world: Path, before: State, after: State, *, done: bool) -> list[str]:
    """What is wrong after a disturbed command; `done` is whether it says that it did its work."""
    try:
        check_tree(tree_of(world))
        check_builder(world)
        now = state_of(world)
    except (AssertionError, ImagebuilderError, OSError, ValueError) as error:
        return [f"not whole: {type(error).__name__}: {str(error)[:300]}"]
    faults = between(before, after, now)
    if done and now != after:
        faults.append(f"said it was done, and is {now}")
    return faults


def check_builder(world: Path) -> None:
    """What holds of the builder at any moment: what has a name is whole, and all that it needs."""
    for lock in (project_of(world) / "recipes/locks").glob("*.lock"):
        load_lock(lock)
    for package in pool_of(world):
        assert digest_of_file(package) == package.stem, f"{package.name} is another"
    store = Store(store_of(world))
    if store.is_there():
        check_named(store, world.with_name("named"))
        for image in store.images():
            assert not (missing := list(missing_of(store, image))), f"{image.name}: {missing}"


def check_named(store: Store, place: Path) -> None:
    """OSTree's own verification of all that has a name; `place` is free.

    A commit without one may lack objects: ostree moves those of a transaction in one by one, the
    commit among them.  The same commit made again gets what it lacks, and gc removes it.
    """
    run(["cp", "--archive", "--link", "--", store.path, place])
    named = {*store.refs("").values()}
    for path in (place / "objects").glob("??/*.commit"):
        if f"{path.parent.name}{path.stem}" not in named:
            path.unlink()
    try:
        check_objects(place)
    finally:
        shutil.rmtree(place)


def missing_of(store: Store, image: ImageRef) -> Iterator[str]:
    """What an image needs and the store lacks."""
    manifest, layers = json.loads(store.read(image.commit, "/manifest.json")), store.layers()
    if manifest["root"]["commit"] not in layers.values():
        yield "its root"
    yield from (
        each["title"] for each in manifest.get("layers", ()) if each["digest"] not in layers
    )
