# SPDX-License-Identifier: Apache-2.0
"""The local archive: apt itself reads it and sees the locked packages, nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.errors import WorkError
from imagebuilder.families.apt.deb822 import parse_release, parse_stanzas
from imagebuilder.families.apt.family import APT
from imagebuilder.families.apt.repository import make_repository
from imagebuilder.families.protocol import Packages
from imagebuilder.lock.types import Lock
from imagebuilder.lock.verified import Pool
from imagebuilder.process import run
from imagebuilder.supplies import fetch
from tests.unit.lock.world import Shown, World


@pytest.fixture
def lock(world: World, hello_lock: Lock) -> Lock:
    """A lock whose packages are in the pool."""
    fetch(
        hello_lock, APT, world.mirrors, (world.source,), world.debs, world.wheels, world.cache,
        offline=False, progress=Shown(),
    )  # fmt: skip
    return hello_lock


def build(world: World, lock: Lock, target: Path) -> None:
    served = Packages("test", "amd64", lock.packages, (), lock.epoch)
    make_repository(served, Pool(world.debs, world.wheels), target)


def test_it_links_to_the_pool_and_describes_each_file(
    world: World, lock: Lock, tmp_path: Path
) -> None:
    target = tmp_path / "repository"
    build(world, lock, target)
    index = (target / "dists/test/main/binary-amd64/Packages").read_text()
    assert index.endswith("\n\n")
    records = {stanza["Package"]: stanza for stanza in parse_stanzas(index)}
    assert set(records) == {package.name for package in lock.packages}
    kernel = records["linux-image-test"]
    assert kernel["Filename"] == "pool/linux-image-test_1%3a7.2-1_all.deb"
    assert kernel["Depends"] == "libc6"
    for package in lock.packages:
        path = target / records[package.name]["Filename"]
        assert path.samefile(world.debs / f"{package.sha256}.deb")
    release = parse_release((target / "dists/test/Release").read_text())
    assert release["Date"] == "Thu, 09 Oct 2025 08:53:20 GMT"
    assert len(release["SHA256"].split()) == 6


def test_it_is_the_same_every_time(world: World, lock: Lock, tmp_path: Path) -> None:
    build(world, lock, tmp_path / "a")
    build(world, lock, tmp_path / "b")
    for name in ("Release", "main/binary-amd64/Packages", "main/binary-amd64/Packages.gz"):
        first, second = (tmp_path / each / "dists/test" / name for each in "ab")
        assert first.read_bytes() == second.read_bytes()


def test_apt_installs_from_it(world: World, lock: Lock, tmp_path: Path) -> None:
    target, root = tmp_path / "repository", tmp_path / "apt"
    build(world, lock, target)
    for name in ("lists/partial", "archives/partial", "empty"):
        (root / name).mkdir(parents=True)
    (root / "status").touch()  # apt puts its locks beside it
    (root / "sources.list").write_text(f"deb [trusted=yes] copy:{target} test main\n")
    options = {
        "Dir::Etc::main": "/dev/null", "Dir::Etc::parts": root / "empty",
        "Dir::Etc::sourcelist": root / "sources.list", "Dir::Etc::sourceparts": root / "empty",
        "Dir::State": root, "Dir::State::status": root / "status", "Dir::Cache": root,
        "APT::Architecture": "amd64", "APT::Sandbox::User": "root",
    }  # fmt: skip
    (root / "apt.conf").write_text("".join(f'{k} "{v}";\n' for k, v in options.items()))
    env = {"APT_CONFIG": f"{root}/apt.conf"}
    run(["apt-get", "update", "-qq", "--error-on=any"], env=env)
    words = ["apt-get", "install", "--yes", "-qq", "--download-only", "?essential", "apt"]
    run([*words, *(package.name for package in lock.packages)], env=env)
    got = {path.name for path in (root / "archives").glob("*.deb")}
    assert len(got) == len(lock.packages)


def test_a_package_that_is_not_in_the_pool(world: World, lock: Lock, tmp_path: Path) -> None:
    (world.debs / f"{lock.packages[0].sha256}.deb").unlink()
    with pytest.raises(WorkError, match=f"{lock.packages[0].name}.* is not in the package pool"):
        build(world, lock, tmp_path / "repository")
