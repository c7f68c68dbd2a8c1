# SPDX-License-Identifier: Apache-2.0
"""kill -9 at random moments of everything that changes a tree, and all of it at once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest

from imagebuilder.errors import ImagebuilderError, InputError
from imagebuilder.publish.channel.gate import under_test
from imagebuilder.publish.channel.move import promote, rollback
from imagebuilder.publish.find import find_releases
from imagebuilder.publish.publish import publish
from imagebuilder.publish.removal import Caution, collect_releases
from imagebuilder.rootkind import Format
from imagebuilder.store.repository import ImageRef, Store, make_store
from imagebuilder.tree import CHANNELS, ReleaseName, Tree, make_tree
from tests.integration.published import (
    BOLD,
    PROFILE,
    UNTESTED,
    channels_of,
    check_release_whole,
    check_tidy,
    check_tree,
    make_image,
    memory_folder,
    named_version,
    quiet,
    release_of,
)
from tests.integration.started import find_descendants, orphans_are_ours, wait_until
from tests.sampling import times

pytestmark = pytest.mark.root
KILLS = int(os.environ.get("IMAGEBUILDER_PUBLISH_KILLS", times(40, 400)))
ROUNDS = 15
IMAGES = 4
# Whoever read a channel has so long to fetch what it named (ten minutes, where nodes do).
HASTY = Caution(boot_minutes=0.01, strangers=True)


@dataclass(frozen=True)
class Ground:
    """A store with images and a tree."""

    store: Store
    tree: Tree
    images: Sequence[ImageRef]


@pytest.fixture
def ground() -> Iterator[Ground]:
    """Two of the images are published, one of them is stable."""
    with memory_folder() as folder:
        store = make_store(folder / "state/store")
        images = [make_image(store, folder, number) for number in range(1, IMAGES + 1)]
        made = Ground(store, make_tree(folder / "netboot"), images)
        for image in images[:2]:
            publish_image(made, image)
        promote(made.tree, PROFILE, quiet(), untested=UNTESTED)
        yield made


def publish_image(ground: Ground, image: ImageRef, *formats: Format) -> None:
    """Publish to candidate."""
    publish(ground.store, image, ground.tree, quiet(), channel="candidate", formats=formats)


def collect(ground: Ground, caution: Caution = BOLD) -> None:
    """Remove all that nothing points to, but one."""
    collect_releases(ground.tree, quiet(), caution, keep=1, dry_run=False)


def examine(ground: Ground, image: ImageRef) -> None:
    """Hold a release as a boot test does: it stays, whoever collects, and gets a report."""
    release = release_of(image)
    with under_test(ground.tree, release, quiet()):
        time.sleep(0.05)
        check_release_whole(ground.tree, release)
        (ground.tree.reports(ReleaseName(PROFILE, image.version)) / "1").mkdir(
            parents=True, exist_ok=True
        )


def actions(ground: Ground, chance: random.Random) -> dict[str, Callable[[], object]]:
    """What somebody may do."""
    image = chance.choice(ground.images)
    return {
        "publish": lambda: publish_image(ground, image),
        "pack": lambda: publish_image(ground, image, *Format),
        "promote": lambda: promote(ground.tree, PROFILE, quiet(), untested=UNTESTED),
        "rollback": lambda: rollback(ground.tree, PROFILE, quiet()),
        "test": lambda: examine(ground, image),
        "gc": lambda: collect(ground),
    }


def fork(action: Callable[[], object]) -> int:
    """Run `action` in a process of its own; its status is 0, or 1 for an error we know."""
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        action()
        status = 0
    except InputError:
        status = 0  # nothing to roll back to, or no candidate: an answer
    except ImagebuilderError as error:
        print(error, flush=True)
        status = 1
    finally:
        os._exit(status)


def wait(pid: int) -> int:
    """The exit status of a process, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_killed_at_any_moment_the_state_is_the_old_or_the_new(ground: Ground) -> None:
    """Nothing is repaired by hand in between: each attempt goes on from where the last one died."""
    chance = random.Random(20261121)
    longest: dict[str, float] = {}
    killed: dict[str, int] = {}
    with orphans_are_ours():
        for _ in range(KILLS):
            name = chance.choice(
                ("publish", "publish", "pack", "promote", "rollback", "test", "gc")
            )
            before = channels_of(ground.tree)
            releases = find_releases(ground.tree)
            pid = fork(actions(ground, chance)[name])
            time.sleep(chance.random() * longest.get(name, 0.15))
            os.kill(pid, signal.SIGKILL)
            status = wait(pid)
            wait_until(lambda: not find_descendants(), "something outlived its parent")
            assert status in (0, -signal.SIGKILL), name
            # How long an action takes is the machine's affair; most kills shall come before its
            # end.
            if status == 0:
                longest[name] = 0.6 * longest.get(name, 0.15)
            else:
                longest[name] = 1.15 * longest.get(name, 0.15)
                killed[name] = killed.get(name, 0) + 1
            check_change(ground, name, before, set(map(str, releases)))
    assert sum(killed.values()) > KILLS / 6, f"too few were killed in their work: {killed}"
    print(f"killed in their work: {killed}")
    for image in ground.images:
        publish_image(ground, image, *Format)
    collect(ground)
    check_tree(ground.tree)
    check_tidy(ground.tree)


def check_change(ground: Ground, name: str, before: dict[str, str], releases: set[str]) -> None:
    """What is there is the old state or the new one of this action."""
    check_tree(ground.tree)
    after, now = channels_of(ground.tree), set(map(str, find_releases(ground.tree)))
    if name in ("publish", "pack"):
        assert now >= releases
        assert len(now - releases) <= 1
        assert after["stable"] == before["stable"]
    elif name == "gc":
        assert now <= releases
        assert after == before
    else:
        assert now == releases
        assert after["candidate"] == before["candidate"]
    if name == "promote":
        assert after["stable"] in (before["stable"], before["candidate"])


def test_all_at_once_leave_a_whole_tree(ground: Ground) -> None:
    """Four publishers, two of them of one image, with gc, test, promote and rollback."""
    chance = random.Random(7)
    for number in range(ROUNDS):
        same = ground.images[number % IMAGES]
        acts = [actions(ground, chance)[name] for name in ("promote", "rollback", "pack", "test")]
        acts += [lambda: collect(ground, HASTY)]
        acts += [lambda image=image: publish_image(ground, image) for image in (same, same)]  # type: ignore[misc]
        acts += [lambda: publish_image(ground, ground.images[-1], Format.SQUASHFS)]
        chance.shuffle(acts)
        running = [fork(act) for act in acts]
        while running:
            ended = dict(os.waitpid(pid, os.WNOHANG) for pid in running)
            whole_channels(ground)
            running = [pid for pid in running if pid not in ended]
            assert not any(ended.values())
            time.sleep(0.002)
        check_tree(ground.tree)
        assert list((ground.tree.path / "work").iterdir()) == []
    collect(ground)
    check_tidy(ground.tree)


def whole_channels(ground: Ground) -> None:
    """Both channels lead to a release with its root, whatever is going on."""
    for channel in CHANNELS:
        script = (ground.tree.channel(PROFILE, channel) / "boot.ipxe").read_bytes()
        version = named_version(script)
        assert (
            ground.tree.root(ReleaseName(PROFILE, version)) / "etc/version"
        ).read_text() == version
