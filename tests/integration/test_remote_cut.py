# SPDX-License-Identifier: Apache-2.0
"""Publishing over ssh, cut off anywhere: after so many bytes, and by killing either side."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from imagebuilder.errors import ImagebuilderError
from imagebuilder.process import run
from imagebuilder.publish.transport.ssh import Remote
from imagebuilder.store.repository import ImageRef, Store
from tests.integration.published import memory_folder
from tests.integration.test_remote import (
    Far,
    builder,
    far,
    make_image,
    script,
    send,
    wait_until_quiet,
)
from tests.sampling import times

__all__ = ["builder", "far"]  # fixtures
pytestmark = pytest.mark.root
CUTS, SEED = times(2, 100), 12
NEW = 300_000  # bytes in the new file, random: so many are sent, and little else


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory: all of it is copied for each cut."""
    with memory_folder() as folder:
        yield folder


@pytest.fixture
def two(tmp_path: Path, builder: Store) -> tuple[ImageRef, ImageRef]:
    """Two images, of which the second has one more file."""
    lib = tmp_path / "root/usr/lib"
    lib.mkdir(parents=True)
    for number in range(20):
        (lib / f"{number}.so").write_bytes(os.urandom(1000))
    old = make_image(builder, tmp_path / "root", "1")
    (lib / "new.so").write_bytes(os.urandom(NEW))
    return old, make_image(builder, tmp_path / "root", "2")


def break_ssh(top: Far, folder: Path, way: str, share: float, seconds: float) -> Remote:
    """Let the next connection that sends something break after a share of what it does."""
    real = f"/usr/bin/ssh -F {top.top}/ssh_config"
    after = f"{max(0.01, share * seconds):.2f}"
    broken = {
        "bytes": f'head -c {int(share * 1.1 * NEW)} | {real} "$@"',
        "here": f'exec timeout --signal=KILL {after} {real} "$@"',
        "there": f'exec {real} "$@"',
    }[way]
    case = f'case "$*" in *--channel*) {broken};; *) exec {real} "$@";; esac'
    script(folder / "bin" / "ssh", case)
    if way != "there":
        return top.remote
    killed = f'timeout --signal=KILL {after} {top.imagebuilder} "$@"'
    return top.program(f'case "$*" in *--channel*) {killed};; *) {top.imagebuilder} "$@";; esac')


def test_cut_off_anywhere_the_other_tree_is_old_or_new(
    far: Far,
    builder: Store,
    two: tuple[ImageRef, ImageRef],
    tmp_path: Path,
) -> None:
    first, second = two
    send(far.remote, builder, first)
    kept = tmp_path / "kept"
    run(["cp", "--archive", "--", far.tree, kept])
    old = far.state()
    begun = time.monotonic()
    send(far.remote, builder, second)
    seconds, new = time.monotonic() - begun, far.state()
    chance = random.Random(SEED)
    ends: Counter[str] = Counter()
    for number in range(CUTS):
        shutil.rmtree(far.tree)
        run(["cp", "--archive", "--", kept, far.tree])
        way = ("there", "bytes", "here")[number % 3]
        broken = break_ssh(far, tmp_path, way, chance.random(), seconds)
        done = False
        try:
            send(broken, builder, second)
            done = True
        except ImagebuilderError:
            pass
        wait_until_quiet(far)
        state = far.state()
        assert state in (old, new), (number, way)
        assert state == new or not done, (number, way)
        ends["new" if state == new else "old"] += 1
        print(f"{number} {way}: {dict(ends)}", flush=True)
        script(tmp_path / "bin" / "ssh", f'exec /usr/bin/ssh -F {far.top}/ssh_config "$@"')
        send(far.remote, builder, second)
        assert far.state() == new, (number, way)
        assert far.left() == [], (number, way)
    assert ends["old"] > CUTS / 4
