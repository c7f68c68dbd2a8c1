# SPDX-License-Identifier: Apache-2.0
"""A copy of a good release that a fault can be planted into, and the ways to plant it.

The copy is hard links: what is changed is replaced by a new file, never written through.
"""

from __future__ import annotations

import fnmatch
import json
import lzma
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zstandard import ZstdCompressor

from imagebuilder.bootfiles import EARLY, INITRD, KERNEL
from imagebuilder.digest import digest_of_file
from imagebuilder.process import run
from imagebuilder.publish.release.content import SQUASHFS, SUMS, read_sums, render_sums
from imagebuilder.tree import CANDIDATE, ReleaseName, Tree, make_tree
from tests.faults import initrd
from tests.faults.elf import content_of

# Files of the release, as against those of its root, which begin with a slash; and the one that
# nodes find over NFS.
RELEASE = "release/"
EXPORTED = "export/root.squashfs"


@dataclass(frozen=True)
class Site:
    """A tree with one release, to be changed at will."""

    tree: Tree
    release: ReleaseName

    @property
    def root(self) -> Path:
        """The root of the release."""
        return self.tree.root(self.release)

    @property
    def folder(self) -> Path:
        """The files of the release."""
        return self.tree.release(self.release)

    @property
    def kernel(self) -> str:
        """The release of its kernel."""
        manifest = json.loads((self.folder / "manifest.json").read_text())
        return str(manifest["kernel"]["release"])

    def path(self, name: str) -> Path:
        """Where something is: `/etc/passwd` of the root, `release/boot.ipxe` of the release, and
        `export/root.squashfs`.
        """
        if name == EXPORTED:
            return self.tree.shared_squashfs(self.release)
        name = name.replace("{kernel}", self.kernel)
        if name.startswith(RELEASE):
            return self.folder / name.removeprefix(RELEASE)
        return self.root / name.lstrip("/")

    def write(self, name: str, content: bytes | str, mode: int | None = None) -> None:
        """A file with this content in the place of what is there, with its owner and mode."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.lstat() if path.exists() else None
        new = path.with_name(f".{path.name}.new")
        new.write_bytes(content.encode() if isinstance(content, str) else content)
        if before:
            os.chown(new, before.st_uid, before.st_gid)
        new.chmod(mode if mode is not None else before.st_mode & 0o7777 if before else 0o644)
        new.replace(path)

    def settle(self) -> None:
        """Make manifest and SHA256SUMS fit the files, as a build would have."""
        manifest = json.loads((self.folder / "manifest.json").read_text())
        for part, name in (("vmlinuz", KERNEL), ("early", EARLY), ("initrd", INITRD)):
            manifest["kernel"][part]["sha256"] = digest_of_file(self.folder / name)
        self.write("release/manifest.json", json.dumps(manifest))
        sums = {name: digest_of_file(self.folder / name) for name in read_sums(self.folder)}
        self.write(f"release/{SUMS}", render_sums(sums))


def copy_site(good: Tree, release: ReleaseName, place: Path, *, with_repo: bool) -> Site:
    """A copy of a release at `place`, and of the repository behind it if that is wanted."""
    site = Site(make_tree(place), release)
    for source, target in (
        (good.release(release), site.folder),
        (good.root(release), site.root),
        *([(good.repo, site.tree.repo)] if with_repo else []),
    ):
        target.parent.mkdir(parents=True, exist_ok=True)
        run(["cp", "-al", source, target])
    if (packed := site.folder / SQUASHFS).exists():
        site.path(EXPORTED).hardlink_to(packed)
    link = site.tree.channel(release.profile, CANDIDATE)
    link.parent.mkdir()
    link.symlink_to(f"../../http/releases/{release.profile}/{release.version}")
    return site


def plant(site: Site, steps: tuple[Mapping[str, Any], ...]) -> None:
    """Do what `plant:` of a fault says.  Raises ValueError when that changes nothing."""
    for step in steps:
        (verb,) = set(step) & VERBS.keys()
        VERBS[verb](site, step[verb], step)


def write(site: Site, name: str, step: Mapping[str, Any]) -> None:
    """write: PATH, content: TEXT, mode: OCTAL"""
    site.write(name, step["content"], int(step["mode"], 8) if "mode" in step else None)


def append(site: Site, name: str, step: Mapping[str, Any]) -> None:
    """append: PATH, content: TEXT"""
    path = site.path(name)
    site.write(name, (path.read_bytes() if path.exists() else b"") + step["content"].encode())


def replace(site: Site, name: str, step: Mapping[str, Any]) -> None:
    """replace: PATH, pattern: REGULAR EXPRESSION, by: TEXT"""
    text = site.path(name).read_text()
    changed = re.sub(step["pattern"], step["by"], text, flags=re.MULTILINE)
    if changed == text:
        raise ValueError(f"{name} has nothing like {step['pattern']}")
    site.write(name, changed)


def remove(site: Site, pattern: str, step: Mapping[str, Any]) -> None:  # noqa: ARG001 - one shape
    """remove: PATH, whose last part may be a pattern"""
    place = site.path(pattern)
    # glob() follows the links of a plain path, and those of a root lead to this host.
    found = [p for p in place.parent.iterdir() if fnmatch.fnmatch(p.name, place.name)]
    if not found:
        raise ValueError(f"there is no {pattern}")
    for path in found:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def link(site: Site, name: str, step: Mapping[str, Any]) -> None:
    """link: PATH, to: TARGET"""
    path = site.path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(step["to"])


def chmod(site: Site, name: str, step: Mapping[str, Any]) -> None:
    """chmod: PATH, to: OCTAL"""
    path = site.path(name)
    if path.is_dir():
        path.chmod(int(step["to"], 8))
    else:
        site.write(name, path.read_bytes(), int(step["to"], 8))


def chown(site: Site, name: str, step: Mapping[str, Any]) -> None:
    """chown: PATH, to: UID"""
    path = site.path(name)
    if not path.is_dir():
        site.write(name, path.read_bytes())
    os.chown(path, step["to"], -1)


def truncate(site: Site, name: str, step: Mapping[str, Any]) -> None:
    """truncate: PATH, to: SHARE OF ITS BYTES"""
    content = site.path(name).read_bytes()
    site.write(name, content[: int(len(content) * step["to"])])


def pack(site: Site, name: str, step: Mapping[str, Any]) -> None:
    """pack: PATH, as: xz (with the check that xz(1) takes by itself) or zst"""
    packers = {"xz": lzma.compress, "zst": ZstdCompressor().compress}
    path = site.path(name)
    site.write(f"{name}.{step['as']}", packers[step["as"]](path.read_bytes()))
    path.unlink()


def change_json(site: Site, name: str, step: Mapping[str, Any]) -> None:
    """json: PATH, at: [KEY OR INDEX, ...], to: VALUE (without `to`: remove it)"""
    value = json.loads(site.path(name).read_text())
    place = value
    *way, last = step["at"]
    for key in way:
        place = place[key]
    if "to" in step:
        place[last] = step["to"]
    else:
        del place[last]
    site.write(name, json.dumps(value, indent=1))


def elf(site: Site, name: str, step: Mapping[str, Any]) -> None:
    """elf: PATH, as: KIND, and its content (tests/faults/elf.py)"""
    name = name.replace("{kernel}", site.kernel)
    site.write(name, content_of(name, step, site.kernel))


def cmdline(site: Site, pattern: str, step: Mapping[str, Any]) -> None:
    """cmdline: REGULAR EXPRESSION FOR A WORD, by: WORDS (of the script, cmdline and manifest)"""
    for name in ("release/boot.ipxe", "release/cmdline"):
        replace(site, name, {"pattern": pattern, "by": step["by"]})
    manifest = json.loads(site.path("release/manifest.json").read_text())
    words = " ".join(manifest["boot"]["cmdline"])
    manifest["boot"]["cmdline"] = re.sub(pattern, step["by"], words).split()
    site.write("release/manifest.json", json.dumps(manifest))


def change_initrd(site: Site, verb: str, step: Mapping[str, Any]) -> None:
    """initrd: without (files: PATTERN), replacing (pattern: REGULAR EXPRESSION, by, files),
    renaming (pattern, by), adding (file, content), with-mode (files, to: OCTAL)
    """
    kernel = site.kernel
    words = {key: str(value).replace("{kernel}", kernel) for key, value in step.items()}
    changing = {
        "without": lambda: initrd.without(words["files"]),
        "replacing": lambda: initrd.replacing(words["pattern"], words["by"], words["files"]),
        "adding": lambda: initrd.adding(words["file"], words["content"]),
        "with-mode": lambda: initrd.with_mode(words["files"], int(words["to"], 8)),
        "renaming": lambda: initrd.renaming(words["pattern"], words["by"]),
    }[verb]()
    result = site.folder / ".initrd.new"
    changed = False

    def change(entries: initrd.Entries) -> initrd.Entries:
        nonlocal changed
        after = changing(entries)
        changed |= after != entries
        return after

    for name in (EARLY, INITRD):
        initrd.change(site.folder / name, result, change)
        result.chmod(0o644)
        result.replace(site.folder / name)
    if not changed:
        raise ValueError(f"initrd: {verb} {words}: changes nothing")


VERBS: Mapping[str, Callable[[Site, str, Mapping[str, Any]], None]] = {
    "write": write,
    "append": append,
    "replace": replace,
    "remove": remove,
    "link": link,
    "chmod": chmod,
    "chown": chown,
    "truncate": truncate,
    "pack": pack,
    "json": change_json,
    "elf": elf,
    "cmdline": cmdline,
    "initrd": change_initrd,
}
