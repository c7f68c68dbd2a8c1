# SPDX-License-Identifier: Apache-2.0
"""500 random edits: what drift says of every node is what the node would really fetch.

The oracle runs the scripts a node runs and fetches what it fetches, byte by byte, then and now.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pytest

from imagebuilder.drift.compare import compare_boots
from imagebuilder.drift.content import release_content
from imagebuilder.drift.nodes import drift_of_nodes, find_next, last_boot, next_boot
from imagebuilder.drift.profiles import find_recipe
from imagebuilder.drift.types import (
    PARTS,
    SAME,
    BootContent,
    DriftPart,
    DriftState,
    NodeBoot,
    NodeDrift,
    Reboot,
)
from imagebuilder.image.types import BootFile
from imagebuilder.nodes.config import NodeConfig, read_served
from imagebuilder.nodes.evidence.seen import find_seen
from imagebuilder.nodes.evidence.usage import note_reports
from imagebuilder.nodes.types import Node
from imagebuilder.store.repository import ImageRef
from imagebuilder.tree import ReleaseName
from tests.integration.published import memory_folder
from tests.unit.drift.edits import Desk, random_edit, recipe_is_as_built
from tests.unit.drift.fetch import Fetched, fetch, report
from tests.unit.drift.world import EPOCH, FILES, Made, World, make_world

pytestmark = pytest.mark.slow

# As many edits at least, and at most three times as many until each wrong way is noticed.
SEED, COUNT = 20261122, 500
IMAGES: Mapping[str, Made] = {
    "demo@1": Made(),
    "demo@2-same-bytes": Made(epoch=EPOCH + 86_400),
    "demo@3-kernel": Made(kernel="kernel 2"),
    "demo@4-early": Made(early="microcode 2"),
    "demo@4-initrd": Made(initrd="initrd 2"),
    "demo@4-one-initrd": Made(early=""),
    "demo@5-file": Made(files={**FILES, "etc/motd": "hullo\n"}),
    "demo@6-mode": Made(modes={"usr/bin/tool": 0o755}),
    "demo@7-word": Made(cmdline=("ip=dhcp",)),
    "demo@b-http": Made(root="http"),
    "other@1-same-bytes": Made(),
}
Wrong = Callable[[NodeBoot, NodeBoot], Mapping[str, DriftPart]]
Published = tuple[World, Mapping[str, ImageRef]]


def by_name(old: NodeBoot, new: NodeBoot) -> Mapping[str, DriftPart]:
    """Releases are told apart by their names."""
    other = DriftPart(DriftState.CHANGES) if old.release != new.release else SAME
    return {**compare_boots(old, new), "kernel": other, "root": other}


def with_content(name: str) -> Wrong:
    """Something of a release does not count."""

    def plain(boot: NodeBoot) -> NodeBoot:
        if boot.content is None:
            return boot
        if name == "root":
            return replace(boot, content=replace(boot.content, root="?"))
        image, none = boot.content.image, BootFile("", 0)
        kernel = {
            "vmlinuz": lambda old: replace(old, vmlinuz=none),
            "early": lambda old: replace(old, early=None),
            "initrd": lambda old: replace(old, initrd=none),
        }[name](image.kernel)
        return replace(boot, content=replace(boot.content, image=replace(image, kernel=kernel)))

    return lambda old, new: compare_boots(plain(old), plain(new))


def with_given(change: Callable[[NodeConfig], NodeConfig]) -> Wrong:
    """Something of what nodes are given does not count."""

    def plain(boot: NodeBoot) -> NodeBoot:
        return replace(boot, config=change(boot.config) if boot.config else None)

    return lambda old, new: compare_boots(plain(old), plain(new))


def without_modes(given: NodeConfig) -> NodeConfig:
    """Files without their modes; kind and the rest stay."""
    return replace(given, files={p: line[0] + line[5:] for p, line in given.files.items()})


WRONG: Mapping[str, Wrong] = {
    "by name": by_name,
    "without kernel": with_content("vmlinuz"),
    "without early": with_content("early"),
    "without initrd": with_content("initrd"),
    "without root": with_content("root"),
    "without modes": with_given(without_modes),
    "without order": with_given(lambda given: replace(given, words=tuple(sorted(given.words)))),
    "without kind": with_given(lambda given: replace(given, root="nfs")),
    "without hosts": with_given(
        lambda given: replace(given, files={**given.files, "/etc/hosts": ""})
    ),
}


@dataclass(frozen=True)
class Look:
    """What the bytes say of a node's parts, and whether its next boot would find no root."""

    parts: Mapping[str, DriftState]
    lacks_root: bool


@dataclass
class Run:
    """The desk, and what each NIC's owner fetched at its last boot, with when that was."""

    desk: Desk
    booted: dict[str, tuple[int, Fetched]] = field(default_factory=dict)

    def boot(self, name: str, second: int) -> None:
        """A node boots from one of its NICs and reports."""
        mac = self.desk.dice.choice(self.desk.spec["nodes"][name]["macs"])
        if fetched := fetch(self.desk.world.tree, mac):
            report(self.desk.world.tree, mac, fetched, second)
            self.booted[mac] = (second, fetched)

    def look(self, name: str) -> Look:
        """What the bytes say now."""
        macs = [mac for mac in self.desk.spec["nodes"][name]["macs"] if mac in self.booted]
        if not macs:
            return Look(dict.fromkeys(PARTS, DriftState.UNKNOWN), lacks_root=False)
        mac = max(macs, key=lambda each: self.booted[each][0])
        before, now = self.booted[mac][1], fetch(self.desk.world.tree, mac)
        if now is None:
            return Look(dict.fromkeys(PARTS, DriftState.CHANGES), lacks_root=False)
        parts = {
            part: DriftState.SAME if value == now.parts[part] else DriftState.CHANGES
            for part, value in before.parts.items()
        }
        return Look(parts, lacks_root=not now.rooted)

    def edits(self, count: int) -> Iterator[str]:
        """`count` edits; after each some node may boot, but not before it was looked at."""
        for second in range(count):
            yield f"edit {second}, {random_edit(self.desk)}"
            if self.desk.dice.random() < 0.2:
                self.boot(self.desk.dice.choice([*self.desk.spec["nodes"]]), second)


@pytest.fixture(scope="module")
def published() -> Iterator[Published]:
    """A world with every image published, the first one stable."""
    with memory_folder() as top:
        world = make_world(top)
        images: dict[str, ImageRef] = {}
        for name, made in IMAGES.items():
            profile, _, version = name.partition("@")
            images[name] = world.build(made, profile=profile, version=version)
            world.publish(images[name])
        world.build()
        for name in ("demo@1", "other@1-same-bytes"):
            world.publish(images[name], "stable")
        yield world, images


def run(published: Published, seed: int) -> Run:
    """A run on that world."""
    world, images = published
    return Run(Desk(world, random.Random(seed), dict(images)))


def test_drift_says_what_the_bytes_say(published: Published) -> None:
    """And each way to compare wrongly is noticed: the edits are of all kinds."""
    started = run(published, SEED)
    world, counted, unnoticed = started.desk.world, dict.fromkeys(Reboot, 0), {*WRONG}
    lacking = 0
    for number, what in enumerate(started.edits(3 * COUNT)):
        if number >= COUNT and not unnoticed:
            break
        note_reports(world.tree)
        for node in drift_of_nodes(world.tree, started.desk.nodes, started.desk.nodes.nodes):
            if is_gone(world, node):
                continue  # nothing is left to compare with: of that is another test
            seen = started.look(node.node)
            assert states(node.parts) == seen.parts, f"{what}: {node.as_json()}"
            assert all(part.why for part in node.parts.values() if part.state != DriftState.SAME)
            assert bool(node.notes) == seen.lacks_root, f"{what}: {node.notes}"
            lacking += len(node.notes)
            counted[node.reboot] += 1
            if unnoticed and (boots := find_boots(world, started.desk.nodes.find(node.node))):
                unnoticed -= {n for n in unnoticed if states(WRONG[n](*boots)) != seen.parts}
        if what.endswith("edit_recipe"):
            recipe = find_recipe(world.tree, "demo", world.settings)
            assert recipe.problem == "", what
            assert (recipe.reasons == ()) == recipe_is_as_built(started.desk), what
    assert min(counted[Reboot.YES], counted[Reboot.NO]) > COUNT / 5, counted
    assert lacking > COUNT / 50
    assert not unnoticed


def states(parts: Mapping[str, DriftPart]) -> Mapping[str, DriftState]:
    """The states of parts, without the reasons."""
    return {name: part.state for name, part in parts.items()}


def find_boots(world: World, node: Node | None) -> tuple[NodeBoot, NodeBoot] | None:
    """What drift compares for a node; None when it compares nothing."""
    seen = next(iter(find_seen(world.tree, node.macs)), None) if node else None
    served = read_served(world.tree, seen.mac) if seen else None
    following = find_next(world.tree, served) if served else None
    if not (seen and served and following):
        return None

    def content_of(release: ReleaseName) -> BootContent | None:
        return release_content(world.tree, release)

    return (
        last_boot(world.tree, seen, content_of),
        next_boot(world.tree, following, served, content_of),
    )


def is_gone(world: World, node: NodeDrift) -> bool:
    """Whether what a node runs was unpublished, and something else is there to boot."""
    running = node.running
    there = running and world.tree.release(running).is_dir()
    return running is not None and not there
