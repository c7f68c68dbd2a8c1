# SPDX-License-Identifier: Apache-2.0
"""A signed distribution of two components, and a vendor's repository, each test with its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from imagebuilder.families.rpm.mirrors import repositories_of
from imagebuilder.families.rpm.repository import Repository
from imagebuilder.recipe.types import Source
from tests.fixtures.aptrepo import (
    WITHOUT_PROXY,
    ArchiveServer,
    SigningKey,
    keyring,
    make_key,
    served,
)
from tests.fixtures.rpm_repository import DATE, Rpm, armoured, index_repository, make_repository

BASE = (Rpm("bash", "5.1", "9.el9"), Rpm("glibc", files={"/usr/share/doc/glibc/README": "text"}))
APPS = (Rpm("nginx", "1.26", files={"/usr/share/nginx/page": "0123456789" * 40000}),)
TOOLS = (Rpm("tool", epoch=1),)
PLACES = {"BaseOS": "9/BaseOS/x86_64/os", "AppStream": "9/AppStream/x86_64/os", "": "vendor"}


@pytest.fixture(autouse=True)
def _loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy for the loopback."""
    for name, value in WITHOUT_PROXY.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def rpm_keys() -> Iterator[tuple[SigningKey, SigningKey, SigningKey]]:
    """The distribution's key, a vendor's, and a stranger's."""
    with keyring() as home:
        yield make_key(home, "Rocky"), make_key(home, "Vendor"), make_key(home, "Stranger")


@dataclass
class RpmSite:
    """A folder of repositories, its server, keys, and where fetches keep their things."""

    folder: Path
    server: ArchiveServer
    keys: tuple[SigningKey, SigningKey, SigningKey]
    cache: Path
    keyring: Path
    vendor_key: Path
    notes: list[str] = field(default_factory=list)

    @property
    def rocky(self) -> Source:
        return Source("rocky", ("9",), ("BaseOS", "AppStream"), self.keyring, mirror="rocky")

    @property
    def vendor(self) -> Source:
        pins = (self.keys[1].fingerprint,)
        uri = f"{self.server.uri}/vendor"
        return Source("tools", ("/",), (), self.vendor_key, uri=uri, fingerprints=pins)

    @property
    def mirrors(self) -> dict[str, str]:
        return {"rocky": self.server.uri}

    def repositories(self, *sources: Source) -> tuple[Repository, ...]:
        return repositories_of(sources or (self.rocky, self.vendor), self.mirrors, "amd64")

    def place(self, component: str) -> Path:
        return self.folder / PLACES[component]

    def again(self, component: str, date: int, modules: str = "", *options: str) -> None:
        """Make the indexes of a component again."""
        key = self.keys[0] if component else self.keys[1]
        shutil.rmtree(self.place(component) / "repodata")
        index_repository(self.place(component), key, date, modules, options)

    def index_path(self, component: str, kind: str) -> str:
        """The path of an index below the server."""
        (found,) = (self.place(component) / "repodata").glob(f"*-{kind}.*")
        return f"{found.relative_to(self.folder)}"


@pytest.fixture(scope="session")
def rpm_template(
    rpm_keys: tuple[SigningKey, SigningKey, SigningKey],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    folder = tmp_path_factory.mktemp("rpms")
    for name, rpms, key in (
        ("BaseOS", BASE, rpm_keys[0]),
        ("AppStream", APPS, rpm_keys[0]),
        ("", TOOLS, rpm_keys[1]),
    ):
        make_repository(folder / PLACES[name], rpms, key, date=DATE)
    return folder


@pytest.fixture
def site(
    rpm_keys: tuple[SigningKey, SigningKey, SigningKey], rpm_template: Path, tmp_path: Path
) -> Iterator[RpmSite]:
    folder = tmp_path / "site"
    shutil.copytree(rpm_template, folder)
    armour = tmp_path / "RPM-GPG-KEY-Rocky-9"
    armour.write_bytes(armoured(rpm_keys[0]))
    with served(folder) as server:
        yield RpmSite(folder, server, rpm_keys, tmp_path / "cache", armour, rpm_keys[1].certificate)
