# SPDX-License-Identifier: Apache-2.0
"""Layers into and out of the store: what a step wrote is what the next checkout has."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.errors import InputError, WorkError
from imagebuilder.image.types import encode_image, read_image
from imagebuilder.locks import file_lock, is_locked
from imagebuilder.process import run
from imagebuilder.sandbox.sandbox import Sandbox
from imagebuilder.store.records import Record, drop_records, find_record, make_record
from imagebuilder.store.repository import Store
from imagebuilder.store.upper import OPAQUE, Changes, settle
from imagebuilder.store.workplace import KEPT, keep, remove_tree, sweep, workplace
from tests.images import IMAGE
from tests.integration.changes import snapshot
from tests.integration.published import check_objects
from tests.integration.started import PATIENCE

pytestmark = pytest.mark.root


STEPS = {
    "add": "mkdir -p /opt/a; echo 1 > /opt/a/x; ln -s x /opt/a/link; chmod 2750 /opt/a",
    "replace": "echo changed > /etc/first; chmod 600 /etc/first",
    "delete": "rm /etc/first; rm -r /opt/old",
    "opaque": "rm -r /opt/old; mkdir /opt/old; echo fresh > /opt/old/new",
    "file for directory": "rm -r /opt/old; echo file > /opt/old",
    "directory for file": "rm /etc/first; mkdir /etc/first; echo x > /etc/first/x",
    "link for directory": "rm -r /opt/old; ln -s /etc /opt/old",
    "rename": "mv /etc/first /etc/second; mv /opt/old /opt/new",
    "mode of a directory": "chmod 700 /opt/old",
    "empty file": ": > /etc/empty; : > /etc/first",
    "nothing": "true",
}


@pytest.mark.parametrize("script", STEPS.values(), ids=STEPS)
def test_layer_is_what_the_step_saw(busybox: Path, store: Store, script: str) -> None:
    """Commit by commit, a checkout equals the overlay that the kernel showed."""
    root = busybox / "c"
    (root / "etc/first").write_text("first")
    (root / "opt/old/deep").mkdir(parents=True)
    (root / "opt/old/deep/x").write_text("x")
    below = store.commit_layer("a" * 64, root, Changes(), below=None, epoch=1)
    store.checkout(below, busybox / "c0")
    before = snapshot(busybox / "c0")

    sandbox = Sandbox(busybox, ("c0",), "u", 1)
    run(["sh", "-c", script], sandbox=sandbox)
    changes = settle(busybox / "u", [busybox / "c0"])
    commit = store.commit_layer("b" * 64, busybox / "u", changes, below=below, epoch=1)
    store.checkout(commit, busybox / "after")

    # The kernel's own merge of the settled upper is the truth to compare with.
    truth = Sandbox(busybox, ("u", "c0"), "v", 1)
    mounts = {"proc", "sys", "dev", "run", "tmp"}
    skipped = " -o ".join(f"-path /{name}" for name in sorted(mounts))
    listing = f"find / -xdev \\( {skipped} \\) -prune -o -print"
    merged = run(["busybox", "sh", "-c", f"busybox {listing}"], sandbox=truth).stdout.split()
    names = {name.lstrip("/") for name in merged} - {"", "usr/sbin/policy-rc.d"}
    after = snapshot(busybox / "after")
    assert set(after) - mounts == names - mounts
    for name, entry in snapshot(busybox / "u").items():
        if not stat.S_ISCHR(int(str(entry[0]))):
            assert after[name] == entry
    assert snapshot(busybox / "c0") == before, "the layer below was written to"


def test_a_new_folder_removes_nothing(busybox: Path) -> None:
    """overlayfs marks each folder that dpkg makes and renames; most hide nothing."""
    (busybox / "c/opt/old").mkdir(parents=True)
    script = "mkdir /opt/n; mv /opt/n /opt/new; rm -r /opt/old; mkdir /opt/old"
    run(["sh", "-c", script], sandbox=Sandbox(busybox, ("c",), "u", 1))
    assert all(is_marked(busybox / "u/opt" / name) for name in ("new", "old"))
    assert settle(busybox / "u", [busybox / "c"]) == Changes(opaque=("opt/old",))
    (busybox / "d/opt/new").mkdir(parents=True)  # in any tree below, not the next one only
    assert settle(busybox / "u", [busybox / "c", busybox / "d"]).opaque == ("opt/new", "opt/old")


def test_a_file_of_nothing_that_is_too_large(busybox: Path) -> None:
    script = "mkdir -p /opt; echo x > /opt/big"
    run(["sh", "-c", script], sandbox=Sandbox(busybox, ("c",), "u", 1))
    os.truncate(busybox / "u/opt/big", 1 << 40)
    with pytest.raises(WorkError, match="left a file of 1024 GiB") as caught:
        settle(busybox / "u", [busybox / "c"])
    assert caught.value.faults[0].where == "/opt/big"


def is_marked(folder: Path) -> bool:
    """Whether overlayfs would hide what is below this folder."""
    return OPAQUE in os.listxattr(folder)


def test_both_ways_of_committing_agree(busybox: Path, store: Store) -> None:
    """An additive layer gets the same commit on top of its parent as through a checkout."""
    below = store.commit_layer("a" * 64, busybox / "c", Changes(), below=None, epoch=1)
    (busybox / "u/etc").mkdir(parents=True)
    (busybox / "u/etc/x").write_text("x")
    (busybox / "u/etc").chmod(0o755)
    fast = store.commit_layer("b" * 64, busybox / "u", Changes(), below=below, epoch=1)
    slow = store.commit_merged(busybox / "slow", busybox / "u", Changes(), below=below, epoch=1)
    assert fast == slow


def test_an_image_on_top_of_another_commit_is_the_same_image(busybox: Path, store: Store) -> None:
    """What the base has is neither read nor written again."""
    made = busybox / "made"
    made.mkdir(mode=0o755)
    (made / "vmlinuz").write_text("kernel")
    leaf = store.commit(made, epoch=1)
    commits = []
    for version, base in (("1", None), ("2", leaf)):
        store.checkout(leaf, busybox / version)
        (busybox / version / "manifest.json").write_text("{}")
        image = store.commit_image("demo", version, busybox / version, epoch=1, base=base)
        commits.append(image.commit)
        assert not (busybox / version).exists()
    assert commits[0] == commits[1] != leaf
    assert store.read(commits[1], "/vmlinuz") == "kernel"


def test_commit_is_a_function_of_content(busybox: Path, store: Store, tmp_path: Path) -> None:
    other = Store(tmp_path / "other")
    run(["ostree", "init", f"--repo={other.path}", "--mode=bare"])
    commits = [
        s.commit_layer(digest * 64, busybox / "c", Changes(), below=None, epoch=7)
        for s, digest in ((store, "a"), (other, "b"))
    ]
    assert commits[0] == commits[1]


def test_file_capabilities_and_owners_are_kept(busybox: Path, store: Store) -> None:
    path = busybox / "c/usr/bin/busybox"
    capability = bytes.fromhex("0100000202200000000000000000000000000000")
    os.setxattr(path, "security.capability", capability)
    os.chown(busybox / "c/etc", 1234, 5678)
    commit = store.commit_layer("a" * 64, busybox / "c", Changes(), below=None, epoch=1)
    store.checkout(commit, busybox / "after")
    assert os.getxattr(busybox / "after/usr/bin/busybox", "security.capability") == capability
    assert (busybox / "after/etc").stat().st_uid == 1234


def test_sockets_fifos_and_devices_do_not_enter(busybox: Path, store: Store) -> None:
    sandbox = Sandbox(busybox, ("c",), "u", 1)
    run(["sh", "-c", "mkfifo /etc/fifo; mknod /etc/null c 1 3; echo x > /etc/x"], sandbox=sandbox)
    changes = settle(busybox / "u", [busybox / "c"])
    assert changes.additive
    assert sorted(p.name for p in (busybox / "u/etc").iterdir()) == ["x"]
    store.commit_layer("a" * 64, busybox / "u", changes, below=None, epoch=1)


def test_times_are_those_of_a_checkout(busybox: Path, store: Store) -> None:
    """A layer just built and the same layer reused look alike to the next step."""
    sandbox = Sandbox(busybox, ("c",), "u", 1)
    run(["sh", "-c", "mkdir /opt; echo x > /opt/x; ln -s x /opt/link"], sandbox=sandbox)
    changes = settle(busybox / "u", [busybox / "c"])
    commit = store.commit_layer("a" * 64, busybox / "u", changes, below=None, epoch=1)
    store.checkout(commit, busybox / "after")
    for tree in ("u", "after"):
        for name in ("opt", "opt/x"):
            assert (busybox / tree / name).lstat().st_mtime == 0


# An ostree that is killed while it prunes, when it has removed what it came to first.
KILLED_PRUNE = """\
#!/bin/sh
[ "$1" = prune ] || exec {ostree} "$@"
find "${{2#--repo=}}/objects" -name '*.dirtree' -delete
kill -KILL $$
"""


def test_a_killed_prune_leaves_no_damaged_commit(
    busybox: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = store.commit_layer("a" * 64, busybox / "c", Changes(), below=None, epoch=1)
    source = tmp_path / "source"
    run(["cp", "--archive", "--", store.path, source])
    store.remove(f"layer/{'a' * 64}")
    fake = tmp_path / "bin/ostree"
    fake.parent.mkdir()
    fake.write_text(KILLED_PRUNE.format(ostree=shutil.which("ostree")))
    fake.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
        with pytest.raises(WorkError, match="killed by signal 9"):
            store.prune()
    check_objects(store.path)
    # What publishes it again: ostree trusts that a commit that is there has its objects.
    store.ostree("pull-local", "--untrusted", source, commit)
    store.checkout(commit, busybox / "whole")
    assert (busybox / "whole/usr/bin/busybox").is_file()


def test_a_ref_that_a_killed_ostree_left_is_none_and_goes(busybox: Path, store: Store) -> None:
    """Its name is newer than that of the true image, which gc would remove."""
    (busybox / "image").mkdir()
    image = store.commit_image("demo", "20260101000000-aaaaaaaa", busybox / "image", epoch=1)
    left = store.path / "refs/heads/image/demo/tmp.al0NkA"
    left.write_text(f"{image.commit}\n")
    assert store.images() == (image,)
    assert not [path for path in store.path.glob("tmp/*") if path.name.startswith("ref-")]
    store.prune()
    assert not left.exists()
    assert store.images() == (image,)
    check_objects(store.path)


def test_records_go_with_their_layers(tmp_path: Path) -> None:
    """Also one whose layer a killed gc removed, and one that a killed build was writing."""
    record = Record("base", 1, 1, 0.1)
    for digest in ("kept", "gone"):
        make_record(tmp_path, digest, record)
    (tmp_path / "layers/.gone.json.new").write_text("{")
    drop_records(tmp_path, {"kept"})
    assert [path.name for path in (tmp_path / "layers").iterdir()] == ["kept.json"]
    assert find_record(tmp_path, "kept") == record


def test_image_names(busybox: Path, store: Store) -> None:
    for version in ("20260101000000-aaaaaaaa", "20260102000000-bbbbbbbb"):
        tree = busybox / "image"
        tree.mkdir()
        (tree / "manifest.json").write_text(encode_image(replace(IMAGE, version=version)))
        store.commit_image("demo", version, tree, epoch=1)
    assert store.image("demo@aaaaaaaa").version.endswith("aaaaaaaa")
    assert store.image("demo").version.endswith("bbbbbbbb")
    image = read_image(store, store.image("demo@20260102"))
    assert image == replace(IMAGE, version="20260102000000-bbbbbbbb")
    with pytest.raises(InputError, match="more than one version of demo fits"):
        store.image("demo@2026010")
    with pytest.raises(InputError, match="no version of demo fits"):
        store.image("demo@nope")
    with pytest.raises(InputError, match="no image of profile other"):
        store.image("other")


def test_mounted_directory_is_not_removed(tmp_path: Path) -> None:
    """The guard of remove_tree, with a real mount in a namespace of its own."""
    place = tmp_path / "place"
    (place / "dev").mkdir(parents=True)
    code = (
        "from pathlib import Path\n"
        "from imagebuilder.store.workplace import remove_tree\n"
        "from imagebuilder.errors import WorkError\n"
        f"try: remove_tree(Path({os.fspath(place)!r}))\n"
        "except WorkError as error: print(error)\n"
    )
    script = f'mount -t tmpfs none {place}/dev && exec "$@"'
    said = run(["unshare", "--mount", "sh", "-c", script, "sh", "python3", "-c", code],
               env={"PYTHONPATH": os.fspath(Path(__file__).parents[2])}).stdout  # fmt: skip
    assert "is mounted inside a directory that would be removed" in said
    assert place.exists()
    remove_tree(place)
    assert not place.exists()


def test_workplaces_lie_apart_on_the_disk(tmp_path: Path) -> None:
    kind = run(["stat", "--file-system", "--format=%T", tmp_path]).stdout.strip()
    if not kind.startswith("ext"):
        pytest.skip(f"{kind} does not search what was just freed")
    for name in ("one", "two"):
        with workplace(tmp_path, name) as work:
            flags = run(["lsattr", "-d", work.parent]).stdout.split()[0]
            assert "T" in flags


def test_workplaces_are_swept_when_their_owner_is_gone(tmp_path: Path) -> None:
    (tmp_path / "work/dead").mkdir(parents=True)
    with workplace(tmp_path, "one") as one:
        assert not (tmp_path / "work/dead").exists()
        with workplace(tmp_path, "two"):
            assert one.exists()
    assert not one.exists()
    with workplace(tmp_path, "three") as three:
        keep(three, ("u1", "c0"))
    assert (three / KEPT).read_text() == "u1\nc0"
    assert sweep(tmp_path / "work") == 0
    assert sweep(tmp_path / "work", kept=True) == 1


def test_locks_exclude_and_tell(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    waited = threading.Event()
    order: list[str] = []

    def second() -> None:
        with file_lock(path, waiting=waited.set):
            order.append("second")

    with file_lock(path):
        assert is_locked(path)
        thread = threading.Thread(target=second)
        thread.start()
        assert waited.wait(PATIENCE)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]
    assert not is_locked(path)
