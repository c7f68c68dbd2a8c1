# SPDX-License-Identifier: Apache-2.0
"""Images into a netboot tree and out of it: what is there afterwards, and what is refused."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from imagebuilder.errors import HostError, InputError, WorkError
from imagebuilder.process import run
from imagebuilder.publish.channel.move import promote, rollback
from imagebuilder.publish.listing import verify_releases
from imagebuilder.publish.publish import Published, publish
from imagebuilder.publish.release.content import DamagedError, read_sums
from imagebuilder.publish.removal import collect_releases, unpublish
from imagebuilder.rootkind import Format, RootKind
from imagebuilder.store.repository import ImageRef, Store, make_store
from imagebuilder.tree import ReleaseName, Tree, make_tree
from tests.integration.published import (
    BOLD,
    PROFILE,
    UNTESTED,
    channels_of,
    check_objects,
    check_release_whole,
    check_tidy,
    make_image,
    quiet,
    release_of,
)

pytestmark = pytest.mark.root
CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def store(place: Path) -> Store:
    """An empty store."""
    return make_store(place / "state/store")


def put(
    store: Store,
    image: ImageRef,
    tree: Tree,
    channel: str = "candidate",
    *,
    formats: Sequence[Format] = (),
) -> Published:
    """Publish, quietly."""
    return publish(store, image, tree, quiet(), channel=channel, formats=formats, untested=UNTESTED)


def inodes(folder: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of every file."""
    return {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in folder.iterdir()}


def test_a_release_has_everything_and_is_readable(
    store: Store, images: list[ImageRef], tree: Tree
) -> None:
    done = put(store, images[0], tree)
    assert done.made
    release = release_of(images[0])
    check_release_whole(tree, release)
    check_tidy(tree)
    folder = tree.release(release)
    assert {p.name for p in folder.iterdir()} == {
        "vmlinuz", "early.img", "initrd.img", "manifest.json", "sbom.spdx.json", "cmdline",
        "boot.ipxe", "SHA256SUMS",
    }  # fmt: skip
    run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder)
    assert channels_of(tree) == {"candidate": release.version, "stable": ""}
    link = tree.channel(PROFILE, "candidate").readlink()
    assert os.fspath(link) == f"../../http/releases/{PROFILE}/{release.version}"


def test_a_root_is_hard_links_into_the_repository_and_copies_of_the_store(
    store: Store, images: list[ImageRef], tree: Tree
) -> None:
    put(store, images[0], tree)
    root = tree.root(ReleaseName(PROFILE, images[0].version))
    inode = (root / "usr/lib/7").stat().st_ino
    assert inode in {p.lstat().st_ino for p in tree.repo.glob("objects/*/*.file")}
    mine = {p.lstat().st_ino for p in store.path.rglob("*")}
    assert not mine & {p.lstat().st_ino for p in tree.path.rglob("*")}
    assert (root / "etc/secret").stat().st_mode & 0o777 == 0o600
    # All empty files are one object: linked, 65,000 of them would be the end of it on ext4.
    assert (root / "etc/empty").stat().st_nlink == 1


def test_writing_into_a_published_root_does_not_reach_the_store(
    store: Store, images: list[ImageRef], tree: Tree
) -> None:
    for image in images[:2]:
        put(store, image, tree)
    for path in tree.roots.rglob("*"):
        if path.is_file():
            with path.open("r+b") as stream:
                stream.write(b"X" * 20)
    check_objects(store.path)
    with pytest.raises(WorkError, match="Corrupted"):
        check_objects(tree.repo)


def test_on_another_file_system_a_root_is_copied_once(
    store: Store, images: list[ImageRef], tmp_path: Path
) -> None:
    tree = make_tree(tmp_path / "netboot")
    assert tree.path.stat().st_dev != store.path.stat().st_dev
    for image in images[:2]:
        put(store, image, tree)
        check_release_whole(tree, release_of(image))
    first, second = (
        tree.root(ReleaseName(PROFILE, image.version)) / "usr/lib/7" for image in images[:2]
    )
    assert first.stat().st_ino == second.stat().st_ino
    check_tidy(tree)


def test_a_kernel_and_initrd_that_a_release_has_are_linked_and_damaged_ones_are_not(
    store: Store, images: list[ImageRef], tree: Tree, place: Path
) -> None:
    put(store, images[0], tree)
    old = tree.release(ReleaseName(PROFILE, images[0].version))
    damaged = (old / "initrd.img").read_bytes()[:-1] + b"!"
    (old / "initrd.img").unlink()
    (old / "initrd.img").write_bytes(damaged)
    image = make_image(store, place, 5, pair=1)
    put(store, image, tree)
    new = tree.release(ReleaseName(PROFILE, image.version))
    assert (new / "vmlinuz").samefile(old / "vmlinuz")
    assert not (new / "initrd.img").samefile(old / "initrd.img")
    check_release_whole(tree, release_of(image))


def test_publishing_twice_changes_nothing_and_says_so(
    store: Store, images: list[ImageRef], tree: Tree
) -> None:
    put(store, images[0], tree)
    folder = tree.release(ReleaseName(PROFILE, images[0].version))
    before, said = inodes(folder), tree.journal.read_text()
    again = put(store, images[0], tree)
    assert (again.made, again.packed) == (False, ())
    assert "already published" in again.render()
    assert "candidate is" in again.render()
    assert inodes(folder) == before
    assert tree.journal.read_text() == said
    put(store, images[1], tree)
    assert put(store, images[0], tree).moved.previous == images[1].version
    assert channels_of(tree)["candidate"] == images[0].version


def test_squashfs_comes_later_without_touching_a_file(
    store: Store, images: list[ImageRef], tree: Tree, place: Path
) -> None:
    put(store, images[0], tree)
    folder = tree.release(ReleaseName(PROFILE, images[0].version))
    before, stamp = inodes(folder), folder.stat().st_mtime_ns
    done = put(store, images[0], tree, formats=[Format.SQUASHFS])
    assert (done.made, done.packed) == (False, ("root.squashfs",))
    check_release_whole(tree, release_of(images[0]))
    after = inodes(folder)
    assert set(after) - set(before) == {"root.squashfs"}
    assert {n for n in before if after[n] != before[n]} == {"SHA256SUMS"}
    assert folder.stat().st_mtime_ns == stamp
    run(
        [
            "unsquashfs",
            "-quiet",
            "-no-progress",
            "-dest",
            place / "out",
            folder / "root.squashfs",
        ]
    )
    assert (place / "out/etc/version").read_text() == images[0].version
    assert not put(store, images[0], tree, formats=[Format.SQUASHFS]).packed
    check_tidy(tree)


@pytest.mark.parametrize(
    ("root", "name"),
    [("http", "root.squashfs"), ("nfs-squashfs", "root.squashfs"), ("http-erofs", "root.erofs")],
)
def test_an_image_is_packed_as_it_boots(
    store: Store, tree: Tree, place: Path, root: RootKind, name: str
) -> None:
    image = make_image(store, place, 1, root=root)
    assert put(store, image, tree).packed == (name,)
    check_release_whole(tree, release_of(image))
    folder = tree.release(ReleaseName(PROFILE, image.version))
    assert (folder / name).stat().st_size > 0
    assert f"set root-kind {root}\n" in (folder / "boot.ipxe").read_text()


def test_an_image_is_packed_as_its_nodes_boot(
    store: Store, images: list[ImageRef], tree: Tree
) -> None:
    entry = 'nodes: {{n1: {{macs: ["52:54:00:00:00:01"], profile: {}, root: http-erofs}}}}\n'
    tree.nodes_file.write_text(entry.format("another"))
    assert put(store, images[0], tree).packed == ()
    tree.nodes_file.write_text(entry.format(PROFILE))
    assert put(store, images[0], tree).packed == ("root.erofs",)
    tree.nodes_file.write_text("nodes: [\n")  # somebody is writing it
    assert put(store, images[1], tree).packed == ()


def test_the_same_root_is_packed_to_the_same_bytes(
    store: Store, images: list[ImageRef], tree: Tree, place: Path
) -> None:
    found = set()
    for number, folder in enumerate((tree, make_tree(place / "again"))):
        time.sleep(number)  # a time that slipped in would be another one
        put(store, images[0], folder, formats=list(Format))
        sums = read_sums(folder.release(ReleaseName(PROFILE, images[0].version)))
        found.add((sums["root.squashfs"], sums["root.erofs"]))
    assert len(found) == 1


def test_a_squashfs_has_a_second_name_for_nfs(
    store: Store, images: list[ImageRef], tree: Tree
) -> None:
    put(store, images[0], tree, formats=[Format.SQUASHFS])
    shared = tree.shared_squashfs(ReleaseName(PROFILE, images[0].version))
    content = shared.read_bytes()
    shared.unlink()
    shared.write_bytes(content)  # a copy takes space, and need not stay what it is
    with pytest.raises(DamagedError, match="under a second name"):
        verify_releases(tree, quiet())
    put(store, images[0], tree)
    assert verify_releases(tree, quiet()) == 1
    shared.unlink()
    with pytest.raises(DamagedError, match="under a second name"):
        verify_releases(tree, quiet())
    promote(tree, PROFILE, quiet(), untested=UNTESTED)
    assert shared.samefile(tree.release(ReleaseName(PROFILE, images[0].version)) / "root.squashfs")
    assert verify_releases(tree, quiet()) == 1


def test_a_second_name_goes_with_its_release(
    store: Store, images: list[ImageRef], tree: Tree
) -> None:
    for image in images[:3]:
        put(store, image, tree, formats=[Format.SQUASHFS] if image != images[2] else [])
    unpublish(tree, f"{PROFILE}@{images[0].version}", quiet(), BOLD)
    # Somebody was killed: before a release came, while it got a squashfs, and as it went.
    for image in (images[2], images[3]):
        tree.shared_squashfs(ReleaseName(PROFILE, image.version)).write_bytes(b"unfinished")
    check_release_whole(tree, release_of(images[2]))
    shutil.rmtree(tree.release(ReleaseName(PROFILE, images[1].version)))
    collect_releases(tree, quiet(), BOLD, keep=1, dry_run=False)
    check_tidy(tree)
    assert list(tree.roots.glob("*/*.squashfs")) == []
    put(store, images[3], tree, formats=[Format.SQUASHFS])
    check_release_whole(tree, release_of(images[3]))


def test_umask_of_the_person_does_not_matter(
    store: Store, images: list[ImageRef], place: Path
) -> None:
    before = os.umask(0o077)
    try:
        tree = make_tree(place / "netboot")
        put(store, images[0], tree, formats=[Format.SQUASHFS])
        put(store, images[1], tree)
        put(store, images[1], tree, formats=[Format.SQUASHFS])
        promote(tree, PROFILE, quiet(), untested=UNTESTED)
    finally:
        os.umask(before)
    seen = ["sh", "-c", 'cat "$@" > /dev/null', "sh"]
    files = [p for p in tree.http.rglob("*") if p.is_file()]
    files.append(tree.channel(PROFILE, "stable") / "boot.ipxe")
    place.chmod(0o711)
    run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--", *seen, *files])
    # Of a root the folders above it are closed (roots/), not those that nodes see.
    root = tree.root(ReleaseName(PROFILE, images[0].version))
    assert all(p.stat().st_mode & 0o555 == 0o555 for p in (root.parent, root, root / "usr/lib"))


def test_a_store_with_a_damaged_kernel_is_not_published(
    store: Store, images: list[ImageRef], tree: Tree
) -> None:
    for path in store.path.glob("objects/*/*.file"):
        if path.is_file() and path.read_bytes().startswith(b"vmlinuz 1"):
            with path.open("r+b") as stream:
                stream.write(b"tampered")
    with pytest.raises(WorkError, match="its source repository is damaged"):
        put(store, images[0], tree)
    assert not tree.release(ReleaseName(PROFILE, images[0].version)).exists()
    assert list((tree.path / "work").iterdir()) == []


def test_another_image_under_the_same_name_is_refused(
    store: Store, images: list[ImageRef], tree: Tree, place: Path
) -> None:
    put(store, images[0], tree)
    (place / "again").mkdir()
    other = make_image(store, place / "again", 1, size=2000)
    with pytest.raises(InputError, match="another image is published under this name"):
        put(store, other, tree)


TAMPER: dict[str, Callable[[Path], object]] = {
    "vmlinuz": lambda path: path.write_bytes(b"x" * path.stat().st_size),
    "early.img": lambda path: path.unlink(),
    "initrd.img": lambda path: os.truncate(path, 5),
    "manifest.json": lambda path: path.write_text("{}"),
    "root.squashfs": lambda path: path.unlink(),
    "SHA256SUMS": lambda path: path.write_text("nonsense"),
}


@pytest.mark.parametrize("name", TAMPER)
def test_a_tampered_release_is_refused_by_name(
    store: Store, images: list[ImageRef], tree: Tree, name: str
) -> None:
    put(store, images[0], tree, "stable")
    put(store, images[1], tree, formats=[Format.SQUASHFS])
    TAMPER[name](tree.release(ReleaseName(PROFILE, images[1].version)) / name)
    for attempt in (
        lambda: promote(tree, PROFILE, quiet(), untested=UNTESTED),
        lambda: put(store, images[1], tree, "stable"),
        lambda: rollback(tree, PROFILE, quiet(), to=images[1].version),
        lambda: verify_releases(tree, quiet()),
    ):
        with pytest.raises(DamagedError) as caught:
            attempt()
        (fault,) = caught.value.faults
        assert fault.where.endswith(f"{images[1].version}/{name}")
        assert f"unpublish {PROFILE}@{images[1].version}" in fault.hint
    assert channels_of(tree)["stable"] == images[0].version


def test_a_time_that_changed_alone_is_no_damage(
    store: Store, images: list[ImageRef], tree: Tree
) -> None:
    put(store, images[0], tree)
    os.utime(tree.release(ReleaseName(PROFILE, images[0].version)) / "vmlinuz")
    assert promote(tree, PROFILE, quiet(), untested=UNTESTED).version == images[0].version


def change_through_link(root: Path) -> Path:
    with (root / "usr/lib/3").open("r+b") as stream:
        stream.write(b"X")
    return root / "usr/lib/3"


def change_mode(root: Path) -> Path:
    (root / "etc/secret").chmod(0o644)
    return root / "etc/secret"


def change_attribute(root: Path) -> Path:
    os.setxattr(root / "usr/lib/4", "user.x", b"1")
    return root / "usr/lib/4"


def change_top(root: Path) -> Path:
    root.chmod(0o700)
    return root


def replace_file(root: Path) -> Path:
    (root / "usr/lib/5").unlink()
    (root / "usr/lib/5").write_text("5\n" * 99)
    return root / "usr/lib/5"


def remove_file(root: Path) -> Path:
    (root / "usr/lib/6").unlink()
    return root / "usr/lib/6"


def add_file(root: Path) -> Path:
    (root / "etc/added file").touch()
    return root / "etc/added file"


def remove_root(root: Path) -> Path:
    shutil.rmtree(root)
    return root


@pytest.mark.parametrize(
    "change",
    [
        change_through_link, change_mode, change_attribute, change_top, replace_file, remove_file,
        add_file, remove_root,
    ],
)  # fmt: skip
def test_verify_finds_what_changed_in_a_root(
    store: Store, images: list[ImageRef], tree: Tree, change: Callable[[Path], Path]
) -> None:
    put(store, images[0], tree)
    assert verify_releases(tree, quiet()) == 1
    where = change(tree.root(ReleaseName(PROFILE, images[0].version)))
    with pytest.raises(DamagedError) as caught:
        verify_releases(tree, quiet())
    assert os.fspath(where) in [fault.where for fault in caught.value.faults]


ENOUGH = 120  # KiB: about what a release takes
FULL = """
mount -t tmpfs -o size=64M none {top}
cp -a {source}/state {source}/netboot {top}
free=$(df --output=avail --block-size=1K {top} | tail -n 1)
fallocate -l $((free - {left}))K {top}/filler
listing() {{ find {top}/netboot ! -path '*/locks/*' ! '(' -path '*/repo/*' -type d ')' | sort; }}
listing > {source}/before
status=0
"$@" || status=$?
listing | diff {source}/before - && echo "changed=no"
exit $status
"""


@pytest.fixture
def shop(
    store: Store, images: list[ImageRef], place: Path
) -> Callable[[int, str], tuple[int, str, str]]:
    """Publish in a copy of store and tree on a disk with so many KiB left."""
    put(store, images[0], make_tree(place / "netboot"))
    top = place / "top"
    top.mkdir()

    def attempt(left: int, version: str) -> tuple[int, str, str]:
        script = FULL.format(top=top, source=place, left=left)
        words = ["--state", f"{top}/state", "publish", f"{PROFILE}@{version}",
                 "--tree", f"{top}/netboot"]  # fmt: skip
        done = run(
            ["unshare", "--mount", "--", "sh", "-c", script, "sh",
             sys.executable, "-m", "imagebuilder.cli.main", *words],
            cwd=CHECKOUT,
            check=False,
        )  # fmt: skip
        return done.status, done.stdout, done.stderr

    return attempt


@pytest.mark.parametrize("left", [0, 8, 40, ENOUGH, 400])
def test_a_full_disk_is_told_and_changes_nothing(
    shop: Callable[[int, str], tuple[int, str, str]], images: list[ImageRef], left: int
) -> None:
    status, stdout, stderr = shop(left, images[1].version)
    if status == 0:
        assert left >= ENOUGH, stderr
        return
    assert status == HostError.exit_code, stderr
    assert "disk is full" in stderr or "no space left" in stderr.lower()
    assert "hint: " in stderr
    assert "changed=no" in stdout, stderr
