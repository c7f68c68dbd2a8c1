# SPDX-License-Identifier: Apache-2.0
"""A copy is after each fault what it was before, whatever the fault did."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from imagebuilder.tree import ReleaseName, Tree, make_tree
from tests.faults.copies import Copies
from tests.faults.site import Site, link

pytestmark = pytest.mark.root

RELEASE = ReleaseName("made", "20260101000000-00000000")


@pytest.fixture
def good(tmp_path: Path) -> Tree:
    """A small release."""
    tree = make_tree(tmp_path / "good")
    root = tree.root(RELEASE)
    for folder in ("etc/ssh", "usr/bin", "var/empty"):
        (root / folder).mkdir(parents=True)
    (root / "etc/ssh/sshd_config").write_text("Port 22\n")
    (root / "usr/bin/sh").write_text("a shell\n")
    (root / "usr/bin/dash").hardlink_to(root / "usr/bin/sh")
    (root / "usr/bin/ash").symlink_to("sh")
    os.setxattr(root / "etc", "user.note", b"as built")
    os.utime(root / "etc", (1, 1))
    tree.release(RELEASE).mkdir(parents=True)
    (tree.release(RELEASE) / "manifest.json").write_text('{"kernel": {"release": "7.2.12"}}')
    (tree.release(RELEASE) / "boot.ipxe").write_text("#!ipxe\n")
    return tree


def listing(top: Path) -> dict[str, object]:
    """All that can be told of each path; the time of a change and the number of links are not."""
    found: dict[str, object] = {}
    for path in [top, *sorted(top.rglob("*"))]:
        stat = path.lstat()
        inode = None if path.is_dir() and not path.is_symlink() else stat.st_ino
        times = stat.st_mtime_ns
        extended = {
            name: os.getxattr(path, name, follow_symlinks=False)
            for name in os.listxattr(path, follow_symlinks=False)
        }
        content = path.readlink() if path.is_symlink() else path.is_file() and path.read_bytes()
        found[str(path.relative_to(top))] = (
            inode, stat.st_mode, stat.st_uid, stat.st_gid, times, extended, content,
        )  # fmt: skip
    return found


def swap(site: Site) -> None:
    """A folder where a file was, and a file where a folder was."""
    (site.root / "usr/bin/sh").unlink()
    (site.root / "usr/bin/sh/deep").mkdir(parents=True)
    shutil.rmtree(site.root / "etc")
    (site.root / "etc").write_text("no folder\n")


def change_the_folder(site: Site) -> None:
    """Everything a folder has but its entries."""
    path = site.root / "etc"
    path.chmod(0o2711)
    os.chown(path, 7, 8)
    os.setxattr(path, "user.note", b"changed")
    os.setxattr(path, "user.more", b"new")


FAULTS: dict[str, Callable[[Site], object]] = {
    "a file is replaced": lambda site: site.write("/etc/ssh/sshd_config", "Port 2222\n"),
    "a file is added in a new folder": lambda site: site.write("/srv/deep/file", "new\n"),
    "a file is removed": lambda site: (site.root / "usr/bin/dash").unlink(),
    "a link leads elsewhere": lambda site: link(site, "/usr/bin/ash", {"to": "dash"}),
    "a folder is removed": lambda site: shutil.rmtree(site.root / "etc"),
    "an empty folder is removed": lambda site: (site.root / "var/empty").rmdir(),
    "the root is emptied": lambda site: shutil.rmtree(site.root),
    "folder and file swap": swap,
    "a folder changes": change_the_folder,
    "only a time changes": lambda site: os.utime(site.root / "usr", (2, 2)),
    "the channel is removed": lambda site: shutil.rmtree(site.tree.path / "channels"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_leaves_nothing(good: Tree, tmp_path: Path, name: str) -> None:
    copies = Copies(tmp_path)
    with copies.of(good, RELEASE, with_repo=False) as site:
        before, top = listing(site.tree.path), site.tree.path
    assert listing(top) == before
    with copies.of(good, RELEASE, with_repo=False) as site:
        FAULTS[name](site)
        assert listing(top) != before
    assert listing(top) == before


def test_a_failed_test_leaves_no_copy(good: Tree, tmp_path: Path) -> None:
    copies = Copies(tmp_path)
    beside = set(tmp_path.iterdir())
    with (
        pytest.raises(ValueError, match="nothing like it"),
        copies.of(good, RELEASE, with_repo=False),
    ):
        raise ValueError("nothing like it")
    assert set(tmp_path.iterdir()) == beside
    with copies.of(good, RELEASE, with_repo=False) as site:
        assert site.path("/usr/bin/sh").read_text() == "a shell\n"
