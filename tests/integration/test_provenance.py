# SPDX-License-Identifier: Apache-2.0
"""Provenance from real layers: which commit changed a path, and what is not in any."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.digest import Json
from imagebuilder.errors import InputError
from imagebuilder.families.apt.family import APT
from imagebuilder.image.files import read_root
from imagebuilder.image.types import Image, ImageRoot, encode_image
from imagebuilder.proof.provenance.read import chain_of, differences, read_history
from imagebuilder.proof.provenance.why import Explained, explain
from imagebuilder.proof.reading.provenance import TraceKind
from imagebuilder.root import Root
from imagebuilder.settings import Settings
from imagebuilder.store.objects import read_commit
from imagebuilder.store.repository import Store
from imagebuilder.store.upper import Changes
from tests.strange import find_strange
from tests.unit.proof.provenance.chain import BASE, IMAGE_OF_LAYERS, PACKAGES, SITE, digest_of

pytestmark = pytest.mark.root


@pytest.fixture
def image(store: Store, tmp_path: Path) -> Image:
    """Three layers: the second adds and removes, the third changes a mode and a content."""
    first = tmp_path / "first"
    for name in ("etc", "usr/doc", "usr/bin"):
        (first / name).mkdir(parents=True)
    for name in ("etc/conf", "usr/doc/a", "usr/bin/tool"):
        (first / name).write_text(name)
    second = tmp_path / "second"
    (second / "usr/bin").mkdir(parents=True)
    (second / "usr/bin/new").write_text("new")
    third = tmp_path / "third"
    (third / "etc").mkdir(parents=True)
    (third / "etc/conf").write_text("changed")
    (third / "usr/bin").mkdir(parents=True)
    (third / "usr/bin/new").write_text("new")
    (third / "usr/bin/new").chmod(0o4755)
    below = None
    removed = {1: Changes(whiteouts=("usr/doc",))}
    for number, (layer, upper) in enumerate(
        zip(chain_of(IMAGE_OF_LAYERS), (first, second, third), strict=True)
    ):
        changes = removed.get(number, Changes())
        below = store.commit_layer(layer.digest, upper, changes, below=below, epoch=1)
    assert below
    return replace(IMAGE_OF_LAYERS, root=ImageRoot(below, "", 0))


def test_steps_are_told_from_commits(store: Store, image: Image) -> None:
    history = read_history(store, image)
    assert history.steps("/usr/bin/tool") == (BASE,)
    assert history.steps("/usr/bin/new") == (PACKAGES, SITE)
    assert history.steps("/etc/conf") == (BASE, SITE)
    assert history.remover("/usr/doc/a") == PACKAGES


def test_differences_are_those_that_ostree_tells(store: Store, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for tree in (old, new):
        for name in ("same/below", "grown", "other-mode", "gone", "file-now/below"):
            (tree / name).mkdir(parents=True)
            (tree / name / "file").write_text("kept")
        for name in ("content", "mode", "folder-now", "link-now", "gone-file"):
            (tree / name).write_text("kept")
    for name in ("gone", "file-now"):
        shutil.rmtree(new / name)
    for name in ("folder-now", "link-now", "gone-file"):
        (new / name).unlink()
    (new / "folder-now/deep").mkdir(parents=True)
    (new / "folder-now/deep/file").touch()
    (new / "link-now").symlink_to("content")
    (new / "file-now").touch()
    (new / "grown/more").touch()
    (new / "content").write_text("other")
    (new / "mode").chmod(0o600)
    (new / "other-mode").chmod(0o700)
    before, after = (store.commit(tree, epoch=1) for tree in (old, new))
    trees = [read_commit(store.path, commit)[0] for commit in (before, after)]
    told = [f"{verb}    {path}" for verb, path in differences(store.path, *trees)]
    # Of a folder in the place of a file, ostree does not tell what is in it.
    below = ["A    /folder-now/deep", "A    /folder-now/deep/file"]
    assert sorted(told) == sorted([*store.ostree("diff", before, after).splitlines(), *below])


def test_a_layer_that_is_gone_is_told_with_the_next(store: Store, image: Image) -> None:
    store.remove(f"layer/{chain_of(image)[1].digest}")
    history = read_history(store, image)
    assert history.steps("/usr/bin/new") == (f"{PACKAGES} or {SITE}",)
    assert history.steps("/usr/bin/tool") == (BASE,)
    store.remove(f"layer/{chain_of(image)[0].digest}")
    assert read_history(store, image).steps("/etc/conf") == (f"{BASE} or {PACKAGES} or {SITE}",)


def replaced(path: Path, content: str, mode: int = 0o644) -> None:
    """Another file in the place of a hard link of the store's."""
    path.unlink()
    path.write_text(content)
    path.chmod(mode)


def link_conf(root: Path) -> None:
    (root / "etc/conf").unlink()
    (root / "etc/conf").symlink_to("x")


def add_attribute(root: Path) -> None:
    replaced(root / "usr/bin/tool", "usr/bin/tool")
    os.setxattr(root / "usr/bin/tool", "user.x", b"1")


SPOILS: dict[str, tuple[Callable[[Path], object], dict[str, str]]] = {
    "nothing": (lambda root: root.stat(), {}),
    "a copy": (lambda root: replaced(root / "etc/conf", "changed"), {}),
    "content": (lambda root: replaced(root / "etc/conf", "Changed"), {"/etc/conf": "changed"}),
    "mode": (lambda root: replaced(root / "etc/conf", "changed", 0o666), {"/etc/conf": "changed"}),
    "folder": (lambda root: (root / "etc").chmod(0o777), {"/etc": "changed"}),
    "added": (lambda root: (root / "etc/new").write_text(""), {"/etc/new": "added"}),
    "removed": (lambda root: (root / "usr/bin/tool").unlink(), {"/usr/bin/tool": "removed"}),
    "link": (link_conf, {"/etc/conf": "changed"}),
    "attribute": (add_attribute, {"/usr/bin/tool": "changed"}),
}


@pytest.mark.parametrize(("spoil", "told"), SPOILS.values(), ids=SPOILS)
def test_what_is_not_in_the_commit(
    spoil: Callable[[Path], object],
    told: dict[str, str],
    store: Store,
    image: Image,
    tmp_path: Path,
) -> None:
    store.checkout(image.root.commit, tmp_path / "root")
    spoil(tmp_path / "root")
    committed = read_root(store, image.root.commit, APT)
    assert find_strange(committed, Root(tmp_path / "root")) == told


OVERLAY = """\
description: Settings of this site
users: [{name: me}]
scripts: [{run: scripts/patch}]
"""


def explained(path: str, store: Store, image: Image, place: Path) -> Explained:
    """What `why` says of a path of the image, whose overlay is in a project."""
    layers = list(image.layers)
    inputs: dict[str, Json] = {
        "script-order": ["scripts/patch"],
        "users": {"me": []},
        "files": PLACED,
    }
    layers[-1] = replace(layers[-1], inputs=inputs)
    tree = place / "image"
    tree.mkdir()
    (tree / "manifest.json").write_text(encode_image(replace(image, layers=tuple(layers))))
    store.commit_image("demo", "1", tree, epoch=1)
    overlay = place / "project/overlays/site"
    (overlay / "files/etc").mkdir(parents=True)
    (overlay / "overlay.yaml").write_text(OVERLAY)
    (overlay / "files/etc/conf.j2").write_text("changed")
    settings = Settings(place / "project", place / "state", place / "cache", place / "site.yaml")
    return explain(settings, "demo", path)


PLACED = {"/etc/conf": f"0644 root:root {digest_of('changed')}"}


def test_why_a_file_of_an_overlay_is_there(store: Store, image: Image, tmp_path: Path) -> None:
    found = explained("/etc/../etc/conf", store, image, tmp_path)
    assert found.as_json() == {
        "image": "demo@1",
        "path": "/etc/conf",
        "kind": "overlay",
        "package": None,
        "overlay": "site",
        "changed": None,
        "layers": [{"title": one.title, "digest": one.digest} for one in chain_of(image)[::2]],
        "sources": ["overlays/site/files/etc/conf.j2"],
        "compiled-from": None,
    }
    assert "source      overlays/site/files/etc/conf.j2" in found.render().splitlines()


def test_why_a_step_made_a_file(store: Store, image: Image, tmp_path: Path) -> None:
    found = explained("/usr/bin/new", store, image, tmp_path)
    assert found.trace.kind is TraceKind.STEP
    assert found.sources == ("overlays/site/scripts/patch", "overlays/site/overlay.yaml:2:1")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/usr/doc/a", "demo@1 has no /usr/doc/a\n  hint: packages tool removed it"),
        ("/nothing", "demo@1 has no /nothing\n  hint: run `imagebuilder shell PROFILE` to"),
        ("etc/conf", "etc/conf is not an absolute path\n  hint: use /etc/conf"),
    ],
)
def test_why_there_is_no_such_path(
    path: str, said: str, store: Store, image: Image, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as raised:
        explained(path, store, image, tmp_path)
    assert str(raised.value).startswith(said)
