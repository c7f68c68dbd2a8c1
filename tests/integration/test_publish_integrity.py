# SPDX-License-Identifier: Apache-2.0
"""What happens to a release after its boot test: nothing of it becomes stable unseen."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from imagebuilder.digest import digest_of_file
from imagebuilder.errors import WorkError
from imagebuilder.fsck.tree import check_tree
from imagebuilder.publish.channel.move import promote, rollback
from imagebuilder.publish.publish import publish
from imagebuilder.publish.release.content import (
    SUMS,
    DamagedError,
    check_release,
    read_sums,
    render_sums,
)
from imagebuilder.rootkind import Format
from imagebuilder.store.objects import (
    DamagedObjectError,
    object_path,
    read_commit,
    read_folder,
)
from imagebuilder.store.repository import ImageRef, Store, make_store
from imagebuilder.tree import ReleaseName, Tree
from tests.integration.published import (
    PROFILE,
    channels_of,
    check_release_whole,
    check_tidy,
    quiet,
    release_of,
)
from tests.unit.planted_reports import make_report, plant

pytestmark = pytest.mark.root


@pytest.fixture
def store(place: Path) -> Store:
    return make_store(place / "state/store")


def put(store: Store, image: ImageRef, tree: Tree) -> None:
    publish(store, image, tree, quiet(), channel="candidate", formats=[Format.SQUASHFS])


@pytest.fixture
def tested(store: Store, images: list[ImageRef], tree: Tree) -> Path:
    """The folder of a candidate that has passed its boot test with each kind of root."""
    put(store, images[0], tree)
    for number, kind in enumerate(("nfs", "nfs-squashfs")):
        plant(tree, make_report(tree, images[0].name, number, root=kind))
    return tree.release(ReleaseName(PROFILE, images[0].version))


def write_sums(folder: Path, sums: dict[str, str]) -> None:
    (folder / SUMS).write_text(render_sums(sums))


def lose_line(folder: Path) -> Path:
    """Cut root.squashfs to half and take its line away."""
    os.truncate(folder / "root.squashfs", (folder / "root.squashfs").stat().st_size // 2)
    sums = read_sums(folder)
    del sums["root.squashfs"]
    write_sums(folder, sums)
    return folder / "root.squashfs"


def lose_both(folder: Path) -> Path:
    """Take a file and its line away."""
    (folder / "cmdline").unlink()
    sums = read_sums(folder)
    del sums["cmdline"]
    write_sums(folder, sums)
    return folder / SUMS


def settle(name: str) -> Callable[[Path], Path]:
    """Change a file and its line."""

    def change(folder: Path) -> Path:
        with (folder / name).open("ab") as stream:
            stream.write(b"\n")
        write_sums(folder, read_sums(folder) | {name: digest_of_file(folder / name)})
        return folder / SUMS

    return change


def add(folder: Path) -> Path:
    (folder / "added").touch()
    return folder / "added"


@pytest.mark.parametrize(
    "change", [lose_line, lose_both, settle("vmlinuz"), settle("root.squashfs"), add]
)
def test_sums_are_bound_to_the_folder_the_manifest_and_the_journal(
    tested: Path, tree: Tree, change: Callable[[Path], Path]
) -> None:
    where = change(tested)
    attempts: tuple[Callable[[], object], ...] = (
        lambda: promote(tree, PROFILE, quiet()),
        lambda: rollback(tree, PROFILE, quiet(), to=tested.name),
    )
    for attempt in attempts:
        with pytest.raises(DamagedError) as caught:
            attempt()
        assert os.fspath(where) in [fault.where for fault in caught.value.faults]
        assert all(fault.hint for fault in caught.value.faults)
    assert channels_of(tree)["stable"] == ""


def test_without_a_journal_the_manifest_still_binds_the_kernel(tested: Path, tree: Tree) -> None:
    tree.journal.unlink()
    promote(tree, PROFILE, quiet())
    settle("vmlinuz")(tested)
    with pytest.raises(DamagedError, match=r"for vmlinuz, manifest\.json has"):
        check_release(tree, ReleaseName(PROFILE, tested.name))


def test_a_ref_that_leads_to_another_root_is_named(
    tested: Path, tree: Tree, store: Store, images: list[ImageRef]
) -> None:
    put(store, images[1], tree)
    refs = tree.repo / "refs/heads/root" / PROFILE
    shutil.copy(refs / images[1].version, refs / tested.name)
    with pytest.raises(DamagedError, match=f"{refs / tested.name}: has commit"):
        promote(tree, images[0].name, quiet())


def edit(root: Path) -> Path:
    """In place, through the link that the repository shares."""
    with (root / "usr/lib/3").open("r+b") as stream:
        stream.write(b"X")
    return root / "usr/lib/3"


def delete(root: Path) -> Path:
    (root / "usr/lib/4").unlink()
    return root / "usr/lib/4"


def delete_folder(root: Path) -> Path:
    shutil.rmtree(root / "usr/lib")
    return root / "usr/lib"


def add_folder(root: Path) -> Path:
    (root / "etc/added").mkdir()
    (root / "etc/added/file").touch()
    return root / "etc/added"


def chmod(root: Path) -> Path:
    (root / "etc/secret").chmod(0o644)
    return root / "etc/secret"


def chown(root: Path) -> Path:
    os.chown(root / "etc", 1, 1)
    os.setxattr(root / "etc", "user.x", b"1")
    return root / "etc"


def relink(root: Path) -> Path:
    (root / "lib").unlink()
    (root / "lib").symlink_to("/etc")
    return root / "lib"


def trade(root: Path) -> Path:
    (root / "etc/empty").unlink()
    (root / "etc/empty").mkdir()
    return root / "etc/empty"


def pipe(root: Path) -> Path:
    (root / "etc/version").unlink()
    os.mkfifo(root / "etc/version")
    return root / "etc/version"


def lose_all(root: Path) -> Path:
    shutil.rmtree(root)
    return root


CHANGES = (
    edit, delete, delete_folder, add_folder, chmod, chown, relink, trade, pipe, lose_all,
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_root_that_changed_after_its_test_is_refused_and_publish_restores_it(
    tested: Path, tree: Tree, store: Store, images: list[ImageRef], change: Callable[[Path], Path]
) -> None:
    root = tree.root(ReleaseName(PROFILE, tested.name))
    untouched = (root / "usr/lib/9").stat().st_ino
    where = change(root)
    with pytest.raises(DamagedError) as caught:
        promote(tree, PROFILE, quiet())
    assert [fault.where for fault in caught.value.faults] == [os.fspath(where)]
    assert f"run imagebuilder publish {PROFILE}@{tested.name} to restore it" in str(caught.value)
    put(store, images[0], tree)
    check_release_whole(tree, release_of(images[0]))
    check_tidy(tree)
    if change not in (lose_all, delete_folder):
        assert (root / "usr/lib/9").stat().st_ino == untouched
    assert promote(tree, PROFILE, quiet()).passage.report.startswith("20261121")


def test_many_changes_are_told_in_a_few_lines(tested: Path, tree: Tree) -> None:
    for path in (tree.root(ReleaseName(PROFILE, tested.name)) / "usr/lib").iterdir():
        path.unlink()
    with pytest.raises(DamagedError) as caught:
        promote(tree, PROFILE, quiet())
    assert len(caught.value.faults) == 21
    assert "has 80 more paths that differ from its commit" in str(caught.value)


def test_what_the_store_has_damaged_too_is_not_restored(
    tested: Path, tree: Tree, store: Store, images: list[ImageRef]
) -> None:
    content = (edit(tree.root(ReleaseName(PROFILE, tested.name)))).read_bytes()
    for path in store.path.glob("objects/*/*.file"):
        if not path.is_symlink() and path.read_bytes()[1:] == content[1:]:
            path.write_bytes(b"damaged")
    with pytest.raises(WorkError, match="also damaged in the image's source repository"):
        put(store, images[0], tree)


TERABYTE = 1 << 40
SECONDS = 60  # to read a sparse terabyte takes half an hour at least


@contextmanager
def quickly() -> Iterator[None]:
    before = time.monotonic()
    yield
    assert time.monotonic() - before < SECONDS


@pytest.mark.usefixtures("tested")
def test_a_sparse_terabyte_in_a_root_is_not_read(
    store: Store, tree: Tree, images: list[ImageRef]
) -> None:
    """A file of the root is one with its object in the tree's repository."""
    release = release_of(images[0])
    file = tree.root(release) / "usr/lib/1"
    os.truncate(file, TERABYTE)
    with quickly():
        with pytest.raises(DamagedError, match="usr/lib/1: has different content"):
            check_release(tree, release)
        (damage,) = check_tree(tree, repair=False, donors=()).damage[:1]
        assert "does not match its digest" in damage.how
        # Published again, it is restored from the store.
        put(store, images[0], tree)
    assert file.stat().st_size < 1 << 20


@pytest.mark.usefixtures("tested")
def test_a_new_release_does_not_get_a_terabyte_that_the_tree_had(
    store: Store, tree: Tree, images: list[ImageRef]
) -> None:
    os.truncate(tree.root(release_of(images[0])) / "usr/lib/1", TERABYTE)
    with quickly(), pytest.raises(WorkError, match=r"usr/lib/1 has 1\.1 TB in the repository"):
        put(store, images[1], tree)
    assert not tree.release(release_of(images[1])).exists()


@pytest.mark.parametrize("name", ["vmlinuz", "sbom.spdx.json"])
def test_a_boot_file_of_a_terabyte_is_neither_read_nor_copied(
    tested: Path, store: Store, tree: Tree, images: list[ImageRef], name: str
) -> None:
    release = release_of(images[1])
    put(store, images[1], tree)
    kept = Store(tree.repo)
    checksum = read_folder(tree.repo, read_commit(tree.repo, images[1].commit)[0]).files[name]
    os.truncate(tree.repo / "objects" / object_path(checksum, "file"), TERABYTE)
    shutil.rmtree(tree.release(release))
    with quickly(), pytest.raises(WorkError, match=f"its {name} is damaged: it has 1099511627776"):
        publish(kept, images[1], tree, quiet(), channel="candidate")
    os.truncate(tested / name, TERABYTE)
    with quickly(), pytest.raises(DamagedError, match="larger than the whole root"):
        check_release(tree, release_of(images[0]))


@pytest.mark.usefixtures("tested")
def test_a_list_of_files_of_a_terabyte_is_not_read(tree: Tree) -> None:
    path = next((tree.repo / "objects").glob("*/*.dirtree"))
    os.truncate(path, TERABYTE)
    with quickly(), pytest.raises(DamagedObjectError, match="does not have the checksum"):
        read_folder(tree.repo, f"{path.parent.name}{path.stem}")
