# SPDX-License-Identifier: Apache-2.0
"""Something odd in the place of every file and folder of a tree, and every command on it.

The sample takes some combinations, chosen by IMAGEBUILDER_ODD_SEED or by the time; `make test-all`
takes all.
"""

from __future__ import annotations

import io
import itertools
import os
import random
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from imagebuilder.cli.program import run as run_program
from imagebuilder.process import run
from imagebuilder.publish.channel.move import promote
from imagebuilder.publish.publish import publish
from imagebuilder.rootkind import Format
from imagebuilder.store.repository import ImageRef, Store
from imagebuilder.tree import Tree
from tests.integration.published import PROFILE, UNTESTED, quiet
from tests.sampling import times

pytestmark = pytest.mark.root

NODES = f"nodes:\n  n2: {{macs: ['52:54:00:77:00:02'], profile: {PROFILE}}}\n"
COPY, OUTSIDE = "odd", "outside"


def outside(path: Path) -> Path:
    """What is beside the copy of the tree that a path is in."""
    return next(top for top in path.parents if top.name == COPY).with_name(OUTSIDE)


ODD: dict[str, Callable[[Path], object]] = {
    "nothing": lambda _: None,
    "an empty file": Path.touch,
    "nonsense": lambda path: path.write_bytes(b"\xff[[[{nonsense"),
    "a folder": Path.mkdir,
    "a full folder": lambda path: (path / "a/b").mkdir(parents=True),
    "a pipe": os.mkfifo,
    "a link to nothing": lambda path: path.symlink_to("/nonexistent/x"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a link out of the tree": lambda path: path.symlink_to(outside(path)),
    "a link to a file out of the tree": lambda path: path.symlink_to(outside(path) / "file"),
}
COMMANDS = (
    "releases", "releases --json", "releases --verify", "rollback {profile}",
    "promote {profile}@{new} --untested test", "keep {profile}@{old}", "keep --off {profile}@{old}",
    "unpublish {profile}@{old}", "gc --releases --dry-run", "gc --releases", "drift",
    "nodes list", "nodes show n2", "nodes add n3 --mac 52:54:00:77:00:03 --profile {profile}",
    "nodes remove n2", "fsck --tree", "fsck --tree --repair", "report {profile}", "live list",
)  # fmt: skip
MOST_SECONDS = 30  # a pipe that is waited for takes for ever; a busy machine takes seconds
SAMPLE = 60


@pytest.fixture
def full(store: Store, images: list[ImageRef], tree: Tree) -> Tree:
    """A tree with two releases, one of them packed, channels, and a node."""
    (tree.path / "nodes.yaml").write_text(NODES)
    publish(store, images[0], tree, quiet(), channel="candidate", formats=(Format.SQUASHFS,))
    promote(tree, PROFILE, quiet(), untested=UNTESTED)
    publish(store, images[1], tree, quiet(), channel="candidate")
    return tree


def places(tree: Tree) -> list[Path]:
    """Every folder and every file, but of what has many alike only one."""
    found = [path.relative_to(tree.path) for path in sorted(tree.path.rglob("*"))]
    alike: dict[tuple[str, ...], Path] = {}
    for path in found:
        many = path.parts[0] in ("repo", "roots") and len(path.parts) > 3
        alike.setdefault((*path.parts[:3], path.suffix) if many else path.parts, path)
    return list(alike.values())


def test_nothing_odd_in_a_tree_ends_a_command_without_an_error(
    full: Tree, store: Store, images: list[ImageRef], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = int(os.environ.get("IMAGEBUILDER_ODD_SEED") or time.time())
    every = list(itertools.product(places(full), ODD, COMMANDS))
    chosen = random.Random(seed).sample(every, times(SAMPLE, len(every)))
    words = {"profile": PROFILE, "old": images[0].version, "new": images[1].version}
    monkeypatch.setenv("IMAGEBUILDER_STATE", os.fspath(store.path.parent))
    faults = []
    for path, odd, command in chosen:
        there = place / COPY
        run(["cp", "--archive", full.path, there])
        before = make_outside(place / OUTSIDE)
        put(there / path, ODD[odd])
        monkeypatch.setattr(sys, "argv", ["imagebuilder", *command.format(**words).split()])
        monkeypatch.setenv("IMAGEBUILDER_TREE", os.fspath(there))
        if wrong := look(command):
            faults.append(f"{path} is {odd}: {command}: {wrong}")
        after = look_outside(place / OUTSIDE)
        if changed := [name for name in after | before if after.get(name) != before.get(name)]:
            faults.append(f"{path} is {odd}: {command}: changes {', '.join(changed)}")
        shutil.rmtree(there)
        shutil.rmtree(place / OUTSIDE)
    assert faults == [], f"seed {seed}"


def make_outside(folder: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Somebody's folder with a file in it."""
    (folder / "below").mkdir(parents=True)
    (folder / "file").write_text("somebody's\n")
    (folder / "below/file").write_text("somebody's\n")
    return look_outside(folder)


def look_outside(folder: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Names, modes, owners and contents."""
    found = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        info = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[os.fspath(path)] = info.st_mode, info.st_uid, info.st_gid, content
    return found


def put(path: Path, make: Callable[[Path], object]) -> None:
    """Something odd in the place of what is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
    make(path)


def look(command: str) -> str:
    """What the command does wrong that was typed, or nothing."""
    said = io.StringIO()
    begun = time.monotonic()
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(said):
            status = run_program()
    except Exception as error:  # noqa: BLE001 - that none gets through is what is tested
        return f"{type(error).__name__}: {error}"
    if time.monotonic() - begun > MOST_SECONDS:
        return "took too long"
    errors = said.getvalue().count("error: ")
    if status not in (0, 1, 2, 3):
        return f"exit status {status}"
    if status and command.split()[0] not in ("fsck", "releases", "drift") and not errors:
        return f"exit status {status} without an error: {said.getvalue()}"
    if "Traceback" in said.getvalue():
        return said.getvalue()
    return ""
