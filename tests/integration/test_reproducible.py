# SPDX-License-Identifier: Apache-2.0
"""The same lock gives the same image on another builder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from imagebuilder.digest import Json
from imagebuilder.process import run
from imagebuilder.store.repository import Store
from scripts.benchmark.compare import (
    Stored,
    another_environment,
    differing_parts,
    differing_paths,
    on_another,
)
from tests.workshop import Workshop, link_packages

SHOWN = 40


def second_builder(workshop: Workshop, state: Path) -> Workshop:
    """The same project with a state of its own, which shares nothing but the package pool."""
    link_packages(workshop.state, state)
    return Workshop(workshop.project, state, workshop.site, workshop.cache)


def stored(workshop: Workshop, name: str) -> Stored:
    """An image and its manifest."""
    said = workshop("show", name, "--json").stdout
    return Stored(Store(workshop.state / "store"), json.loads(said))


def tell(one: Stored, other: Stored, folder: Path) -> str:
    """What a person needs to find out why two builds differ."""
    parts = differing_parts(one.manifest, other.manifest)
    lines = [f"{', '.join(parts) or 'nothing'} differ"]
    if "root" in parts:
        paths = differing_paths(one, other)
        lines += [f"  {path}" for path in paths[:SHOWN]]
        lines += [f"  and {len(paths) - SHOWN} more"] * (len(paths) > SHOWN)
    for part, name in (("early", "early.img"), ("initrd", "initrd.img"), ("kernel", "vmlinuz")):
        if part in parts:
            lines.append(f"  {name}: {first_difference(one, other, name, folder)}")
    if parts == ("manifest",):
        names = sorted({*one.manifest, *other.manifest})
        lines += [f"  {n}" for n in names if one.manifest.get(n) != other.manifest.get(n)]
    return "\n".join(lines)


def first_difference(one: Stored, other: Stored, name: str, folder: Path) -> str:
    """Where the first difference of a file of two images is; the files stay in `folder`."""
    files = []
    for side, image in (("one", one), ("other", other)):
        target = folder / side
        named = f"{image.manifest['profile']}@{image.manifest['version']}"
        if not target.exists():
            image.store.checkout(image.store.image(named).commit, target, links=False)
        files.append(target / name)
    return run(["cmp", *files], check=False).stdout.strip()


@pytest.mark.root
@pytest.mark.slow
def test_another_builder_makes_the_same_image(workshop: Workshop, tmp_path: Path) -> None:
    """Another state, time zone, umask, locale, TMPDIR and host name, and one core."""
    name = f"generic@{json.loads(workshop('plan', 'generic', '--json').stdout)['version']}"
    first = stored(workshop, name)
    second = second_builder(workshop, tmp_path / "second-builder" / "state")
    environment = {**second.env(), **another_environment(tmp_path / "elsewhere")}
    argv = on_another(second.argv("build", "generic", "--locked"))
    run(argv, env=environment, cwd=second.project)
    other = stored(second, name)

    assert differing_parts(first.manifest, other.manifest) == (), tell(first, other, tmp_path)
    assert first.root == other.root
    assert (second.state / "store").stat().st_ino != (workshop.state / "store").stat().st_ino


@pytest.mark.root
def test_a_difference_is_told(tmp_path: Path, store: Store) -> None:
    """Planted: a file with another content, one with another mode, and an initrd."""
    images = []
    for side, mode in (("a", 0o644), ("b", 0o600)):
        root, files = tmp_path / side / "root", tmp_path / side / "image"
        for folder in (root / "etc", files):
            folder.mkdir(parents=True)
        (root / "etc/content").write_text(side)
        (root / "etc/mode").write_text("the same")
        (root / "etc/mode").chmod(mode)
        (root / "etc/same").write_text("the same")
        (files / "initrd.img").write_text(f"initrd {side}")
        commit = store.commit(root, epoch=0)
        version = f"1-{side}"
        store.commit_image("tested", version, files, epoch=0)
        manifest: dict[str, Json] = {
            "profile": "tested",
            "version": version,
            "root": {"commit": commit},
            "kernel": {"initrd": {"sha256": side}, "vmlinuz": {"sha256": "k"}},
        }
        images.append(Stored(store, manifest))
    text = tell(images[0], images[1], tmp_path)
    assert text.startswith("root, initrd differ\n")
    assert "/etc/content: " in text
    assert "/etc/mode: -00644" in text
    assert "/etc/same" not in text
    assert f"{os.fspath(tmp_path)}/other/initrd.img differ: byte 8" in text
