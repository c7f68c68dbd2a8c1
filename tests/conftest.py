# SPDX-License-Identifier: Apache-2.0
"""What tests share: their order, signals that work, and `generic`, built once a run."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from imagebuilder.process import run
from imagebuilder.sandbox.mounts import check, libc, mount
from tests.boot_slots import BootSlots
from tests.once import made_once
from tests.sampling import EVERY, find_sample
from tests.workshop import (
    CHECKOUT,
    Workshop,
    find_pool,
    link_packages,
    make_workshop,
    workshop_at,
)

UNIT = "tests/unit"
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x00020000, 0x4000, 1 << 18  # of sched.h and sys/mount.h
# What takes longest begins first, so that no worker ends late.  What boots waits for a slot, so
# something else comes between.  Unit tests fill the gaps at the end; those here mostly wait.
FIRST = (
    "tests/boot/test_gate.py",
    "tests/boot/test_node_life.py",
    "tests/systems/test_debian13.py",
    "tests/boot/test_failure.py",
    "tests/faults/test_corpus.py",
    "tests/boot/test_chain.py",
    "tests/integration/test_engines.py",
    "tests/integration/test_playbook_roles.py",
    "tests/boot/test_network_root.py",
    "tests/integration/test_nights.py",
    "tests/integration/test_fleet.py",
    "tests/integration/test_serve_install.py",
    "tests/integration/test_web_browser.py",
    "tests/integration/test_faults.py",
    "tests/integration/test_rollout_long.py",
    "tests/integration/test_rollout_interrupted.py",
    "tests/unit/test_health_probes.py",
    "tests/unit/lock/test_wheels.py",
    "tests/unit/drift/test_property.py",
    "tests/unit/notify/test_deliver.py",
    "tests/unit/families/apt/test_resume.py",
    "tests/unit/nightly/test_rollout.py",
)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Search for garbage only in what the tests leave: all that is collected here stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not of the sample, and start what takes longest first.

    pytest-xdist (`--dist loadfile`) gives each file to one worker: its tests share fixtures, and
    the machines of a file are never two at once.
    """
    sample = list(find_sample(items, EVERY))
    config.hook.pytest_deselected(items=list(set(items) - set(sample)))
    items[:] = sorted(sample, key=rank)


def file_of(item: pytest.Item) -> str:
    """The file of a test, from the checkout."""
    return item.path.relative_to(CHECKOUT).as_posix()


def rank(item: pytest.Item) -> tuple[int, int]:
    """What is in FIRST in that order, then the rest, then unit tests; otherwise as collected."""
    name = file_of(item)
    if name in FIRST:
        return 0, FIRST.index(name)
    return (2 if name.startswith(UNIT) else 1), 0


SLOTS = pytest.StashKey[BootSlots]()


def pytest_configure(config: pytest.Config) -> None:
    """Give this worker its part of what all workers of a run share."""
    if run := os.environ.get("PYTEST_XDIST_TESTRUNUID"):
        config.stash[SLOTS] = BootSlots(run, os.cpu_count() or 1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Have a slot while a test boots, and until the next one if that shares its machines."""
    slots = item.config.stash.get(SLOTS, None)
    if slots and boots(item):
        slots.take()
    done = yield
    if slots and not (nextitem and nextitem.path == item.path and boots(nextitem)):
        slots.free()
    return done


def boots(item: pytest.Item) -> bool:
    """Whether a test boots a machine."""
    return item.get_closest_marker("boot") is not None


@pytest.fixture(scope="session", autouse=True)
def _signals_as_in_a_terminal() -> None:
    """What we start can be interrupted, also when we run in the background or under nohup(1)."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def _mounts_of_its_own() -> None:
    """What a test mounts is seen by this process alone: others compare the mount table meanwhile.

    Who may not mount has nothing to keep from them.
    """
    with contextlib.suppress(PermissionError):
        check(libc.unshare(CLONE_NEWNS), "unshare")
        mount("none", "/", flags=MS_REC | MS_PRIVATE)


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Workshop:
    """The shipped recipes with `generic` built from the host's mirror.

    One worker builds it, the others copy it: each has a state of its own.
    """
    if not hasattr(request.config, "workerinput"):
        return built(tmp_path_factory.mktemp("workshop"))
    shared = made_once(tmp_path_factory, request.config, "workshop", build_to_copy)
    mine = tmp_path_factory.mktemp("workshop")
    parts = [shared / name for name in ("project", "state", "site.yaml", "key", "key.pub")]
    run(["cp", "--archive", "--reflink=auto", *parts, mine])
    link_packages(find_pool() or shared / "pool", mine / "state")
    return workshop_at(mine, pool=shared / "pool")


def build_to_copy(top: Path) -> None:
    state = built(top).state
    for name in ("debs", "wheels"):  # the pool has links to them
        shutil.rmtree(state / name)


def built(top: Path) -> Workshop:
    """A workshop in `top` with `generic`."""
    made = make_workshop(top)
    made("build", "generic")
    link_packages(made.state, find_pool() or top / "pool")
    return made
