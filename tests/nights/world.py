# SPDX-License-Identifier: Apache-2.0
"""A builder with a tiny distribution behind it, both of which change from night to night.

    TOP/archive/         the mirror's files     TOP/project/     recipes, overlays of two profiles
    TOP/disk/            the builder's disk, of limited size: state/, tree/, cache/, nights/
    TOP/wait             there while a night waits; it goes on when the file is gone
    TOP/boots            how many boot tests are still to fail

No process can have a clock of its own, so the clock stands and the world moves: when time passes,
what was written before becomes that much older.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from imagebuilder.process import run
from imagebuilder.sandbox.mounts import MS_REMOUNT, mount
from tests.fixtures.aptrepo import (
    DAY,
    ArchiveServer,
    Deb,
    Plant,
    SigningKey,
    make_archive,
    served,
)
from tests.nights.distribution import (
    KERNEL,
    MAIN,
    SECURITY,
    Archive,
    first_archive,
    kernel_package,
    service_package,
)
from tests.nights.plans import Change, Fault, Kind, Moment

PROFILES = {"alpha": ("tiny-base", "dracut", KERNEL, "libtiny", "alpha-server"),
            "beta": ("tiny-base", "dracut", KERNEL, "libtiny", "beta-server")}  # fmt: skip
KEEP = 3  # releases and images
WEIGHT = 1 << 20  # bytes of a service that no version shares with another
BROKEN = "+broken"
DISK_BYTES = 1 << 30
STEP_BYTES = 1 << 16
BASE = """\
distribution: debian
suite: {main}
archives:
  - {{mirror: tiny, suites: [{main}, {security}], components: [main], keyring: {key}}}
kernel: {kernel}
packages: [dracut]
"""


@dataclass(frozen=True)
class Places:
    """Where everything is, below `top`."""

    top: Path

    @property
    def disk(self) -> Path:
        return self.top / "disk"

    @property
    def tree(self) -> Path:
        return self.disk / "tree"

    @property
    def state(self) -> Path:
        return self.disk / "state"

    @property
    def nights(self) -> Path:
        return self.disk / "nights"

    @property
    def project(self) -> Path:
        return self.top / "project"

    @property
    def archive(self) -> Path:
        return self.top / "archive"

    @property
    def wait(self) -> Path:
        return self.top / "wait"

    @property
    def boots(self) -> Path:
        return self.top / "boots"

    def env(self) -> dict[str, str]:
        """The environment in which the program finds this builder."""
        return {
            "IMAGEBUILDER_PROJECT": os.fspath(self.project),
            "IMAGEBUILDER_STATE": os.fspath(self.state),
            "IMAGEBUILDER_CACHE": os.fspath(self.disk / "cache"),
            "IMAGEBUILDER_SITE": os.fspath(self.top / "site.yaml"),
            "IMAGEBUILDER_TREE": os.fspath(self.tree),
        }


def make_project(places: Places, key: Path, uri: str) -> None:
    """Recipes of two profiles that share all but one package."""
    recipes, overlays = places.project / "recipes", places.project / "overlays"
    (recipes / "bases").mkdir(parents=True)
    (recipes / "locks").mkdir()
    base = BASE.format(main=MAIN, security=SECURITY, key=key, kernel=KERNEL)
    (recipes / "bases/tiny.yaml").write_text(base)
    for profile, packages in PROFILES.items():
        (overlays / profile).mkdir(parents=True)
        overlay = f"description: The service {profile}\npackages: [{packages[-1]}]\n"
        (overlays / profile / "overlay.yaml").write_text(overlay)
        recipe = f"description: Nodes of {profile}\nbase: tiny\noverlays: [{profile}]\n"
        (recipes / f"{profile}.yaml").write_text(recipe)
    (places.top / "site.yaml").write_text(f"mirrors: {{tiny: '{uri}'}}\n")


class World:
    """Archive, mirror, disk and time.  `close()` stops the mirror."""

    def __init__(self, top: Path, key: SigningKey, *, nights: int) -> None:
        self.places = Places(top)
        self.archive: Archive = first_archive()
        self.versions = 0
        # The archive of the last night is of today, the first one's of so many days ago.
        self.day = int(time.time()) - (nights + 1) * DAY
        self.skew = 0
        self.size = DISK_BYTES
        self._key = key
        self._valid_until: int | None = None
        self._mirror = ExitStack()
        self._port = 0
        self.server = self.start_mirror()
        self.publish()
        make_project(self.places, key.certificate, self.server.uri)
        self.places.disk.mkdir()

    def start_mirror(self) -> ArchiveServer:
        """Serve the archive, at the port it has always had."""
        self.places.archive.mkdir(parents=True, exist_ok=True)
        server = self._mirror.enter_context(served(self.places.archive, self._port))
        self._port = int(server.uri.rpartition(":")[2])
        return server

    def close(self) -> None:
        """Stop the mirror: its port refuses connections."""
        self._mirror.close()

    def publish(self) -> None:
        """Write the archive as it is to the mirror, signed."""
        for suite, debs in ((MAIN, self.archive.main), (SECURITY, self.archive.security)):
            make_archive(
                self.places.archive, debs, self._key,
                suite=suite, date=self.day + self.skew, valid_until=self._valid_until,
            )  # fmt: skip
        # Else its agent would be taken for a process that a night has left.
        run(["gpgconf", "--homedir", self._key.home, "--kill", "all"])

    # Upstream.

    def change(self, change: Change, *, broken: bool = False) -> Deb:
        """A new version of a package."""
        self.versions += 1
        old = self.archive.newest(change.package)
        version = f"1.{self.versions}-1{BROKEN if broken else ''}"
        if change.package == KERNEL:
            new = kernel_package(f"6.1.0-{self.versions}-tiny", f"6.1.{10 + self.versions}-1")
        elif change.package == "dracut":
            mark = {"/usr/lib/tiny/dracut": f"dracut {version}\n"}
            new = replace(old, version=version, files={**old.files, **mark})
        else:
            weight = WEIGHT if change.package.endswith("-server") else 0
            new = service_package(change.package, version, depends=old.depends, weight=weight)
        put = self.archive.with_security if change.security else self.archive.with_main
        self.archive = put(new)
        return new

    def upstream_of(self, profile: str) -> dict[str, str]:
        """The newest versions of all packages of a profile that the archive has."""
        return {name: self.archive.newest(name).version for name in PROFILES[profile]}

    # Time.

    def pass_time(self, seconds: float) -> None:
        """What was written before is that much older; it passes on a full disk too."""
        size = self.size
        self.resize()
        age_journal(self.places.tree / "journal.jsonl", seconds)
        for path in (self.places.state / "store/refs").rglob("*"):
            if path.is_file():
                found = path.stat()
                os.utime(path, (found.st_atime - seconds, found.st_mtime - seconds))
        self.resize(size)

    # Faults.

    def begin(self, fault: Fault, changed: list[Deb]) -> None:
        """Let a fault come that is there from the beginning of a night."""
        plants = {
            Kind.FAILING: Plant.UNAVAILABLE,
            Kind.SILENT: Plant.SILENT,
            Kind.TRUNCATED: Plant.TRUNCATED,
            Kind.GARBLED: Plant.GARBLED,
        }
        if fault.kind is Kind.DOWN:
            self.close()
        elif fault.kind in (Kind.FAILING, Kind.SILENT):
            self.server.everywhere = plants[fault.kind]
        elif fault.kind in (Kind.TRUNCATED, Kind.GARBLED):
            for deb in changed:
                self.server.plant(f"pool/{deb.file_name}", plants[fault.kind])
        elif fault.kind is Kind.EXPIRED:
            self._valid_until = int(time.time()) - 2 * DAY
            self.publish()
        elif fault.kind is Kind.CLOCK:
            self.jump(fault.days * DAY)
        elif fault.kind is Kind.BOOT:
            self.places.boots.write_text("1")
        elif fault.kind is Kind.FULL and fault.moment is Moment.START:
            self.fill(fault)

    def end(self, fault: Fault) -> None:
        """Let it pass."""
        if fault.kind is Kind.DOWN:
            self.server = self.start_mirror()
        elif fault.kind is Kind.EXPIRED:
            self._valid_until = None
            self.publish()
        elif fault.kind is Kind.CLOCK:
            self.jump(-fault.days * DAY)
        elif fault.kind is Kind.FULL:
            self.resize()
        elif fault.kind in (Kind.FAILING, Kind.SILENT):
            self.server.everywhere = None
        elif fault.kind in (Kind.TRUNCATED, Kind.GARBLED):
            self.server.planted.clear()

    def jump(self, seconds: int) -> None:
        """The builder's clock jumps ahead (or back): all else is that much older (or newer)."""
        self.pass_time(seconds)
        self.skew -= seconds
        # Debian's archive ends its Release files after a week.
        self._valid_until = self.day + self.skew + 7 * DAY if self.skew else None
        self.publish()

    def fill(self, fault: Fault) -> None:
        """Leave nearly nothing of the disk: less than is asked for, or than is written next."""
        left = int(fault.delay * 2_000_000) if fault.moment is Moment.START else 0
        self.resize(shutil.disk_usage(self.places.disk).used + left)

    def resize(self, size: int = DISK_BYTES) -> None:
        """Give the disk another size; somebody else's files would do the same more slowly.

        What is written meanwhile may need more: it gets as little as it can be given.
        """
        while size != self.size:
            try:
                mount("none", self.places.disk, "tmpfs", MS_REMOUNT, f"size={size},mode=0755")
                self.size = size
            except OSError as error:
                if error.errno != errno.EINVAL or size >= DISK_BYTES:
                    raise
                size += STEP_BYTES


def age_journal(journal: Path, seconds: float) -> None:
    """Make the times of a journal older."""
    if not journal.exists():
        return
    lines = []
    for line in journal.read_text().splitlines():
        event = json.loads(line)
        moment = datetime.fromisoformat(event["time"]) - timedelta(seconds=seconds)
        lines.append(json.dumps({**event, "time": moment.isoformat()}))
    new = journal.with_name(".journal.aged")
    new.write_text("".join(f"{line}\n" for line in lines))
    new.chmod(0o644)
    new.replace(journal)
