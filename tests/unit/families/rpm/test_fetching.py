# SPDX-License-Identifier: Apache-2.0
"""Packages that are fetched whole, in parts, wrong, late or not at all."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pytest

from imagebuilder.digest import digest_of_file
from imagebuilder.errors import FullError, HostError, ImagebuilderError, InputError, WorkError
from imagebuilder.families.protocol import Archives
from imagebuilder.families.rpm.fetching import fetch_rpms
from imagebuilder.lock.patience import Patience
from imagebuilder.lock.types import LockedPackage
from imagebuilder.recipe.types import Source
from tests.fixtures.aptrepo import Plant
from tests.fixtures.full import file_size_limit
from tests.fixtures.rpm_repository import Rpm, make_rpm
from tests.unit.families.rpm.conftest import APPS, BASE, TOOLS, RpmSite

pytestmark = pytest.mark.slow

SOON = Patience(rate=10_000, seconds=1.5)
BIG = "9/AppStream/x86_64/os/Packages/nginx-1.26-1.el9.noarch.rpm"
PLACES = (("BaseOS", "rocky", BASE), ("AppStream", "rocky", APPS), ("", "tools", TOOLS))


class Silent:
    """A progress that nobody sees, and what it was told."""

    def __init__(self) -> None:
        self.total = self.count = 0
        self.what = ""

    def start(self, total: int, what: str) -> None:
        self.total, self.what = total, what

    def advance(self, count: int) -> None:
        self.count += count

    def done(self) -> None:
        pass


@dataclass
class Pool:
    """Where verified files go."""

    site: RpmSite
    folder: Path
    kept: list[str] = field(default_factory=list)
    progress: Silent = field(default_factory=Silent)

    @property
    def unfinished(self) -> Path:
        folder = self.folder / ".unfinished"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def keep(self, files: Sequence[tuple[Path, LockedPackage]]) -> None:
        for path, package in files:
            path.replace(self.folder / path.name)
            self.kept.append(package.name)

    def fetch(
        self,
        packages: Sequence[LockedPackage],
        sources: Sequence[Source] = (),
        patience: Patience = SOON,
    ) -> None:
        fetch_rpms(
            packages,
            sources or (self.site.rocky, self.site.vendor),
            Archives(self.site.mirrors, self.site.cache),
            self.unfinished,
            self.keep,
            architecture="amd64",
            progress=self.progress,
            patience=patience,
        )


@pytest.fixture
def pool(site: RpmSite, tmp_path: Path) -> Pool:
    site.server.ranges = True
    return Pool(site, tmp_path / "pool")


def locked(site: RpmSite) -> list[LockedPackage]:
    """Every package of the site."""
    return [
        lock(site, component, source, rpm) for component, source, rpms in PLACES for rpm in rpms
    ]


def lock(site: RpmSite, component: str, source: str, rpm: Rpm) -> LockedPackage:
    path = site.place(component) / "Packages" / rpm.file_name
    top = site.folder if source == "rocky" else site.place("")
    epoch = f"{rpm.epoch}:" if rpm.epoch else ""
    return LockedPackage(
        rpm.name,
        f"{epoch}{rpm.version}-{rpm.release}",
        rpm.architecture,
        digest_of_file(path),
        path.stat().st_size,
        f"{path.relative_to(top)}",
        source,
    )


def big(site: RpmSite) -> LockedPackage:
    return lock(site, "AppStream", "rocky", APPS[0])


def test_packages_are_fetched_and_kept(pool: Pool) -> None:
    packages = locked(pool.site)
    pool.fetch(packages)
    assert sorted(pool.kept) == ["bash", "glibc", "nginx", "tool"]
    assert {path.name for path in pool.folder.glob("*.rpm")} == {
        f"{each.sha256}.rpm" for each in packages
    }
    assert pool.progress.what == "Fetching 4 packages"
    assert pool.progress.total == sum(each.size for each in packages)
    assert not list(pool.unfinished.iterdir())


def test_a_partial_file_is_continued(pool: Pool) -> None:
    package = big(pool.site)
    content = (pool.site.folder / BIG).read_bytes()
    (pool.unfinished / f"{package.sha256}.rpm").write_bytes(content[:3000])
    pool.site.server.ranges = True
    pool.fetch([package])
    assert pool.kept == ["nginx"]
    assert pool.site.server.sent[BIG] == package.size - 3000


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("length", [100, 0, 5])
def test_a_poisoned_file_is_fetched_whole(pool: Pool, ranges: bool, length: int) -> None:  # noqa: FBT001
    package = big(pool.site)
    pool.site.server.ranges = ranges
    size = 100 if length == 100 else package.size + length
    (pool.unfinished / f"{package.sha256}.rpm").write_bytes(b"x" * size)
    pool.fetch([package])
    assert pool.kept == ["nginx"]


def test_a_complete_file_is_not_fetched_again(pool: Pool) -> None:
    package = big(pool.site)
    shutil.copy(pool.site.folder / BIG, pool.unfinished / f"{package.sha256}.rpm")
    pool.fetch([package])
    assert pool.kept == ["nginx"]
    assert pool.site.server.asked == []


@pytest.mark.parametrize(
    ("plant", "kind", "what"),
    [
        (Plant.MISSING, WorkError, r"the mirror no longer has nginx=1\.26-1\.el9:noarch\n"),
        (Plant.UNAVAILABLE, HostError, "mirror is not reachable: http"),
        (Plant.SILENT, WorkError, "closed the connection while sending nginx"),
        (Plant.TRUNCATED, WorkError, "closed the connection while sending nginx"),
        (Plant.GARBLED, WorkError, "expected sha256 .* the mirror sent something else"),
        (Plant.LYING, WorkError, "sent something else"),
        (Plant.ENDLESS, WorkError, "sent something else"),
        (Plant.STALLED, HostError, r"sent less than 10 kB/s for 1\.5 s: gave up on nginx"),
        (Plant.TRICKLING, HostError, r"sent less than 10 kB/s for 1\.5 s: gave up on nginx"),
    ],
)
def test_faults_of_a_mirror(
    pool: Pool, plant: Plant, kind: type[ImagebuilderError], what: str
) -> None:
    pool.site.server.plant(BIG, plant)
    start = time.monotonic()
    with pytest.raises(kind, match=what):
        pool.fetch(locked(pool.site))
    assert time.monotonic() - start < 20
    assert sorted(pool.kept) == ["bash", "glibc", "tool"]
    pool.site.server.mend()
    pool.fetch([big(pool.site)])
    assert "nginx" in pool.kept


def test_a_dead_mirror_is_not_reachable(pool: Pool) -> None:
    vendor = replace(pool.site.vendor, uri="http://user:secret@127.0.0.1:9/r")
    tool = locked(pool.site)[-1]
    with pytest.raises(HostError, match=r"tool=1:1\.0.* not in the pool, and the ven") as caught:
        pool.fetch([tool], [vendor])
    assert "secret" not in str(caught.value)
    assert "sources: {tools: {uri:" in caught.value.faults[0].hint


def test_a_login_reaches_the_server_and_no_argument(pool: Pool) -> None:
    pool.site.server.login = "user:secret"
    uri = pool.site.vendor.uri.replace("://", "://user:secret@")
    pool.fetch([locked(pool.site)[-1]], [replace(pool.site.vendor, uri=uri)])
    assert pool.kept == ["tool"]
    words = "\n".join(pool.site.server.programs)
    assert "curl" in words
    assert "secret" not in words


def test_a_full_disk_is_one(pool: Pool) -> None:
    with file_size_limit(4000), pytest.raises(FullError, match="no space left"):
        pool.fetch(locked(pool.site))
    pool.fetch(locked(pool.site))
    assert "nginx" in pool.kept


def replaced(site: RpmSite, rpm: Rpm, **how: object) -> LockedPackage:
    """nginx in the archive replaced by another package, and locked with its content."""
    path = site.folder / BIG
    make_rpm(rpm, path, how.get("key"))  # type: ignore[arg-type]
    package = big(site)
    return replace(package, sha256=digest_of_file(path), size=path.stat().st_size)


def test_what_its_source_did_not_sign_is_not_kept(pool: Pool) -> None:
    site = pool.site
    for key, what in (
        (None, "it is not signed"),
        (site.keys[1], "it is signed with another key"),
        (site.keys[2], "it is signed with another key"),
    ):
        wanted = replaced(site, APPS[0], key=key)
        with pytest.raises(WorkError, match=f"nginx=.* is not a package of its source: {what}"):
            pool.fetch([wanted])
        assert not list(pool.unfinished.iterdir())
    assert pool.kept == []


def test_an_old_package_under_a_new_name_is_not_kept(pool: Pool) -> None:
    site = pool.site
    wanted = replaced(site, Rpm("nginx", "1.20"), key=site.keys[0])
    with pytest.raises(WorkError, match=r"is the package nginx=1\.20-1\.el9:noarch"):
        pool.fetch([wanted])
    assert pool.kept == []


def test_a_key_that_is_not_pinned_is_refused(pool: Pool) -> None:
    other = replace(pool.site.vendor, fingerprints=(pool.site.keys[2].fingerprint,))
    with pytest.raises(InputError, match="but the overlay pins"):
        pool.fetch([locked(pool.site)[-1]], [other])


def test_a_source_that_the_recipe_lacks(pool: Pool) -> None:
    with pytest.raises(WorkError, match=r"takes tool=.* from source tools, but the recipe"):
        pool.fetch([locked(pool.site)[-1]], [pool.site.rocky])


def test_a_wrong_size_of_the_index_is_told(pool: Pool) -> None:
    wanted = replace(big(pool.site), size=big(pool.site).size + 1)
    with pytest.raises(WorkError, match="but its index says"):
        pool.fetch([wanted])


def test_an_archive_in_a_folder(pool: Pool) -> None:
    site = pool.site
    archives = Archives({"rocky": f"file:{site.folder}"}, site.cache)
    fetch_rpms(
        [big(site)],
        [site.rocky],
        archives,
        pool.unfinished,
        pool.keep,
        architecture="amd64",
        progress=pool.progress,
    )
    assert pool.kept == ["nginx"]
    with pytest.raises(WorkError, match="no longer has"):
        fetch_rpms(
            [replace(big(site), path="gone.rpm", sha256="0" * 64)],
            [site.rocky],
            archives,
            pool.unfinished,
            pool.keep,
            architecture="amd64",
            progress=pool.progress,
        )


KILLED = """
import json, sys
from pathlib import Path
from imagebuilder.families.protocol import Archives
from imagebuilder.families.rpm.fetching import fetch_rpms
from imagebuilder.lock.types import LockedPackage
from imagebuilder.recipe.types import Source
from tests.unit.families.rpm.test_fetching import Silent
package, uri, key, cache, folder = sys.argv[1:]
source = Source("rocky", ("9",), ("AppStream",), Path(key), mirror="rocky")
fetch_rpms([LockedPackage(**json.loads(package))], [source],
           Archives({"rocky": uri}, Path(cache)), Path(folder), print,
           architecture="amd64", progress=Silent())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_fetch_goes_on_where_it_was(pool: Pool, number: signal.Signals) -> None:
    site, package = pool.site, big(pool.site)
    site.server.plant(BIG, Plant.STALLED)
    words = (site.server.uri, site.keyring, site.cache, pool.unfinished)
    text = json.dumps(asdict(package))
    command = [sys.executable, "-c", KILLED, text, *map(str, words)]
    fetching = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    path, until = pool.unfinished / f"{package.sha256}.rpm", time.monotonic() + 20
    while not path.exists() or path.stat().st_size < package.size // 2:
        assert time.monotonic() < until
        time.sleep(0.05)
    fetching.send_signal(number)
    fetching.wait()
    site.server.mend()
    site.server.sent.clear()
    pool.fetch([package])
    assert pool.kept == ["nginx"]
    assert site.server.sent[BIG] == package.size - package.size // 2


@pytest.mark.parametrize("name", ["libstdc++", "a~b^c", "percent%2Bquoted"])
def test_names_arrive_as_the_index_has_them(pool: Pool, name: str) -> None:
    site = pool.site
    package = big(site)
    file = name.replace("%2B", "+")
    shutil.copy(site.folder / BIG, site.folder / f"{file}.rpm")
    pool.fetch([replace(package, path=f"{name}.rpm")])
    assert pool.kept == ["nginx"]
