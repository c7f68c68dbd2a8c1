# SPDX-License-Identifier: Apache-2.0
"""Fetches that are cut off, held up, killed or lied to: they go on with what is there."""

from __future__ import annotations

import io
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from imagebuilder.errors import HostError, WorkError
from imagebuilder.families.apt.family import APT
from imagebuilder.families.apt.solving import make_apt_of
from imagebuilder.families.apt.update import load_releases
from imagebuilder.lock.patience import Patience, size_below
from imagebuilder.lock.pool import UNFINISHED, sweep_unfinished
from imagebuilder.lock.types import Lock
from imagebuilder.supplies import fetch
from imagebuilder.ui import PoolProgress, Ui
from tests.fixtures.aptrepo import Plant
from tests.unit.lock.test_pool import check_pool, fill, package_of, wanted
from tests.unit.lock.world import World, hello_recipe

pytestmark = pytest.mark.slow

BIG = "pool/big_1.0_all.deb"
# Less than 10 kB in two seconds and a half: the mirrors here send all of a file at once or nothing.
SOON = Patience(rate=10_000, seconds=2.5)
KILLED = """
import sys
from imagebuilder.lock.file import load_lock
from imagebuilder.families.registry import find_family
from imagebuilder.supplies import fetch
from pathlib import Path
from tests.unit.lock.world import Shown
from imagebuilder.recipe.types import Source
lock, uri, debs, cache, key = sys.argv[1:]
fetch(load_lock(Path(lock)), find_family("apt"), {"test": uri},
      (Source("test", ("test",), ("main",), Path(key), mirror="test"),),
      Path(debs), Path(debs), Path(cache), offline=False, progress=Shown())
"""


@pytest.fixture(autouse=True)
def _ranges(world: World) -> None:
    world.server.ranges = True


def partial(world: World, lock: Lock, name: str = "big") -> Path:
    return world.debs / UNFINISHED / f"{package_of(lock, name).sha256}.deb"


@pytest.mark.parametrize("fault", [Plant.STALLED, Plant.TRICKLING])
def test_a_mirror_that_holds_connections_open_is_given_up_and_continued(
    world: World, hello_lock: Lock, fault: Plant
) -> None:
    world.server.plant(BIG, fault)
    start, busy = time.monotonic(), processor()
    with pytest.raises(HostError, match=r"sent less than 10 kB/s for 2\.5 s: gave up on big=1"):
        fill(world, hello_recipe(world), hello_lock, patience=SOON)
    assert time.monotonic() - start < 60  # apt itself would wait for minutes
    assert processor() - busy < 1.5  # starting programs takes some
    big = package_of(hello_lock, "big")
    assert check_pool(world) == wanted(hello_lock) - {f"{big.sha256}.deb"}
    have = partial(world, hello_lock).stat().st_size
    assert 0 < have < big.size
    world.server.mend()
    world.server.sent.clear()
    fill(world, hello_recipe(world), hello_lock)
    assert check_pool(world) == wanted(hello_lock)
    # The server may count one more piece of the first answer, which nobody reads any longer.
    assert big.size - have <= world.server.sent[BIG] < big.size
    assert not (world.debs / UNFINISHED).exists()


def processor() -> float:
    """Seconds of the processor that this process and its children have taken."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(kind) for kind in kinds]
    return sum(each.ru_utime + each.ru_stime for each in used)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_killed_fetch_goes_on_where_it_was(
    world: World, hello_lock: Lock, tmp_path: Path, number: signal.Signals
) -> None:
    from imagebuilder.lock.file import make_lock_file

    make_lock_file(hello_lock, tmp_path / "tested.lock")
    world.server.plant(BIG, Plant.STALLED)
    words = (tmp_path / "tested.lock", world.server.uri, world.debs, world.cache)
    fetching = subprocess.Popen(
        [sys.executable, "-c", KILLED, *map(str, words), world.key.certificate],
        stderr=subprocess.DEVNULL,
    )
    path, big = partial(world, hello_lock), package_of(hello_lock, "big")
    whole = sum(package.size for package in hello_lock.packages) - big.size
    for _ in waited():
        if size_below(path.parent) == whole + big.size // 2:
            break
    fetching.send_signal(number)
    fetching.wait()
    for _ in waited():
        if path.stat().st_mtime < time.time() - 86400:  # the date that the mirror gave it
            break
    world.server.mend()
    world.server.sent.clear()
    fill(world, hello_recipe(world), hello_lock)
    assert check_pool(world) == wanted(hello_lock)
    assert big.size - big.size // 2 <= world.server.sent[BIG] < big.size
    assert [name for name in world.server.sent if name.startswith("pool/")] == [BIG]


def waited(seconds: float = 60.0) -> Iterator[None]:
    """Over and over until it is too late."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield
        time.sleep(0.05)
    pytest.fail("it did not happen in time")


def test_a_poisoned_partial_file_is_thrown_away_and_fetched_whole(
    world: World, hello_lock: Lock
) -> None:
    big = package_of(hello_lock, "big")
    path = partial(world, hello_lock)
    for poison in (b"x" * 100, b"x" * big.size, b"x" * (big.size + 5)):
        path.parent.mkdir(parents=True)
        path.write_bytes(poison)
        os.utime(path, (1754006400, 1754006400))  # as the mirror has it
        fill(world, hello_recipe(world), hello_lock)
        assert check_pool(world) == wanted(hello_lock)
        assert not path.parent.exists()
        (world.debs / path.name).unlink()


def test_a_mirror_that_poisons_is_refused_after_one_whole_fetch(
    world: World, hello_lock: Lock
) -> None:
    path = partial(world, hello_lock)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x" * 100)
    os.utime(path, (1754006400, 1754006400))
    world.server.plant(BIG, Plant.GARBLED)
    with pytest.raises(WorkError, match="expected sha256"):
        fill(world, hello_recipe(world), hello_lock)
    assert not path.exists()
    assert world.server.asked.count(BIG) <= 6  # apt asks twice more each time


def test_a_mirror_that_announces_more_than_it_sends(world: World, hello_lock: Lock) -> None:
    world.server.plant(BIG, Plant.LYING)
    fill(world, hello_recipe(world), hello_lock)  # what came is what the lock says
    assert check_pool(world) == wanted(hello_lock)


def test_a_mirror_that_cannot_continue_sends_all(world: World, hello_lock: Lock) -> None:
    world.server.plant(BIG, Plant.TRUNCATED)
    with pytest.raises(WorkError, match="closed the connection while sending"):
        fill(world, hello_recipe(world), hello_lock)
    assert partial(world, hello_lock).exists()
    world.server.mend()
    world.server.ranges = False
    fill(world, hello_recipe(world), hello_lock)
    assert check_pool(world) == wanted(hello_lock)


def test_what_is_complete_but_has_no_name_yet_is_not_fetched_again(
    world: World, hello_lock: Lock
) -> None:
    path = partial(world, hello_lock)
    path.parent.mkdir(parents=True)
    path.write_bytes((world.folder / BIG).read_bytes())
    fill(world, hello_recipe(world), hello_lock)
    assert check_pool(world) == wanted(hello_lock)
    assert BIG not in world.server.asked


def test_a_failed_fetch_does_not_say_done(world: World, hello_lock: Lock) -> None:
    world.server.plant(BIG, Plant.MISSING)
    said = io.StringIO()
    with pytest.raises(WorkError, match="no longer has"):
        fetch(
            hello_lock, APT, {"test": world.server.uri}, hello_recipe(world).sources, world.debs,
            world.wheels, world.cache, offline=False, progress=PoolProgress(Ui(said)),
        )  # fmt: skip
    assert "Fetching 7 packages: failed after" in said.getvalue()
    assert "done" not in said.getvalue()


def test_package_lists_that_do_not_come_are_given_up(world: World) -> None:
    apt = make_apt_of(world.recipe(), world.mirrors, world.cache)
    world.server.plant("dists/test/main/binary-amd64/Packages", Plant.STALLED)
    start = time.monotonic()
    with pytest.raises(HostError, match=r"package lists arrived at less than 10 kB/s for 2\.5 s"):
        load_releases(apt, lambda _: None, SOON)
    assert time.monotonic() - start < 60  # apt itself would wait for minutes
    world.server.mend()
    assert load_releases(apt, lambda _: None)


def test_unfinished_files_do_not_stay_for_ever(tmp_path: Path) -> None:
    (tmp_path / ".tmp-x").mkdir()
    (tmp_path / "young.deb").write_text("")
    sweep_unfinished(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["young.deb"]
