# SPDX-License-Identifier: Apache-2.0
"""Publishing to places without ssh: a tree on this machine, and a plain mirror of objects."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from imagebuilder.errors import HostError, InputError, WorkError
from imagebuilder.image.types import read_image
from imagebuilder.locks import is_locked
from imagebuilder.publish.find import find_releases
from imagebuilder.publish.publish import publish
from imagebuilder.publish.release.content import check_release
from imagebuilder.publish.release.repo import verify_objects
from imagebuilder.publish.removal import Caution, unpublish
from imagebuilder.publish.transport.local import LocalTree
from imagebuilder.publish.transport.protocol import (
    PREFIX,
    Activated,
    Order,
    PlaceContents,
    Transport,
)
from imagebuilder.publish.transport.reports import KeptReports
from imagebuilder.publish.transport.send import Sent, find_objects, publish_to
from imagebuilder.report.save import find_reports
from imagebuilder.store.repository import ImageRef, Store, make_store
from imagebuilder.tree import CANDIDATE, STABLE, Tree, make_tree
from imagebuilder.ui import Ui
from tests.integration.published import make_image
from tests.unit.planted_reports import make_report, plant

pytestmark = pytest.mark.root


@dataclass(frozen=True)
class MirrorArrival:
    """Objects on their way into a folder beside a mirror.

    A pull finds a ref only after its objects, and the channel after its ref.
    """

    mirror: Mirror
    image: ImageRef
    order: Order

    @property
    def staged(self) -> Path:
        return self.mirror.top / "staged/repo"

    def send(self, source: Store, objects: Sequence[str]) -> int:
        make_store(self.staged)
        for name in objects:
            target = self.staged / "objects" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source.path / "objects" / name, target, follow_symlinks=False)
        commits = {"image": self.image.commit, "root": read_image(source, self.image).root.commit}
        for kind, commit in commits.items():
            ref = self.staged / "refs" / kind / self.image.profile / self.image.version
            ref.parent.mkdir(parents=True)
            ref.write_text(commit)
        return sum((self.staged / "objects" / name).lstat().st_size for name in objects)

    def verify(self) -> None:
        found = (self.staged / "objects").glob("??/*.*")
        verify_objects(Store(self.staged), ((p.parent.name + p.stem, p.suffix[1:]) for p in found))

    def activate(self) -> Activated:
        for part in ("objects", "refs"):
            new, there = self.staged / part, self.mirror.top / part
            shutil.copytree(new, there, symlinks=True, dirs_exist_ok=True)
        new = self.staged / self.order.channel
        new.write_text(self.image.version)
        new.replace(self.mirror.top / self.order.channel)
        return Activated({"version": self.image.version}, f"{self.image.name}: mirrored")


@dataclass(frozen=True)
class Mirror:
    """A plain folder of objects and refs, such as a web server has."""

    top: Path

    @property
    def name(self) -> str:
        return "mirror"

    @property
    def where(self) -> str:
        return os.fspath(self.top)

    @property
    def keeps_reports(self) -> bool:
        return False

    def check(self) -> None:
        self.top.mkdir(exist_ok=True)

    def list(self, image: ImageRef) -> PlaceContents:
        del image
        found = (self.top / "refs").glob("*/*/*")
        refs = {str(p.relative_to(self.top / "refs")): p.read_text() for p in found}
        return PlaceContents(refs, 1 << 40, None)

    def have(self) -> frozenset[str]:
        found = (self.top / "objects").glob("??/*")
        return frozenset((path.parent.name + path.name)[:PREFIX] for path in found)

    @contextmanager
    def arrival(self, image: ImageRef, order: Order, ui: Ui) -> Iterator[MirrorArrival]:
        del ui
        try:
            yield MirrorArrival(self, image, order)
        finally:
            shutil.rmtree(self.top / "staged", ignore_errors=True)

    def add_reports(self, image: ImageRef, lines: bytes, ui: Ui) -> KeptReports:
        raise NotImplementedError


@dataclass(frozen=True)
class Builder:
    """A store with two images, and the tree they were tested in."""

    store: Store
    images: tuple[ImageRef, ImageRef]
    tree: Tree

    def send(self, place: Transport, number: int, channel: str = CANDIDATE) -> Sent:
        ui = Ui(io.StringIO())
        image = self.images[number]
        return publish_to(place, self.store, image, ui, channel=channel, tested=self.tree)


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    store = make_store(tmp_path / "state/store")
    work = tmp_path / "work"
    work.mkdir()
    one, two = (make_image(store, work, number) for number in (1, 2))
    return Builder(store, (one, two), make_tree(tmp_path / "own"))


def content(top: Path) -> dict[str, bytes]:
    """Every file below `top`."""
    return {os.fspath(p.relative_to(top)): p.read_bytes() for p in top.rglob("*") if p.is_file()}


def test_a_tree_on_this_machine_gets_what_it_lacks(builder: Builder, tmp_path: Path) -> None:
    place = LocalTree(Tree(tmp_path / "disk"))
    first, second = builder.send(place, 0), builder.send(place, 1)
    assert first.release.published["made"] is True
    assert 0 < second.sent < first.sent
    assert builder.send(place, 1).sent == 0
    for image in builder.images:
        check_release(place.tree, image.release, full=True)
    link = place.tree.channel(builder.images[1].profile, CANDIDATE)
    assert link.readlink().name == builder.images[1].version
    assert list((place.tree.path / "work").iterdir()) == []


def test_boot_tests_come_along_and_open_the_gate(builder: Builder, tmp_path: Path) -> None:
    place, (image, _) = LocalTree(Tree(tmp_path / "disk")), builder.images
    with pytest.raises(WorkError, match="cannot become stable"):
        builder.send(place, 0, STABLE)
    builder.send(LocalTree(builder.tree), 0)
    report = make_report(builder.tree, image.name, 1)
    plant(builder.tree, report)
    assert builder.send(place, 0).reports == (report.id,)
    assert builder.send(place, 0, STABLE).release.published["report"] == report.id
    assert find_reports(place.tree, image.release) == (report,)


def test_a_damaged_object_is_refused_and_nothing_changes(builder: Builder, tmp_path: Path) -> None:
    place = LocalTree(Tree(tmp_path / "disk"))
    builder.send(place, 0)
    before = content(place.tree.http) | content(place.tree.roots)
    old, new = (
        find_objects(builder.store, [i.commit, read_image(builder.store, i).root.commit])
        for i in builder.images
    )
    damaged = next(n for n in sorted(new - old) if n.endswith(".file"))
    with (builder.store.path / "objects" / damaged).open("r+b") as stream:
        stream.write(b"evil")
    with pytest.raises(WorkError, match="was damaged in transit; nothing was published"):
        builder.send(place, 1)
    assert content(place.tree.http) | content(place.tree.roots) == before
    assert list((place.tree.path / "work").iterdir()) == []


def test_a_place_of_another_kind_needs_only_the_protocol(builder: Builder, tmp_path: Path) -> None:
    mirror = Mirror(tmp_path / "mirror")
    first, second = builder.send(mirror, 0), builder.send(mirror, 1)
    assert first.render().startswith(f"{builder.images[0].name}: mirrored\nsent ")
    assert 0 < second.sent < first.sent
    assert builder.send(mirror, 1).sent == 0
    # Without a commit of both sides, the names of the objects tell.
    shutil.rmtree(mirror.top / "refs")
    (mirror.top / "refs/image/other").mkdir(parents=True)
    (mirror.top / "refs/image/other/1").write_text("f" * 64)
    assert builder.send(mirror, 1).sent == 0
    wanted = find_objects(builder.store, [image.commit for image in builder.images])
    assert wanted <= {f"{p.parent.name}/{p.name}" for p in (mirror.top / "objects").glob("??/*")}


@dataclass(frozen=True)
class Forgetful(Mirror):
    """A mirror whose disk keeps nothing, and that says that all is well."""

    @contextmanager
    def arrival(self, image: ImageRef, order: Order, ui: Ui) -> Iterator[MirrorArrival]:
        with super().arrival(image, order, ui) as arrival:
            yield arrival
        shutil.rmtree(self.top / "refs")


def test_a_place_that_says_it_has_what_it_lacks_is_not_believed(
    builder: Builder, tmp_path: Path
) -> None:
    with pytest.raises(HostError, match=r"said that it published .*, but does not have it"):
        builder.send(Forgetful(tmp_path / "mirror"), 0)


@pytest.mark.parametrize("kind", ["file", "dirtree", "dirmeta"])
@pytest.mark.parametrize("how", ["publish", "send"])
def test_no_release_shares_what_was_cut_off(
    builder: Builder, tmp_path: Path, kind: str, how: str
) -> None:
    """What an earlier release brought, on a disk that was full or failed."""
    tree = Tree(tmp_path / "disk")
    place = LocalTree(tree)
    builder.send(place, 0)
    one, two = (
        find_objects(builder.store, [each.commit, read_image(builder.store, each).root.commit])
        for each in builder.images
    )
    cut = tree.repo / "objects" / min(name for name in one & two if name.endswith(f".{kind}"))
    os.truncate(cut, cut.stat().st_size // 2)
    before = content(tree.path / "channels")
    ui = Ui(io.StringIO())
    if how == "publish":
        with pytest.raises(WorkError, match=r"the repository of the tree is damaged\n.*\n.*repair"):
            publish(builder.store, builder.images[1], tree, ui, channel=CANDIDATE)
    elif kind != "file":  # nobody there knows its size: the boot test reads it
        with pytest.raises(WorkError, match=r"the repository of the tree is damaged\n.*\n.*repair"):
            builder.send(place, 1)
    assert content(tree.path / "channels") == before


def test_who_sends_for_ever_keeps_nobody_from_removing_releases(
    builder: Builder, tmp_path: Path
) -> None:
    place, gc = LocalTree(Tree(tmp_path / "disk")), Tree(tmp_path / "disk").lock("gc")
    image, ui = builder.images[0], Ui(io.StringIO())
    root = read_image(builder.store, image).root.commit
    with place.arrival(image, Order(CANDIDATE), ui) as arrival:
        arrival.send(builder.store, sorted(find_objects(builder.store, [image.commit, root])))
        assert not is_locked(gc, shared=True)
        arrival.verify()
        assert is_locked(gc, shared=True), "no removal takes the objects that have no release yet"
        arrival.activate()
    assert not is_locked(gc, shared=True)


def test_what_was_removed_while_more_arrived_is_missed(builder: Builder, tmp_path: Path) -> None:
    tree, ui = Tree(tmp_path / "disk"), Ui(io.StringIO())
    place = LocalTree(tree)
    builder.send(place, 0)
    old, new = (
        find_objects(builder.store, [each.commit, read_image(builder.store, each).root.commit])
        for each in builder.images
    )
    with place.arrival(builder.images[1], Order(CANDIDATE), ui) as arrival:
        arrival.send(builder.store, sorted(new - old))
        shutil.rmtree(tree.path / "channels")
        unpublish(tree, builder.images[0].name, ui, Caution(boot_minutes=0, strangers=True))
        with pytest.raises(WorkError, match="nothing was published"):
            arrival.verify()
    assert find_releases(tree) == []
    assert list((tree.path / "work").iterdir()) == []
    builder.send(place, 1)
    check_release(tree, builder.images[1].release, full=True)


def test_a_place_without_boot_tests_has_no_tested_release(builder: Builder, tmp_path: Path) -> None:
    mirror, (image, _) = Mirror(tmp_path / "mirror"), builder.images
    builder.send(LocalTree(builder.tree), 0)
    plant(builder.tree, make_report(builder.tree, image.name, 1))
    with pytest.raises(HostError, match="keeps no boot tests"):
        builder.send(mirror, 0, STABLE)
    assert not mirror.top.exists()
    assert builder.send(mirror, 0).reports == ()


def test_an_object_that_is_damaged_changes_no_mirror(builder: Builder, tmp_path: Path) -> None:
    mirror, image = Mirror(tmp_path / "mirror"), builder.images[0]
    named = find_objects(
        builder.store, [image.commit, read_image(builder.store, image).root.commit]
    )
    damaged = next(n for n in sorted(named) if n.endswith(".file"))
    with (builder.store.path / "objects" / damaged).open("r+b") as stream:
        stream.write(b"evil")
    with pytest.raises(WorkError):
        builder.send(mirror, 0)
    assert list(mirror.top.iterdir()) == []


def test_what_is_wrong_is_said_before_the_place_is_asked(builder: Builder) -> None:
    nowhere = Mirror(Path("/proc/none"))
    with pytest.raises(InputError, match="nightly"):
        builder.send(nowhere, 0, "nightly")
