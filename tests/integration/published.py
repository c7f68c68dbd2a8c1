# SPDX-License-Identifier: Apache-2.0
"""Small made-up images in a real store, and what must hold in a netboot tree at any moment."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from imagebuilder.image.types import ImageBoot, ImageRoot
from imagebuilder.nodes.references import find_version
from imagebuilder.process import run
from imagebuilder.publish.find import find_releases
from imagebuilder.publish.release.content import read_sums
from imagebuilder.publish.removal import Caution
from imagebuilder.rootkind import RootKind
from imagebuilder.store.repository import ImageRef, Store
from imagebuilder.tree import CHANNELS, ReleaseName, Tree
from imagebuilder.ui import Ui
from tests.images import IMAGE, put_manifest

PROFILE = "demo"
FILES = 100
UNTESTED = "the gate is the affair of another test"
BOLD = Caution(boot_minutes=0, strangers=True)


@contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder in memory, where a sync costs nothing: what tests make here is made often."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="imagebuilder-test-") as name:
        yield Path(name)


def check_objects(repo: Path) -> None:
    """OSTree's own verification of every object."""
    run(["ostree", "fsck", "--quiet", f"--repo={repo}"])


def quiet() -> Ui:
    """Progress that goes nowhere."""
    return Ui(io.StringIO())


def make_image(
    store: Store,
    work: Path,
    number: int,
    *,
    profile: str = PROFILE,
    root: RootKind = "nfs",
    size: int = 1000,
    pair: int = 0,
) -> ImageRef:
    """Image `number`: most of its files are those of the others, `number` is in each kind.

    With `pair` its kernel and initrd are those of that image.
    """
    version = f"2026010{number}000000-{number:08x}"
    tree = work / f"root-{number}"
    (tree / "usr/lib").mkdir(parents=True)
    (tree / "etc").mkdir()
    for index in range(FILES):
        (tree / f"usr/lib/{index}").write_text(f"{index}\n" * (size // 10))
    (tree / "etc/empty").touch()
    (tree / "etc/version").write_text(version)
    (tree / "etc/secret").write_text("x")
    (tree / "etc/secret").chmod(0o600)
    (tree / "usr/bin").mkdir()
    (tree / "usr/bin/su").write_text("#!/bin/sh\n")
    (tree / "usr/bin/su").chmod(0o4755)
    (tree / "lib").symlink_to("usr/lib")
    commit = store.commit(tree, epoch=1)
    store.bind(f"layer/{profile}-{number}", commit)
    files = work / f"files-{number}"
    files.mkdir()
    for name in ("vmlinuz", "early.img", "initrd.img"):
        (files / name).write_bytes(f"{name} {pair or number}\n".encode() * size)
        (files / name).chmod(0o600)
    made = replace(
        IMAGE,
        profile=profile,
        version=version,
        boot=ImageBoot(root, ("ip=dhcp", "console=ttyS0")),
        root=ImageRoot(commit, "", FILES * size),
    )
    put_manifest(files, made)
    (files / "sbom.spdx.json").write_text("{}")
    (files / "cmdline").write_text("ip=dhcp console=ttyS0\n")
    (files / "build.json").write_text("{}")
    return store.commit_image(profile, version, files, epoch=1)


def release_of(image: ImageRef) -> ReleaseName:
    """The name of what publishing makes of an image."""
    return image.release


def channels_of(tree: Tree, profile: str = PROFILE) -> dict[str, str]:
    """Where the channels point."""
    return {channel: find_version(tree, profile, channel) for channel in CHANNELS}


def check_files(fetch: Callable[[str], bytes], version: str, script: bytes) -> None:
    """The files of a release are those of its SHA256SUMS, `script` among them."""
    sums = {
        name: digest
        for digest, _, name in (
            line.partition("  ") for line in fetch("SHA256SUMS").decode().splitlines()
        )
    }
    assert {"vmlinuz", "initrd.img", "manifest.json", "boot.ipxe"} <= sums.keys()
    for name, digest in sums.items():
        assert hashlib.sha256(fetch(name)).hexdigest() == digest, f"{version}: {name}"
    assert hashlib.sha256(script).hexdigest() == sums["boot.ipxe"]
    assert json.loads(fetch("manifest.json"))["version"] == version


def named_version(script: bytes) -> str:
    """The one version a boot script names."""
    (found,) = set(re.findall(rb"\b2026\d+-[0-9a-f]{8}\b", script))
    return bytes(found).decode()


def check_release_whole(tree: Tree, release: ReleaseName) -> None:
    """A release has all its files, all readable, and its root."""
    folder, root = (
        tree.release(release),
        tree.root(release),
    )
    script = (folder / "boot.ipxe").read_bytes()
    assert named_version(script) == release.version
    check_files(lambda name: (folder / name).read_bytes(), release.version, script)
    assert {path.name for path in folder.iterdir()} == {*read_sums(folder), "SHA256SUMS"}
    assert folder.stat().st_mode & 0o777 == 0o755
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in folder.iterdir())
    shared = tree.shared_squashfs(release)
    if "root.squashfs" in read_sums(folder):
        assert shared.samefile(folder / "root.squashfs")
    assert (root / "etc/version").read_text() == release.version
    assert len(list((root / "usr/lib").iterdir())) == FILES
    assert all((root / f"usr/lib/{n}").read_text().startswith(f"{n}\n") for n in range(FILES))


def check_tree(tree: Tree) -> None:
    """What holds at any moment, whoever was killed: all releases are whole, no channel dangles."""
    releases = find_releases(tree)
    for release in releases:
        check_release_whole(tree, release)
    for profile in {release.profile for release in releases}:
        for version in channels_of(tree, profile).values():
            assert not version or ReleaseName(profile, version) in releases


def check_tidy(tree: Tree) -> None:
    """What holds when all is over: nothing staged, nothing without its release, a whole repo."""
    assert list((tree.path / "work").iterdir()) == []
    roots = {(p.parent.name, p.name) for p in tree.roots.glob("*/*") if p.is_dir()}
    for shared in (p for p in tree.roots.glob("*/*") if not p.is_dir()):
        served = tree.release(ReleaseName(shared.parent.name, shared.stem)) / "root.squashfs"
        assert shared.samefile(served)
    assert roots == {(r.profile, r.version) for r in find_releases(tree)}
    assert {(p.parent.name, p.name) for p in (tree.path / "reports").glob("*/*")} <= roots
    named = {f"{profile}/{version}" for profile, version in roots}
    assert set(Store(tree.repo).refs("image")) == set(Store(tree.repo).refs("root")) == named
    check_objects(tree.repo)
