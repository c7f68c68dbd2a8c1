# SPDX-License-Identifier: Apache-2.0
"""Damage as disks and people do it: named down to the file, and repaired."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest

from imagebuilder.build import Site, make_layers
from imagebuilder.digest import Json
from imagebuilder.errors import WorkError
from imagebuilder.families.apt.family import APT
from imagebuilder.files import point_link
from imagebuilder.fsck.check import check_all
from imagebuilder.fsck.types import Checked
from imagebuilder.image.types import ImageBoot, ImageLayer, ImageRoot, read_image
from imagebuilder.lock.verified import Pool
from imagebuilder.plan import Action, Plan, PlannedStep
from imagebuilder.process import Completed, run
from imagebuilder.publish.publish import publish
from imagebuilder.settings import Settings, load_settings
from imagebuilder.steps.step import Step
from imagebuilder.store.kept_tree import find_trees, keep_tree
from imagebuilder.store.objects import object_path, read_commit, read_folder
from imagebuilder.store.records import Record, find_record, make_record, record_file
from imagebuilder.store.repository import LAYERS, ImageRef, Store, make_store
from imagebuilder.store.state import make_state
from imagebuilder.store.upper import Changes
from imagebuilder.store.workplace import workplace
from imagebuilder.tree import ReleaseName, Tree, make_tree
from imagebuilder.workspace import Workspace
from tests.fixtures.damage import flip_byte
from tests.images import IMAGE, put_manifest
from tests.integration.published import UNTESTED, check_objects, memory_folder, quiet

pytestmark = pytest.mark.root
BASE, APP = "a" * 64, "b" * 64
VERSION = "20260101000000-00000001"
PROGRAM = b"the program\n" * 1000
RESTORED = ("/usr/bin/program", "/usr/bin/sh", "/usr/share/added", "/etc", "/usr/share/doc")


@dataclass(frozen=True)
class World:
    """A state with two layers and an image of them."""

    settings: Settings
    store: Store
    image: ImageRef

    def fsck(self, tree: Tree | None = None, *, repair: bool = False) -> Checked:
        """Verify, with the tree too if there is one."""
        place = tree.path if tree else self.settings.state / "netboot"
        return check_all(self.settings, quiet(), place, with_tree=tree is not None, repair=repair)


def make_layer(store: Store, state: Path, digest: str, files: dict[str, bytes]) -> str:
    """A layer that adds these files to the one below it."""
    upper = state / "work" / digest[:8]
    for name, content in files.items():
        path = upper / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (upper / "usr/bin/sh").symlink_to("busybox")

    def record(commit: str) -> None:
        make_record(state, digest, Record(f"layer-{digest[0]}", 1, 1, 0.1, {}, commit))

    below = store.find_layer(BASE)
    commit = store.commit_layer(digest, upper, Changes(), below=below, epoch=1, record=record)
    run(["rm", "-r", upper])
    return commit


def make_image(store: Store, state: Path) -> ImageRef:
    """The image of both layers."""
    make_layer(store, state, BASE, {"etc/hosts": b"127.0.0.1 localhost\n", "usr/bin/x": b"x"})
    root = make_layer(store, state, APP, {"usr/bin/program": PROGRAM, "usr/share/doc": b"doc"})
    files = state / "work/files"
    files.mkdir()
    pair = {"vmlinuz": b"kernel\n" * 500, "initrd.img": b"initrd\n" * 500}
    for name, content in pair.items():
        (files / name).write_bytes(content)
    layers = (("base small", BASE), ("packages app", APP))
    made = replace(
        IMAGE,
        version=VERSION,
        boot=ImageBoot("nfs", ("ip=dhcp", "console=ttyS0")),
        root=ImageRoot(root, APP, 20_000),
        layers=tuple(ImageLayer(title, digest, {}, 0, 0) for title, digest in layers),
    )
    put_manifest(files, made)
    for name in ("sbom.spdx.json", "build.json", "cmdline"):
        (files / name).write_text("{}\n")
    return store.commit_image("demo", VERSION, files, epoch=1)


@pytest.fixture
def place() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


@pytest.fixture
def world(place: Path) -> World:
    for name in ("recipes", "overlays"):
        (place / "project" / name).mkdir(parents=True)
    settings = load_settings(
        {"HOME": os.fspath(place)}, project=place / "project", state=place / "state"
    )
    make_state(settings.state)
    store = make_store(settings.state / "store")
    return World(settings, store, make_image(store, settings.state))


def published(world: World, path: Path) -> Tree:
    """The image as a release of a tree there."""
    tree = make_tree(path)
    publish(
        world.store, world.image, tree, quiet(),
        channel="candidate", formats=(), untested=UNTESTED,
    )  # fmt: skip
    return tree


def object_with(repo: Path, content: bytes) -> Path:
    """The object of a file."""
    found = (p for p in repo.glob("objects/*/*.file") if not p.is_symlink())
    return next(path for path in found if path.read_bytes() == content)


def test_a_whole_store_is_whole(world: World, tmp_path: Path) -> None:
    done = world.fsck(published(world, tmp_path / "netboot"))
    assert done.whole
    assert (done.damage, done.unknown, done.dropped) == ((), (), ())
    assert (done.counts["images"], done.counts["layers"], done.counts["releases"]) == (1, 2, 1)
    on_disk = sum(1 for _ in world.store.path.glob("objects/*/*"))
    assert done.counts["objects"] == on_disk
    assert done.render().startswith("intact: 1 image, 2 layers")


@dataclass(frozen=True)
class Writes(Step):
    """A step that writes a file."""

    name: str

    @property
    def title(self) -> str:
        return self.name

    def inputs(self) -> dict[str, Json]:
        return {"step": self.title}

    def apply(self, workspace: Workspace) -> None:
        folder = workspace.out if self.leaf else workspace.tree
        folder.mkdir(exist_ok=True)
        (folder / self.title).write_text(self.title)


class Leaf(Writes):
    """One that writes it beside the root."""

    leaf: ClassVar[bool] = True


def test_a_build_records_the_commit_of_each_layer(world: World) -> None:
    state, store = world.settings.state, world.store
    made = {"one": "1" * 64, "leaf": "2" * 64, "two": "3" * 64}
    below = {"one": None, "leaf": made["one"], "two": made["one"]}
    steps = tuple(
        PlannedStep(
            (Leaf if name == "leaf" else Writes)(name, epoch=1),
            digest,
            below[name],
            Action.BUILD,
            "",
        )
        for name, digest in made.items()
    )
    with workplace(state, "building") as work, Pool(state / "debs", state / "wheels") as pool:
        site = Site("demo", state, store, quiet(), work, state / "logs", pool, APT)
        make_layers(Plan("demo", VERSION, 1, (), steps, ready=False), site)
    for name, digest in made.items():
        record = find_record(state, digest)
        assert record
        assert (record.commit, record.title) == (store.find_layer(digest), name)
        assert (record.files, record.size) == (1, len(name))
    assert world.fsck().damage == ()
    assert world.fsck().unknown == ()


def test_a_damaged_object_is_named_down_to_layer_and_image(world: World) -> None:
    path = object_with(world.store.path, PROGRAM)
    flip_byte(path)
    done = world.fsck()
    [damage] = done.damage
    assert damage.what == f"object {path.parent.name}{path.name}"
    assert damage.where == os.fspath(path)
    assert damage.used == (
        f"/usr/bin/program of layer packages app ({APP[:12]}), image demo@{VERSION}",
    )
    assert not done.whole
    assert "hint: run imagebuilder fsck --repair" in done.render()
    assert "\nfound 1 fault in 1 image, 2 layers, " in done.render()
    assert world.store.find_layer(APP)


@pytest.mark.parametrize("how", ["mode", "gone", "folder"])
def test_other_damage_is_found_too(world: World, how: str) -> None:
    path = object_with(world.store.path, PROGRAM)
    if how == "mode":
        path.chmod(0o4755)
    elif how == "gone":
        path.unlink()
    else:
        path = next(world.store.path.glob("objects/*/*.dirtree"))
        flip_byte(path)
    [damage] = [d for d in world.fsck().damage if d.where == os.fspath(path)]
    assert damage.how == ("is missing" if how == "gone" else damage.how)
    assert any(f"image demo@{VERSION}" in line for line in damage.used)


def top_object(world: World, kind: str) -> Path:
    """An object that leads to the files of the image."""
    commit = world.image.commit
    tree, meta = read_commit(world.store.path, commit)
    sums = {"commit": commit, "dirtree": tree, "dirmeta": meta}
    sums["file"] = read_folder(world.store.path, tree).files["manifest.json"]
    return world.store.path / "objects" / object_path(sums[kind], kind)


@pytest.mark.parametrize("kind", ["commit", "dirtree", "dirmeta", "file"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_what_is_no_file_stops_nobody(
    world: World, tmp_path: Path, kind: str, make: Callable[[Path], None]
) -> None:
    tree = published(world, tmp_path / "netboot")
    path = top_object(world, kind)
    path.unlink()
    make(path)
    for work in (
        lambda: read_image(world.store, world.image),
        lambda: world.store.checkout(world.image.commit, tmp_path / "out"),
        world.store.prune,
    ):
        with pytest.raises(WorkError) as caught:
            work()
        assert caught.value.faults[0].where == os.fspath(path)
        assert "imagebuilder fsck" in caught.value.faults[0].hint
    [damage] = [d for d in world.fsck(tree).damage if d.where == os.fspath(path)]
    assert damage.how == "is not a file"
    assert world.fsck(tree, repair=True).whole
    assert world.fsck(tree).damage == ()
    assert read_image(world.store, world.image).name == world.image.name


@pytest.mark.parametrize("kind", ["commit", "dirtree", "dirmeta", "file"])
def test_what_is_no_file_is_dropped_if_nobody_has_it(world: World, kind: str) -> None:
    path = top_object(world, kind)
    path.unlink()
    os.mkfifo(path)
    done = world.fsck(repair=True)
    assert f"image demo@{VERSION}" in done.dropped
    assert world.fsck().damage == ()


def test_a_damaged_object_is_taken_from_the_trees_repository(world: World, tmp_path: Path) -> None:
    tree = published(world, tmp_path / "netboot")
    for content in (PROGRAM, b"127.0.0.1 localhost\n"):
        flip_byte(object_with(world.store.path, content))
    (world.store.path / "objects").joinpath("zz").mkdir()  # nothing of ostree's
    root, commit = world.settings.state / "work/root", world.store.layers()[APP]
    world.store.checkout(commit, root)
    keep_tree(world.settings.state, "demo", commit, root)
    world.fsck(tree)
    assert list(find_trees(world.settings.state))
    done = world.fsck(tree, repair=True)
    assert done.whole
    assert not list(find_trees(world.settings.state)), "it has the damaged files"
    assert {d.repaired for d in done.damage} == {f"taken from {tree.repo}"}
    assert done.dropped == ()
    check_objects(world.store.path)
    assert world.fsck(tree).damage == ()


def test_what_nobody_has_is_dropped_and_can_be_made_again(world: World) -> None:
    flip_byte(object_with(world.store.path, PROGRAM))
    done = world.fsck(repair=True)
    assert done.whole
    assert done.dropped == (f"layer packages app ({APP[:12]})", f"image demo@{VERSION}")
    assert f"    image demo@{VERSION}" in done.render()
    assert list(world.store.layers()) == [BASE]
    assert world.store.images() == ()
    assert not record_file(world.settings.state, APP).exists()
    assert world.fsck().damage == ()
    root = make_layer(
        world.store,
        world.settings.state,
        APP,
        {"usr/bin/program": PROGRAM, "usr/share/doc": b"doc"},
    )
    assert world.store.read(root, "/usr/bin/program") == PROGRAM.decode().rstrip("\n")
    check_objects(world.store.path)


def test_what_was_built_on_a_damaged_layer_goes_with_it(world: World) -> None:
    world.store.bind(f"{LAYERS}/{BASE}", world.store.layers()[APP])
    done = world.fsck()
    [damage] = done.damage
    assert damage.what == f"layer base small ({BASE[:12]})"
    assert damage.how.startswith("leads to commit ")
    assert damage.used == (f"image demo@{VERSION}",)
    done = world.fsck(repair=True)
    assert done.whole
    assert len(done.dropped) == 3
    assert world.store.refs("") == {}


def test_the_root_of_an_image_says_where_its_layer_leads(world: World) -> None:
    record_file(world.settings.state, APP).unlink()
    world.store.bind(f"{LAYERS}/{APP}", world.store.layers()[BASE])
    assert [d.what for d in world.fsck().damage] == [f"layer packages app ({APP[:12]})"]


def test_a_layer_of_an_older_version_is_unknown_and_no_fault(world: World) -> None:
    for digest in (BASE, APP):
        path = record_file(world.settings.state, digest)
        said = json.loads(path.read_text())
        del said["commit"]
        path.write_text(json.dumps(said))
    done = world.fsck(repair=True)
    assert done.damage == ()
    assert done.unknown == (f"layer base small ({BASE[:12]})",)
    assert "1 layer of an older version: no record has the commit" in done.render()


def test_a_missing_layer_is_told_and_repaired_by_building_again(world: World) -> None:
    world.store.remove(f"{LAYERS}/{BASE}")
    assert [(d.what, d.how) for d in world.fsck().damage] == [
        (f"layer base small ({BASE[:12]})", "is missing")
    ]
    assert f"image demo@{VERSION}" in world.fsck(repair=True).dropped


def test_files_of_the_pool(world: World) -> None:
    debs, wheels = world.settings.state / "debs", world.settings.state / "wheels"
    digest = hashlib.sha256(PROGRAM).hexdigest()
    (wheels / digest).mkdir()
    names = (debs / f"{digest}.deb", debs / f"{digest}.src", wheels / digest / "x-1-py3.whl")
    for path in names:
        path.write_bytes(PROGRAM)
    records = (debs / f"{digest}.control", debs / f"{digest}.names")
    for record in records:
        record.write_text(f"{hashlib.sha256(b'Package: x').hexdigest()}\nPackage: x")
    done = world.fsck()
    assert (done.whole, done.counts["pool-files"]) == (True, 5)
    for path in (*names, *records):
        flip_byte(path)
    assert {d.where for d in world.fsck().damage} == {os.fspath(p) for p in (*names, *records)}
    assert world.fsck(repair=True).whole
    assert not any(path.exists() for path in (*names, *records))


def test_a_release_is_restored_from_the_trees_repository(world: World, tmp_path: Path) -> None:
    tree = published(world, tmp_path / "netboot")
    root, folder = (
        tree.root(ReleaseName("demo", VERSION)),
        tree.release(ReleaseName("demo", VERSION)),
    )
    kernel = folder / "vmlinuz"
    kernel.write_bytes(kernel.read_bytes()[:100])
    for name in ("usr/bin/program", "usr/bin/sh"):
        (root / name).unlink()
    (root / "usr/bin/program").write_bytes(b"another")
    (root / "usr/share/added").mkdir()
    (root / "etc").chmod(0o700)
    run(["rm", "-r", root / "usr/share/doc"])
    inode = root.stat().st_ino
    done = world.fsck(tree)
    assert {d.what for d in done.damage} == {
        f"release demo@{VERSION}: {name}"
        for name in (
            "/usr/bin/program",
            "/usr/bin/sh",
            "/usr/share/added",
            "/etc",
            "/usr/share/doc",
        )
    } | {f"release demo@{VERSION}"}
    done = world.fsck(tree, repair=True)
    assert done.whole, done.render()
    assert {d.repaired for d in done.damage} == {"restored from the tree's repository"}
    assert (root / "usr/bin/program").read_bytes() == PROGRAM
    assert root.stat().st_ino == inode  # a node that runs on it goes on
    assert world.fsck(tree).damage == ()


def test_a_write_through_a_hard_link_is_repaired_in_both_places(
    world: World, tmp_path: Path
) -> None:
    tree = published(world, tmp_path / "netboot")
    flip_byte(object_with(tree.repo, PROGRAM))  # the root has the same file
    done = world.fsck(tree)
    assert {d.what.partition(" ")[0] for d in done.damage} == {"object", "release"}
    done = world.fsck(tree, repair=True)
    assert done.whole, done.render()
    assert (tree.root(ReleaseName("demo", VERSION)) / "usr/bin/program").read_bytes() == PROGRAM
    check_objects(tree.repo)


def test_a_channel_into_another_profile_is_told(world: World, tmp_path: Path) -> None:
    tree = published(world, tmp_path / "netboot")
    stable = tree.channel("other", "stable")
    stable.parent.mkdir()
    point_link(stable, f"../../http/releases/demo/{VERSION}")
    point_link(tree.channel("demo", "candidate"), "../../http/releases/demo/gone")
    done = world.fsck(tree, repair=True)
    assert [(d.what, d.how.partition(",")[0]) for d in done.damage] == [
        ("channel demo/candidate", "does not point to a release of demo"),
        ("channel other/stable", "does not point to a release of other"),
    ]
    assert not done.whole


def program(world: World, *words: str) -> Completed:
    env = {
        "IMAGEBUILDER_PROJECT": os.fspath(world.settings.project),
        "IMAGEBUILDER_STATE": os.fspath(world.settings.state),
    }
    argv = [sys.executable, "-m", "imagebuilder.cli.main", "fsck", *words]
    return run(argv, env=env, check=False)


def test_exit_codes_and_json(world: World, tmp_path: Path) -> None:
    tree = published(world, tmp_path / "netboot")
    flip_byte(object_with(world.store.path, PROGRAM))
    done = program(world, "--json", "--tree", os.fspath(tree.path))
    assert done.status == 1
    said = json.loads(done.stdout)
    assert said["ok"] is False
    assert said["damage"][0]["used"][0].startswith("/usr/bin/program of layer packages app")
    done = program(world, "--repair", "--tree", os.fspath(tree.path))
    assert done.status == 0, done
    assert f"  repaired: taken from {tree.repo}" in done.stdout
