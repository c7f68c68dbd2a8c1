# SPDX-License-Identifier: Apache-2.0
"""The commands that are disturbed, and the states they begin in."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from imagebuilder.nodes.edit import add_node, parse_change, remove_node
from imagebuilder.process import run
from imagebuilder.publish.channel.move import promote
from imagebuilder.publish.publish import publish
from imagebuilder.rootkind import Format
from imagebuilder.store.repository import ImageRef, Store, make_store
from imagebuilder.tree import Tree, make_tree
from tests.integration import published
from tests.integration.published import PROFILE, UNTESTED, make_image, quiet

FILES = 3  # in a root: each costs some points
VERSIONS = {number: f"2026010{number}000000-{number:08x}" for number in range(1, 5)}
FOUR = f"{PROFILE}@{VERSIONS[4]}"


@dataclass(frozen=True)
class Case:
    """A command: the state it begins in, and its words.

    `refusal` is a part of what the same command says when the first one did its work before it
    failed; `then` is what brings the state to its end after that.  `made_up` are files that it
    fills by chance, `passing` is what not even has the same names each time.  With `every` only
    each so many'th point is one, from a first one by chance: a build has thousands that are alike.
    """

    begin: str
    words: tuple[str, ...]
    refusal: str = ""
    then: tuple[str, ...] = ()
    made_up: tuple[str, ...] = ()
    passing: tuple[str, ...] = ()
    every: int = 1


def builder_case(begin: str, *words: str, every: int = 1) -> Case:
    """A command that locks, builds or collects: two builds differ in what says how long it took.

    What is in an image is compared through its manifest (judge.py).
    """
    return Case(
        begin,
        words,
        made_up=("state/layers/", "state/store/refs/heads/image/"),
        passing=("cache/apt/", "state/logs/", "state/store/objects/"),
        every=every,
    )


PUBLISHING = {
    "first": Case("built", ("publish", f"{PROFILE}@{VERSIONS[1]}")),
    "first-packed": Case("built", ("publish", f"{PROFILE}@{VERSIONS[1]}", "--format", "squashfs")),
    "later": Case("stocked", ("publish", FOUR)),
    "stable": Case("stocked", ("publish", FOUR, "--channel", "stable", "--untested", UNTESTED)),
    "pack": Case(
        "stocked",
        ("publish", f"{PROFILE}@{VERSIONS[3]}", "--format", "squashfs", "--format", "erofs"),
    ),
    "promote": Case("stocked", ("promote", PROFILE, "--untested", UNTESTED)),
    "rollback": Case("stocked", ("rollback", PROFILE), "no release that was stable"),
    "keep": Case("stocked", ("keep", f"{PROFILE}@{VERSIONS[1]}")),
    "unpublish": Case(
        "packed",
        ("unpublish", f"{PROFILE}@{VERSIONS[3]}"),
        "no release of",
        ("gc", "--releases", "--keep", "9"),
    ),
    "gc": Case("packed", ("gc", "--releases", "--keep", "1")),
    "forget": Case("peopled", ("nodes", "remove", "n1", "--forget"), "unknown node"),
    "nodes": Case(
        "stocked",
        ("nodes", "add", "n1", "--mac", "52:54:00:77:00:01", "--profile", PROFILE),
        "already exists",
        made_up=("nodes/", "http/nodes/", "serve/known_hosts", "given/"),
    ),
}
# What these begin in is made by builder.py, one from the other: without a lock, with one, built and
# then changed upstream, locked again, built again.
FRESH, LOCKED, OUTDATED, BEHIND, FULL = "fresh", "locked", "outdated", "behind", "full"
SMALL = "alpha"
BUILDING = {
    "lock": builder_case(FRESH, "lock", SMALL),
    "relock": builder_case(OUTDATED, "lock", SMALL),
    "build": builder_case(LOCKED, "build", SMALL, "--locked", every=20),
    "rebuild": builder_case(BEHIND, "build", SMALL, "--locked", every=20),
    "collect": builder_case(FULL, "gc", "--keep", "1"),
}
CASES = PUBLISHING | BUILDING


def store_of(world: Path) -> Path:
    """The builder's store."""
    return world / "state/store"


def project_of(world: Path) -> Path:
    """The recipes of the commands that lock and build; the others have none of their own."""
    return world / "project"


def tree_of(world: Path) -> Tree:
    """The netboot tree."""
    return Tree(world / "netboot")


def make_begins(begins: Path, world: Path) -> None:
    """Make every state that PUBLISHING begins in, at `world`, and keep it below `begins`."""
    empty(world)
    published.FILES = FILES
    store = make_store(store_of(world))
    images = [make_image(store, world, number, size=50) for number in VERSIONS]
    copy(world, begins / "built")
    tree = make_tree(tree_of(world).path)
    for image in images[:3]:
        put(store, image, tree)
        if image != images[2]:
            promote(tree, PROFILE, quiet(), untested=UNTESTED)
    age(tree)
    copy(world, begins / "stocked")
    change = parse_change({"macs": ["52:54:00:77:00:01"], "profile": PROFILE})
    add_node(tree, "n1", change)
    copy(world, begins / "peopled")
    remove_node(tree, "n1", forget=True)
    # One that no channel has, with all that a release can have.
    publish(store, images[2], tree, quiet(), channel="candidate", formats=tuple(Format))
    put(store, images[3], tree)
    age(tree)
    copy(world, begins / "packed")


def put(store: Store, image: ImageRef, tree: Tree) -> None:
    """Publish as candidate."""
    publish(store, image, tree, quiet(), channel="candidate")


def age(tree: Tree) -> None:
    """All that happened was yesterday: no node may be just booting what a channel left."""
    yesterday = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    events = [json.loads(line) for line in tree.journal.read_text().splitlines()]
    lines = (json.dumps({**event, "time": yesterday}) + "\n" for event in events)
    tree.journal.write_text("".join(lines))


def empty(folder: Path) -> None:
    """Make a folder, or remove what it holds."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)


def copy(source: Path, target: Path) -> None:
    """Put a copy of a folder, hard links and all, in the place of another."""
    empty(target)
    target.rmdir()
    run(["cp", "--archive", "--", source, target])
