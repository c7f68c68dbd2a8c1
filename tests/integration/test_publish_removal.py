# SPDX-License-Identifier: Apache-2.0
"""Releases that go: what gc and unpublish leave, and why."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

import pytest

from imagebuilder.errors import InputError, WorkError
from imagebuilder.process import run
from imagebuilder.publish import journal
from imagebuilder.publish.channel.move import promote, rollback
from imagebuilder.publish.listing import list_releases
from imagebuilder.publish.publish import publish
from imagebuilder.publish.removal import Caution, collect_releases, keep_release, unpublish
from imagebuilder.store.objects import object_path, read_commit
from imagebuilder.store.repository import ImageRef, Store, make_store
from imagebuilder.tree import ReleaseName, Tree
from imagebuilder.ui import Ui
from tests.integration.published import (
    BOLD,
    PROFILE,
    UNTESTED,
    check_release_whole,
    check_tidy,
    check_tree,
    make_image,
    quiet,
    release_of,
)
from tests.unit.web_log import boots, report_line, write_log

pytestmark = pytest.mark.root
CHECKOUT = Path(__file__).parents[2]
MAC2, MAC3 = "52:54:00:77:00:02", "52:54:00:77:00:03"
NODES = (
    f"nodes:\n  n2: {{macs: ['{MAC2}'], profile: {PROFILE}}}\n"
    f"  n3: {{macs: ['{MAC3}'], profile: {PROFILE}}}\n"
)


@pytest.fixture
def store(place: Path) -> Store:
    """An empty store."""
    return make_store(place / "state/store")


def put(store: Store, image: ImageRef, tree: Tree) -> None:
    """Publish to candidate, quietly."""
    publish(store, image, tree, quiet(), channel="candidate")


def objects(tree: Tree) -> set[str]:
    """The objects of the tree's repository."""
    return {p.name for p in (tree.repo / "objects").rglob("*") if p.is_file() or p.is_symlink()}


def test_promote_and_rollback_go_back_further_each_time(
    store: Store, images: list[ImageRef], tree: Tree
) -> None:
    versions = [image.version for image in images]
    for image in images:
        put(store, image, tree)
        promote(tree, PROFILE, quiet(), untested=UNTESTED)
    unpublish(tree, f"{PROFILE}@{versions[1]}", quiet(), BOLD)
    assert rollback(tree, PROFILE, quiet()).version == versions[2]
    assert rollback(tree, PROFILE, quiet()).version == versions[0]
    with pytest.raises(InputError, match="no release that was stable before"):
        rollback(tree, PROFILE, quiet())
    assert rollback(tree, PROFILE, quiet(), to="00000004").version == versions[3]
    assert rollback(tree, PROFILE, quiet()).version == versions[0]


def test_gc_leaves_what_may_be_needed(
    store: Store, images: list[ImageRef], tree: Tree, place: Path
) -> None:
    more = [make_image(store, place, number) for number in range(5, 9)]
    every = [*images, *more]
    for image in every:
        put(store, image, tree)
    version = [image.version for image in every]
    promote(tree, f"{PROFILE}@{version[0]}", quiet(), untested=UNTESTED)
    promote(tree, f"{PROFILE}@{version[1]}", quiet(), untested=UNTESTED)
    keep_release(tree, f"{PROFILE}@{version[2]}", quiet())
    tree.nodes_file.write_text(
        f"{NODES}  n1:\n    macs: [52:54:00:77:00:01]\n"
        f"    profile: {PROFILE}\n    version: {version[3]}\n"
    )
    report(tree, every[4], MAC2)
    old = "2020-01-01T00:00:00+00:00"
    report(tree, every[5], MAC3, time=old, address="192.0.2.8")
    would = collect_releases(tree, quiet(), BOLD, keep=1, dry_run=True)
    assert [r.version for r in would.releases] == [version[5], version[6]]
    assert {r.version: why for r, why in would.kept} == {
        version[0]: "a rollback would return to it",
        version[1]: "it is stable",
        version[2]: "it is kept",
        version[3]: "node n1 is pinned to it",
        version[4]: "in use by n2",
    }
    assert len(list_releases(tree)) == 8
    before = objects(tree)
    assert collect_releases(tree, quiet(), BOLD, keep=1, dry_run=False) == would
    assert len(list_releases(tree)) == 6
    assert objects(tree) < before
    check_tree(tree)
    check_tidy(tree)


def report(
    tree: Tree,
    image: ImageRef,
    mac: str,
    *,
    time: str = "2999-01-01T00:00:00+00:00",
    address: str = "192.0.2.7",
) -> None:
    """Let a node report that it booted `image`."""
    boots(tree, mac, f"{PROFILE}/{image.version}", time=time, address=address)


def test_gc_and_unpublish_wait_for_a_node_that_is_just_booting(
    store: Store, images: list[ImageRef], tree: Tree
) -> None:
    for image in images[:3]:
        put(store, image, tree)
    name = f"{PROFILE}@{images[0].version}"
    careful = Caution(strangers=True)
    assert collect_releases(tree, quiet(), careful, keep=1, dry_run=False).releases == ()
    with pytest.raises(InputError, match="a node may be booting it now"):
        unpublish(tree, name, quiet(), careful)
    unpublish(tree, name, quiet(), BOLD)
    check_tidy(tree)


def test_unpublish_refuses_what_is_needed(store: Store, images: list[ImageRef], tree: Tree) -> None:
    for image in images[:2]:
        put(store, image, tree)
    tree.nodes_file.write_text(NODES)
    name = f"{PROFILE}@{images[0].version}"
    report(tree, images[0], MAC2)
    with pytest.raises(InputError, match="in use by n2"):
        unpublish(tree, name, quiet(), BOLD)
    report(tree, images[1], MAC2)
    keep_release(tree, name, quiet())
    with pytest.raises(InputError, match="it is kept"):
        unpublish(tree, name, quiet(), BOLD)
    keep_release(tree, name, quiet(), off=True)
    with pytest.raises(InputError, match="it is candidate"):
        unpublish(tree, f"{PROFILE}@{images[1].version}", quiet(), BOLD)
    with pytest.raises(InputError, match="names no version"):
        unpublish(tree, PROFILE, quiet(), BOLD)
    unpublish(tree, name, quiet(), BOLD)
    check_tidy(tree)
    events = [event.event for event in journal.read_tail(tree.journal)]
    assert events == ["publish", "set", "publish", "set", "keep", "unkeep", "unpublish"]


def test_a_forged_report_lets_gc_remove_nothing(
    store: Store, images: list[ImageRef], tree: Tree
) -> None:
    """Somebody else reports, from another address, that the node runs the newest release."""
    for image in images[:3]:
        put(store, image, tree)
    tree.nodes_file.write_text(NODES)
    report(tree, images[0], MAC2)
    uri = f"/report/{PROFILE}/{images[2].version}?stage=switch-root&uptime=9.1&node={MAC2}"
    write_log(tree, report_line(uri, time="2999-01-02T00:00:00+00:00", address="192.0.2.66"))
    done = collect_releases(tree, quiet(), BOLD, keep=1, dry_run=False)
    assert [release.version for release in done.releases] == [images[1].version]
    assert dict(done.kept)[release_of(images[0])] == "in use by n2"


def test_a_damaged_record_lets_gc_remove_nothing(
    store: Store, images: list[ImageRef], tree: Tree
) -> None:
    for image in images[:3]:
        put(store, image, tree)
    tree.nodes_file.write_text(NODES)
    tree.seen(MAC2).write_bytes(b"\0" * 200)
    said = io.StringIO()
    done = collect_releases(tree, Ui(stream=said), BOLD, keep=1, dry_run=False)
    assert done.releases == ()
    assert f"the record {tree.seen(MAC2)} is damaged and may name it" in said.getvalue()
    with pytest.raises(InputError, match="is damaged and may name it"):
        unpublish(tree, f"{PROFILE}@{images[0].version}", quiet(), BOLD)
    tree.seen(MAC2).unlink()
    assert len(collect_releases(tree, quiet(), BOLD, keep=1, dry_run=False).releases) == 2


def test_without_ss_there_are_only_the_reports() -> None:
    script = 'mount --bind /dev/null "$(command -v ss)" && exec "$@"'
    code = "from imagebuilder.nodes.evidence.usage import find_connected; print(find_connected())"
    done = run(
        ["unshare", "--mount", "--", "sh", "-c", script, "sh", sys.executable, "-c", code],
        cwd=CHECKOUT,
    )
    assert done.stdout == "[]\n"


def test_an_nfs_client_that_never_reported_stops_removal(
    store: Store,
    images: list[ImageRef],
    tree: Tree,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for image in images[:2]:
        put(store, image, tree)
    (tmp_path / "ss").write_text("#!/bin/sh\necho 0 0 192.0.2.1:2049 192.0.2.9:774\n")
    (tmp_path / "ss").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    careful = Caution(boot_minutes=0)
    with pytest.raises(InputError, match=r"never reported may use it: 192\.0\.2\.9") as caught:
        unpublish(tree, f"{PROFILE}@{images[0].version}", quiet(), careful)
    assert "--ignore-unknown-clients" in caught.value.faults[0].hint
    assert collect_releases(tree, quiet(), careful, keep=1, dry_run=False).releases == ()
    tree.nodes_file.write_text(NODES)
    report(tree, images[1], MAC2, address="192.0.2.9")
    assert len(collect_releases(tree, quiet(), careful, keep=1, dry_run=False).releases) == 1


def test_a_nodes_file_with_faults_stops_gc(
    store: Store, images: list[ImageRef], tree: Tree
) -> None:
    for image in images[:2]:
        put(store, image, tree)
    tree.nodes_file.write_text("nodes: 7\n")
    with pytest.raises(InputError, match=r"nodes\.yaml"):
        collect_releases(tree, quiet(), BOLD, keep=1, dry_run=False)
    assert len(list_releases(tree)) == 2


def test_a_root_without_its_release_is_replaced_or_removed(
    store: Store, images: list[ImageRef], tree: Tree
) -> None:
    for image in images[:2]:
        root = tree.root(ReleaseName(PROFILE, image.version))
        root.mkdir(parents=True)
        (root / "leftover").touch()
    put(store, images[0], tree)
    check_release_whole(tree, release_of(images[0]))
    assert not (tree.root(ReleaseName(PROFILE, images[0].version)) / "leftover").exists()
    collect_releases(tree, quiet(), BOLD, keep=5, dry_run=False)
    check_tidy(tree)


def test_gc_removes_what_a_pull_that_was_cut_short_left(
    store: Store, images: list[ImageRef], tree: Tree, tmp_path: Path
) -> None:
    put(store, images[0], tree)
    broken = tmp_path / "broken"
    shutil.copytree(store.path, broken, symlinks=True)
    commit = images[1].commit
    tree_of, _ = read_commit(broken, commit)
    (broken / "objects" / object_path(tree_of, "dirtree")).unlink()
    repo = Store(tree.repo)
    with pytest.raises(WorkError):
        repo.ostree("pull-local", broken, commit)
    left = tree.repo / "state" / f"{commit}.commitpartial"
    assert left.is_file()
    collect_releases(tree, quiet(), BOLD, keep=1, dry_run=False)
    assert not left.exists()
    put(store, images[1], tree)
    assert repo.refs("image")
