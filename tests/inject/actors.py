# SPDX-License-Identifier: Apache-2.0
"""Everybody at once, some killed: python -m tests.inject.actors [--minutes M] [--actors N]

Each actor does one thing to one tree: publish, pack, promote, rollback, test, keep, unpublish, gc,
or read what a channel leads to; then another one takes its place.  One in five is killed at a
moment by chance.  All the time both channels must lead to a release with its root, what a reader
fetches must fit together, and nobody may fail otherwise than with an answer.  Needs root.

exit: 0 when all of that held and the tree was whole in the end, 1 otherwise
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from imagebuilder.publish.channel.move import promote
from imagebuilder.publish.removal import Caution, collect_releases, keep_release, unpublish
from imagebuilder.rootkind import Format
from imagebuilder.store.repository import make_store
from imagebuilder.tree import CHANNELS, ReleaseName, make_tree
from tests.integration.published import (
    BOLD,
    PROFILE,
    UNTESTED,
    check_files,
    check_tidy,
    check_tree,
    make_image,
    memory_folder,
    named_version,
    quiet,
    release_of,
)
from tests.integration.started import orphans_are_ours
from tests.integration.test_publish_kill import (
    Ground,
    actions,
    collect,
    fork,
    publish_image,
    whole_channels,
)

KILLED = 0.2  # of all actors
# Whoever read a channel has so long to fetch what it named.
MINUTES = 0.2
NAMES = (
    "publish", "pack", "promote", "rollback", "test", "keep", "unpublish", "gc", "read", "read",
)  # fmt: skip


@dataclass
class Told:
    """What happened: actors by what they did, those killed, and what did not hold."""

    done: Counter[str] = field(default_factory=Counter)
    killed: Counter[str] = field(default_factory=Counter)
    looks: int = 0
    wrong: list[str] = field(default_factory=list)


def acts(ground: Ground, chance: random.Random) -> dict[str, Callable[[], object]]:
    """What an actor may do."""
    image, tree = chance.choice(ground.images), ground.tree
    caution = Caution(boot_minutes=MINUTES, strangers=True)
    name, off = str(release_of(image)), chance.random() < 0.7
    return {
        **actions(ground, chance),
        "gc": lambda: collect(ground, caution),
        "keep": lambda: keep_release(tree, name, quiet(), off=off),
        "unpublish": lambda: unpublish(tree, name, quiet(), caution),
        "read": lambda: read(ground, chance.choice(CHANNELS)),
    }


def read(ground: Ground, channel: str) -> None:
    """Fetch what a channel leads to, as a node does: its script names the version."""
    script = (ground.tree.channel(PROFILE, channel) / "boot.ipxe").read_bytes()
    version = named_version(script)
    folder = ground.tree.release(ReleaseName(PROFILE, version))
    check_files(lambda name: (folder / name).read_bytes(), version, script)
    assert (ground.tree.root(ReleaseName(PROFILE, version)) / "etc/version").read_text() == version


def play(ground: Ground, actors: int, seconds: float, chance: random.Random) -> Told:
    """Let so many act until the time is over."""
    told, running = Told(), dict[int, tuple[str, float]]()
    end = time.monotonic() + seconds
    while running or time.monotonic() < end:
        while len(running) < actors and time.monotonic() < end:
            name = chance.choice(NAMES)
            doomed = time.monotonic() + chance.random() if chance.random() < KILLED else end + 600
            running[fork(acts(ground, chance)[name])] = (name, doomed)
        for pid in [pid for pid, (_, doomed) in running.items() if time.monotonic() > doomed]:
            os.kill(pid, signal.SIGKILL)
            running[pid] = (running[pid][0], end + 600)
        look(ground, told)
        reap(running, told)
        time.sleep(0.005)
    return told


def look(ground: Ground, told: Told) -> None:
    """Both channels lead to something whole."""
    told.looks += 1
    try:
        whole_channels(ground)
    except (AssertionError, OSError, ValueError) as error:
        told.wrong.append(f"a channel: {type(error).__name__}: {error}")


def reap(running: dict[int, tuple[str, float]], told: Told) -> None:
    """Take in who ended, orphans too."""
    while True:
        try:
            pid, code = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        if pid not in running:
            continue
        name = running.pop(pid)[0]
        status = os.waitstatus_to_exitcode(code)
        (told.killed if status == -signal.SIGKILL else told.done)[name] += 1
        if status not in (0, -signal.SIGKILL):
            told.wrong.append(f"{name} ended with {status}")


def main(words: Sequence[str]) -> int:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.inject.actors", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--actors", type=int, default=16)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args(words)
    with memory_folder() as folder, orphans_are_ours():
        store = make_store(folder / "state/store")
        images = [make_image(store, folder, number) for number in range(1, 7)]
        ground = Ground(store, make_tree(folder / "netboot"), images)
        for image in images[:2]:
            publish_image(ground, image)
        promote(ground.tree, PROFILE, quiet(), untested=UNTESTED)
        told = play(ground, given.actors, 60 * given.minutes, random.Random(given.seed))
        try:
            check_tree(ground.tree)
            for image in images:
                publish_image(ground, image, *Format)
                keep_release(ground.tree, str(release_of(image)), quiet(), off=True)
            collect_releases(ground.tree, quiet(), BOLD, keep=1, dry_run=False)
            check_tree(ground.tree)
            check_tidy(ground.tree)
        except (AssertionError, OSError) as error:
            told.wrong.append(f"in the end: {type(error).__name__}: {error}")
    said = {
        "operations": sum(told.done.values()) + sum(told.killed.values()),
        "killed": sum(told.killed.values()),
        "looks": told.looks,
        "violations": len(told.wrong),
        "done": told.done,
        "seed": given.seed,
    }
    print("".join(f"{what}\n" for what in told.wrong[:20]), end="", file=sys.stderr)
    print(json.dumps(said))
    return 1 if told.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
