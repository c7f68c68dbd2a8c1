# SPDX-License-Identifier: Apache-2.0
"""A lock of the real Debian, from the mirror of this host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from imagebuilder.families.apt.family import APT
from imagebuilder.families.apt.mirrors import find_mirrors
from imagebuilder.families.apt.repository import make_repository
from imagebuilder.families.protocol import Packages
from imagebuilder.lock.file import load_lock, lock_differences, make_lock_file
from imagebuilder.lock.verified import Pool
from imagebuilder.process import run
from imagebuilder.recipe.types import Base, Boot, ExpiredRelease, Overlay, Recipe, Source
from imagebuilder.resolve import make_lock
from imagebuilder.supplies import fetch

ARCHIVE = Source(
    "debian-forky", ("forky",), ("main",),
    Path("/usr/share/keyrings/debian-archive-keyring.gpg"), mirror="debian",
    expired_release=ExpiredRelease(3650, "a test takes a mirror as it finds it"),
)  # fmt: skip
RECIPE = Recipe(
    "tested", "",
    Base(
        "debian-forky", "debian", "forky", "amd64", "mmdebstrap", "apt", ("iproute2",),
        "kmod",  # something small in the place of the kernel
        (ARCHIVE,),
    ),
    (Overlay("ssh", Path("/overlays/ssh"), packages=("openssh-server",)),),
    {}, (), Boot("nfs", (), ()),
)  # fmt: skip


class Counted:
    """A progress bar that counts."""

    def __init__(self) -> None:
        self.total = self.count = 0

    def start(self, total: int, what: str) -> None:
        del what
        self.total += total

    def advance(self, count: int) -> None:
        self.count += count

    def done(self) -> None:
        """Nothing to close."""


@pytest.mark.root
def test_the_real_archive_locks_fetches_and_installs(tmp_path: Path) -> None:
    mirrors = find_mirrors({}, os.environ)
    cache = tmp_path / "cache"
    lock = make_lock(RECIPE, mirrors, cache, previous=None)
    assert make_lock(RECIPE, mirrors, cache, previous=lock, keep=True) == lock
    names = [package.name for package in lock.layer("").packages]
    assert {"apt", "base-files", "dpkg", "libc6", "kmod"} <= set(names)
    added = [package.name for package in lock.layer("ssh").packages]
    assert "openssh-server" in added
    assert not set(names) & set(added)
    assert all(uri not in repr(lock) for uri in mirrors.values())

    path = tmp_path / "locks/tested.lock"
    make_lock_file(lock, path)
    assert lock_differences(RECIPE, load_lock(path)) == ()

    debs, wheels, shown = tmp_path / "debs", tmp_path / "wheels", Counted()
    fetch(
        lock, APT, mirrors, RECIPE.sources, debs, wheels, cache, offline=False, progress=shown
    )  # fmt: skip
    assert shown.count == shown.total == sum(package.size for package in lock.packages)

    base = lock.layer("").packages
    repository, root = tmp_path / "repository", tmp_path / "root"
    served = Packages("forky", "amd64", base, (), lock.epoch)
    make_repository(served, Pool(debs, wheels), repository)
    run([
        "unshare", "--mount", "--pid", "--fork", "--kill-child",
        "mmdebstrap", "--quiet", "--mode=root", "--variant=apt", "--format=directory",
        f"--include={','.join(package.name for package in base)}",
        "forky", root, f"deb [trusted=yes] copy:{repository} forky main",
    ])  # fmt: skip
    words = ["dpkg-query", f"--admindir={root}/var/lib/dpkg", "-Wf", "${Package} ${Version}\n"]
    installed = run(words).stdout.splitlines()
    expected = [f"{package.name} {package.version}" for package in base]
    assert sorted(installed) == sorted(expected)
