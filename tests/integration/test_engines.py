# SPDX-License-Identifier: Apache-2.0
"""Engines stay interchangeable: what they make of the same locked packages is the same root.

The packages are the base of `generic` without its kernel and what makes initrds, which are most of
its bytes and nothing that engines differ in.
"""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.errors import HostError
from imagebuilder.families.apt.bootstrap import ENGINES
from imagebuilder.families.apt.family import APT
from imagebuilder.families.tool import check_tool
from imagebuilder.lock.file import load_lock
from imagebuilder.lock.verified import Pool
from imagebuilder.plan import make_plan
from imagebuilder.process import run
from imagebuilder.recipe.load import load_recipe
from imagebuilder.settings import load_settings
from imagebuilder.steps.packages import BootstrapStep
from imagebuilder.steps.step import StepWorkspace
from imagebuilder.store.repository import Store
from imagebuilder.store.upper import settle, walk
from imagebuilder.supplies import pool_folders
from tests.sampling import times
from tests.workshop import Workshop

LEFT_OUT = ("linux-", "dracut", "3cpio")

# What mmdebstrap alone leaves: state of tools, and a list of the manual that was left out.
BY_MMDEBSTRAP = {"usr/share/info/dir", "var/lib/apt/extended_states", "var/lib/dpkg/arch"}
# debootstrap names the time zone, and deb-systemd-helper the units of apt as it finds them then.
BY_DEBOOTSTRAP = {
    "etc/localtime",
    "etc/systemd/system/timers.target.wants/apt-daily-upgrade.timer",
    "etc/systemd/system/timers.target.wants/apt-daily.timer",
}
# The order in which packages are set up is the order of these lines.
ORDER = {"etc/gshadow", "etc/shadow", "var/lib/dpkg/triggers/File"}
# Links to manual pages that bash has and mmdebstrap does not see.
MANUAL = {"var/lib/dpkg/alternatives/builtins.7.gz"}
DIFFERENT = {
    "debootstrap": BY_MMDEBSTRAP | BY_DEBOOTSTRAP | ORDER | MANUAL,
    "mkosi": BY_MMDEBSTRAP | MANUAL | {"etc/fstab"},
    "dib": BY_MMDEBSTRAP | BY_DEBOOTSTRAP | ORDER | MANUAL,
}

pytestmark = [pytest.mark.root, pytest.mark.slow]


def listed(root: Path) -> list[str]:
    """What dpkg has in a root, with its state."""
    form = "${db:Status-Abbrev} ${Package} ${Version} ${Architecture}\n"
    words = ["dpkg-query", f"--admindir={root}/var/lib/dpkg", "--show", f"--showformat={form}"]
    return sorted(run(words).stdout.splitlines())


def entries(root: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Everything in a root: mode, owners, content."""
    found = {}
    for path, info in walk(root):
        content = b""
        if stat.S_ISLNK(info.st_mode):
            content = os.fsencode(path.readlink())
        elif stat.S_ISREG(info.st_mode):
            content = path.read_bytes()
        name = os.fspath(path.relative_to(root))
        found[name] = info.st_mode, info.st_uid, info.st_gid, content
    return found


@pytest.fixture(scope="module")
def base(workshop: Workshop) -> BootstrapStep:
    """The first step of `generic`, without the kernel."""
    settings = load_settings(workshop.env())
    lock = load_lock(settings.lock_file("generic"))
    step = make_plan(load_recipe("generic", settings), lock, layers=()).steps[0].step
    assert isinstance(step, BootstrapStep)
    packages = tuple(p for p in step.packages.packages if not p.name.startswith(LEFT_OUT))
    return replace(step, packages=replace(step.packages, packages=packages))


def make(step: BootstrapStep, work: Path, workshop: Workshop) -> Path:
    """The layer of `step`, made below `work`."""
    (work / "u").mkdir(parents=True)
    (work / "u").chmod(0o755)
    workspace = StepWorkspace(
        work,
        (),
        "u",
        step.epoch,
        work / "log",
        Pool(*pool_folders(workshop.state, "apt")),
        family=APT,
    )
    step.apply(workspace)
    settle(workspace.tree, [])
    return workspace.tree


@pytest.fixture(scope="module")
def plain(
    base: BootstrapStep, workshop: Workshop, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """What the default engine makes."""
    return make(base, tmp_path_factory.mktemp("mmdebstrap"), workshop)


@pytest.mark.parametrize("engine", ["debootstrap", "mkosi", "dib"])
def test_every_engine_makes_the_same_base_again_and_again(
    engine: str, base: BootstrapStep, plain: Path, workshop: Workshop, store: Store, tmp_path: Path
) -> None:
    try:
        check_tool(ENGINES[engine].tool)
    except HostError as error:
        if engine != "mkosi":  # which not every distribution has, as host-setup says
            raise
        pytest.skip(f"{error.faults[0].what}: {error.faults[0].hint}")
    step = replace(base, engine=engine)
    with ThreadPoolExecutor(2) as pool:
        # The sample makes it once, and the default engine's is what it is compared with.
        works = (tmp_path / "a", tmp_path / "another")[: times(1, 2)]
        one, *again = pool.map(lambda work: make(step, work, workshop), works)
    assert listed(one) == listed(plain)
    mine, default = entries(one), entries(plain)
    different = {name for name in mine.keys() | default if mine.get(name) != default.get(name)}
    assert different <= DIFFERENT[engine]
    for name in ORDER & different:
        assert sorted(mine[name][3].splitlines()) == sorted(default[name][3].splitlines()), name
    commits = {store.commit(tree, epoch=step.epoch) for tree in (one, *again)}
    assert len(commits) == 1
    hosts_paths = os.fsencode(tmp_path)
    assert [name for name, entry in mine.items() if hosts_paths in entry[3]] == []
