# SPDX-License-Identifier: Apache-2.0
"""What a night costs: when nothing is new, and when one package is."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from imagebuilder.digest import Json, digest_of_file
from imagebuilder.errors import WorkError
from imagebuilder.image.types import load_image
from imagebuilder.lock.file import make_lock_file
from imagebuilder.lock.types import Lock, LockedLayer
from imagebuilder.nightly.space import measure_tree
from imagebuilder.process import run
from imagebuilder.publish.find import find_profile
from imagebuilder.publish.release.content import release_digests
from imagebuilder.report.save import begin_report, save_report
from imagebuilder.report.types import (
    Check,
    MachineReport,
    Outcome,
    Reached,
    Report,
    Stage,
    Trial,
    TrialVerdict,
)
from imagebuilder.store.workplace import remove_tree
from imagebuilder.tree import ReleaseName, Tree
from scripts.benchmark.bed import Bed, Place
from scripts.benchmark.record import Recorder

QUIET, QUIET_BYTES, ONE_PACKAGE = "quiet", "quiet-bytes", "one-package"
# One that the initrd does not have, one that it does: a new one is published whole.
CHANGED = ("openssh-server", "libssl3t64")
DAY = 86400
MB = 1e6
SUFFIX = "+bench1"
ESTIMATE_SECONDS = 300


class Nights:
    """The rows of nights under way."""

    def __init__(self, bed: Bed, profile: str, recorder: Recorder) -> None:
        self.bed, self.profile, self.recorder = bed, profile, recorder

    def measure(self, runs: int) -> None:
        """Quiet nights, then a changed package."""
        if not self.recorder.count(QUIET, self.profile):
            self._try(QUIET, self.profile, lambda: self._quiet(max(runs, 2)))
        names = {package.name for package in self._first().lock(self.profile).packages}
        for name in (one for one in CHANGED if one in names):
            if not self.recorder.count(ONE_PACKAGE, name):
                self._try(ONE_PACKAGE, name, partial(self._one, name))

    def _try(self, row: str, column: str, work: Callable[[], None]) -> None:
        """Measure; what fails is told in the cell."""
        try:
            work()
        except WorkError as error:
            self.recorder.fault(row, column, str(error))
        self.recorder.save()

    def _first(self) -> Place:
        return self.bed.first(self.profile).place

    @contextmanager
    def _published(self) -> Iterator[tuple[Place, Tree]]:
        """A copy of the first build, published in a tree of its own."""
        place = self.bed.copy(self._first(), "night")
        tree = Tree(self.bed.top / "work/night-tree")
        remove_tree(tree.path)
        place("publish", self.profile, "--tree", os.fspath(tree.path))
        yield place, tree
        remove_tree(tree.path)

    def _quiet(self, runs: int) -> None:
        """A night in which nothing is new.  Raises WorkError when it finds something to do."""
        with self._published() as (place, tree):
            plant_report(tree, find_profile(tree, self.profile)[-1])
            words = ("nightly", self.profile, "--tree", os.fspath(tree.path))
            for number in range(runs):
                before, start = measure_tree(tree), monotonic()
                with self.bed.ui.step(f"a night with nothing new, {number + 1}"):
                    said = place.ask(*words)
                seconds, added = monotonic() - start, measure_tree(tree) - before
                if (ending := ending_of(said, self.profile)) != "unchanged":
                    raise WorkError(f"the night was not quiet, it ended as {ending}")
                self.recorder.add(QUIET, self.profile, seconds, {})
                self.recorder.add(QUIET_BYTES, self.profile, added, {})

    def _one(self, name: str) -> None:
        """A package of another version and content: what is published of it."""
        with self._published() as (place, tree):
            lock = renew(place, self.profile, name)
            make_lock_file(lock, place.settings.lock_file(self.profile))
            with self.bed.ui.step(f"{self.profile} with another {name}"):
                seconds = place.seconds("build", self.profile, "--locked")
            before = measure_tree(tree)
            place("publish", self.profile, "--tree", os.fspath(tree.path))
            added = measure_tree(tree) - before
            image = image_size(tree, find_profile(tree, self.profile)[-1])
        parts = {
            "published, MB": added / MB,
            "image, MB": image / MB,
            "first release of it, MB": before / MB,
            "build, s": seconds,
        }
        self.recorder.add(ONE_PACKAGE, name, 100 * added / image, parts)


def ending_of(said: Mapping[str, Json], profile: str) -> str:
    """How the night of a profile ended.  Raises WorkError when it is not told."""
    profiles = said.get("profiles")
    assert isinstance(profiles, list)
    for one in profiles:
        assert isinstance(one, Mapping)
        if one.get("profile") == profile:
            return str(one.get("ending"))
    raise WorkError(f"the night says nothing of {profile}")


def image_size(tree: Tree, release: ReleaseName) -> int:
    """Bytes of a release: the files of its root, its kernel and initrd."""
    image = load_image(tree.release(release))
    return image.root.size + sum(file.size for file in image.kernel.files.values())


def renew(place: Place, profile: str, name: str) -> Lock:
    """The lock of a profile with another version of a package, which is put into the pool."""
    lock = place.lock(profile)
    (old,) = [package for package in lock.packages if package.name == name]
    debs = place.state / "debs"
    with TemporaryDirectory(dir=place.state) as folder:
        deb = repack(debs / f"{old.sha256}.deb", Path(folder))
        sha256 = digest_of_file(deb)
        new = replace(old, version=old.version + SUFFIX, sha256=sha256, size=deb.stat().st_size)
        deb.replace(debs / f"{sha256}.deb")
    changed = False
    layers: list[LockedLayer] = []
    for layer in lock.layers:
        changed = changed or old in layer.packages
        packages = tuple(new if package == old else package for package in layer.packages)
        # As the resolver does: the time of a layer is that of the newest of its packages.
        layers.append(replace(layer, packages=packages, epoch=layer.epoch + DAY * changed))
    return replace(lock, layers=tuple(layers), epoch=lock.epoch + DAY)


def repack(deb: Path, folder: Path) -> Path:
    """A package of a later version, every file of it longer by one byte, in `folder`."""
    tree, made = folder / "tree", folder / "made.deb"
    run(["dpkg-deb", "--raw-extract", deb, tree])
    control = tree / "DEBIAN/control"
    text = re.sub(r"^(Version: .*)$", rf"\1{SUFFIX}", control.read_text(), flags=re.MULTILINE)
    control.write_text(text)
    sums = []
    for path in sorted(tree.rglob("*")):
        if path.is_symlink() or not path.is_file() or path.is_relative_to(tree / "DEBIAN"):
            continue
        with path.open("ab") as stream:
            stream.write(b"\n")
        digest = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
        sums.append(f"{digest}  {path.relative_to(tree)}\n")
    (tree / "DEBIAN/md5sums").write_text("".join(sums))
    run(["dpkg-deb", "-Zgzip", "-z1", "--build", tree, made])
    return made


def plant_report(tree: Tree, release: ReleaseName) -> None:
    """A boot test that passed, without the boot: the night is to find nothing to do."""
    root = load_image(tree.release(release)).boot.root
    stages = tuple(Reached(stage, float(number)) for number, stage in enumerate(Stage))
    check = Check("common", "test_planted", "boot", Outcome.PASSED, 0.0)
    machine = MachineReport(
        "gate-1", "52:54:00:9a:7e:01", "10.77.0.11", stages, (check,), "console.log"
    )
    report = Report(
        id="20000101T000000Z-1",
        profile=release.profile,
        version=release.version,
        digests=release_digests(tree, release),
        started="2000-01-01T00:00:00+00:00",
        seconds=1.0,
        acceleration="none",
        why="planted by the benchmark",
        host="",
        tool="",
        selection="",
        sizes={},
        files={},
        static=(),
        trials=(Trial("uefi", root, (machine,), TrialVerdict(passed=True), 1.0),),
    )
    with begin_report(tree, report.release, report.id) as staged:
        (staged / "console.log").write_text("planted\n")
        save_report(tree, report, staged)
