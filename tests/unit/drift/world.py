# SPDX-License-Identifier: Apache-2.0
"""A small world to change: a project with a recipe, a store, a netboot tree with tiny releases."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from imagebuilder.image.types import ImageBoot, ImageLayer, ImageRoot
from imagebuilder.lock.difference import digest_of_source
from imagebuilder.lock.file import make_lock_file
from imagebuilder.lock.types import Lock, LockedLayer, LockedSource
from imagebuilder.pipeline import plan_of
from imagebuilder.publish.publish import publish
from imagebuilder.recipe.load import load_recipe
from imagebuilder.rootkind import RootKind
from imagebuilder.settings import Settings
from imagebuilder.store.repository import ImageRef, Store, make_store
from imagebuilder.tree import CANDIDATE, Tree, make_tree
from imagebuilder.ui import Ui
from tests.images import IMAGE, packages_of, put_manifest
from tests.unit.recipe.conftest import make_project

EPOCH = 1_790_000_000
FILES: Mapping[str, str] = {"etc/motd": "hello\n", "usr/bin/tool": "#!/bin/sh\n", "etc/empty": ""}
RECIPE = {
    "recipes/demo.yaml": (
        "description: a demo\nbase: debian-trixie\noverlays: [web]\n"
        "vars: {greeting: hello}\nboot:\n  cmdline: [quiet]\n"
    ),
    "overlays/web/overlay.yaml": (
        "description: a web page\nvars:\n  greeting: {type: string, description: what it says}\n"
        "cmdline: [web=1]\n"
    ),
    "overlays/web/files/etc/page": "first\nsecond\n",
    "overlays/web/files/etc/greeting.j2": "{{ greeting }}\n",
}


@dataclass(frozen=True)
class Made:
    """What an image is made of: kernel and initrd are their texts, an empty one is no file."""

    kernel: str = "kernel"
    early: str = "microcode"
    initrd: str = "initrd"
    files: Mapping[str, str] = field(default_factory=lambda: FILES)
    modes: Mapping[str, int] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    owners: Mapping[str, int] = field(default_factory=dict)
    cmdline: tuple[str, ...] = ("ip=dhcp", "quiet")
    root: RootKind = "nfs"
    epoch: int = EPOCH
    packages: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class World:
    """The folders, and the program's boxes that stand for them."""

    top: Path

    @property
    def settings(self) -> Settings:
        project = self.top / "project"
        return Settings(project, self.top / "state", self.top / "cache", project / "site.yaml")

    @property
    def store(self) -> Store:
        return Store(self.settings.state / "store")

    @property
    def tree(self) -> Tree:
        return Tree(self.top / "tree")

    def write(self, files: Mapping[str, str]) -> None:
        """Put files into the project."""
        for name, text in files.items():
            path = self.settings.project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def lock(self) -> None:
        """A lock without packages for the recipe as it is."""
        recipe = load_recipe("demo", self.settings)
        sources = tuple(
            LockedSource(source.id, suite, source.components, EPOCH, 0, "0" * 64,
                         asked=digest_of_source(source))
            for source in recipe.sources
            for suite in source.suites
        )  # fmt: skip
        base = (*recipe.base.packages, recipe.base.kernel)
        layers = [LockedLayer("", base, (), (), EPOCH)]
        layers += [LockedLayer(x.name, x.packages, (), (), EPOCH) for x in recipe.overlays]
        architecture = recipe.base.architecture
        lock = Lock("demo", architecture, recipe.base.name, EPOCH, sources, tuple(layers))
        make_lock_file(lock, self.settings.lock_file("demo"))

    def build(self, made: Made = Made(), *, profile: str = "demo", version: str = "") -> ImageRef:
        """An image in the store; without `version` that of the recipe as it is.

        One that is called planned-something has the layers of the recipe too.
        """
        layers: tuple[ImageLayer, ...] = ()
        if not version or version.startswith("planned"):
            plan = plan_of(load_recipe(profile, self.settings), self.settings)
            version = version or plan.version
            layers = tuple(
                ImageLayer(s.step.title, s.digest, s.step.inputs(), 0, 0) for s in plan.steps
            )
        work = self.top / "work" / f"{profile}-{version}"
        make_root(work / "root", made)
        root = self.store.commit(work / "root", epoch=made.epoch)
        self.store.bind(f"layer/{profile}-{version}", root)
        files = work / "files"
        files.mkdir()
        texts = {"vmlinuz": made.kernel, "early.img": made.early, "initrd.img": made.initrd}
        for name, text in texts.items():
            if text:
                (files / name).write_text(text)
        image = replace(
            IMAGE,
            profile=profile,
            version=version,
            epoch=made.epoch,
            boot=ImageBoot(made.root, tuple(made.cmdline)),
            root=ImageRoot(root, "", 1000),
            kernel=replace(IMAGE.kernel, release=made.kernel),
            layers=layers,
            packages=packages_of(made.packages),
        )
        put_manifest(files, image)
        (files / "sbom.spdx.json").write_text("{}")
        (files / "cmdline").write_text(" ".join(made.cmdline) + "\n")
        return self.store.commit_image(profile, version, files, epoch=made.epoch)

    def publish(self, image: ImageRef, channel: str = CANDIDATE) -> None:
        """Make a release of an image."""
        reason = "the gate is the affair of another test" if channel != CANDIDATE else ""
        publish(self.store, image, self.tree, quiet(), channel=channel, untested=reason)


def make_root(top: Path, made: Made) -> None:
    """The root of an image, its folders' modes whatever the umask is."""
    top.mkdir(parents=True)
    for name, text in made.files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o644)
    for name, target in made.links.items():
        (top / name).symlink_to(target)
    for name, owner in made.owners.items():
        os.chown(top / name, owner, owner)
    for name, mode in made.modes.items():
        (top / name).chmod(mode)


def make_world(top: Path) -> World:
    """A world whose recipe is locked and of which nothing is built."""
    world = World(top)
    make_project(top / "project")
    world.write(RECIPE)
    make_store(world.settings.state / "store")
    make_tree(world.tree.path)
    world.lock()
    return world


def quiet() -> Ui:
    """Progress that goes nowhere."""
    return Ui(io.StringIO())
