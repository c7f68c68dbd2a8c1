# SPDX-License-Identifier: Apache-2.0
"""Ubuntu's bases as they are shipped, built from small archives of that layout, and its faults."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.image.types import read_image
from imagebuilder.store.repository import Store
from tests.fixtures.aptrepo import SigningKey, keyring, make_key
from tests.fixtures.ubuntu import (
    DRACUT_IN,
    FIRMWARE,
    RELEASES,
    SUITES,
    make_pockets,
    make_project,
    make_ubuntu,
    without,
)
from tests.workshop import Workshop


@pytest.fixture(scope="module")
def keys() -> Iterator[tuple[SigningKey, SigningKey]]:
    """The archives' key, and a stranger's."""
    with keyring() as home:
        yield make_key(home, "Archive"), make_key(home, "Stranger")


@pytest.fixture(scope="module")
def noble(keys: tuple[SigningKey, SigningKey], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of noble, to be copied and broken."""
    folder = tmp_path_factory.mktemp("noble")
    make_ubuntu(folder, "noble", make_pockets("noble"), keys[0])
    return folder


def make_shop(top: Path, archive: Path, key: SigningKey) -> Workshop:
    """A workshop on an archive."""
    make_project(top, archive, key.certificate)
    return Workshop(top / "project", top / "state", top / "site.yaml", top / "cache")


@pytest.mark.root
@pytest.mark.parametrize("suite", SUITES)
def test_a_shipped_base_builds_from_an_archive_of_that_layout(
    suite: str, keys: tuple[SigningKey, SigningKey], tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    make_ubuntu(archive, suite, make_pockets(suite), keys[0])
    shop = make_shop(tmp_path, archive, keys[0])
    profile = f"tiny.ubuntu-{suite}"
    done = shop("build", "tiny", "--base", f"ubuntu-{suite}", check=False)
    assert f"using profile {profile}\n" in done.stderr
    assert f"note: source ubuntu:{suite} is not the vendor's: an archive of the tests" in (
        done.stderr
    )  # fmt: skip

    # 1. The lock tells the pockets apart.
    lock = json.loads((shop.project / f"recipes/locks/{profile}.lock").read_text())
    origins = {source["suite"]: source["origin"] for source in lock["sources"]}
    assert origins == {
        suite: "ubuntu",
        f"{suite}-updates": "ubuntu",
        f"{suite}-security": "ubuntu-security",
    }
    packages = {p["name"]: p for layer in lock["layers"] for p in layer["packages"]}
    assert packages["kmod"]["version"] == "1.1"
    assert packages["udev"]["version"] == "1.2"
    assert packages["udev"]["source"] == f"ubuntu-security:{suite}-security"

    # 2. So does the image: the layers are there, with the kernel and the names of this suite.
    store = Store(shop.state / "store")
    image = store.image(profile)
    made = read_image(store, image)
    assert made.kernel.release == RELEASES[suite]
    names = [package.name for package in made.packages]
    assert {FIRMWARE[suite], "only-universe"} <= set(names)
    assert ("systemd-resolved" in names) == (suite != "jammy")


def broken(noble: Path, tmp_path: Path) -> Path:
    """A copy of the archive."""
    return Path(shutil.copytree(noble, tmp_path / "archive"))


def said(shop: Workshop, status: int) -> str:
    """What `lock` says."""
    done = shop("lock", "tiny.ubuntu-noble", check=False)
    assert done.status == status, done.stderr
    return done.stderr


def test_an_archive_that_somebody_else_signs(
    noble: Path, keys: tuple[SigningKey, SigningKey], tmp_path: Path
) -> None:
    told = said(make_shop(tmp_path, noble, keys[1]), 1)
    assert "noble" in told
    assert "NO_PUBKEY" in told or "not signed" in told or "verif" in told


def test_an_archive_without_a_pocket(
    noble: Path, keys: tuple[SigningKey, SigningKey], tmp_path: Path
) -> None:
    archive = broken(noble, tmp_path)
    shutil.rmtree(archive / "dists/noble-security")
    told = said(make_shop(tmp_path, archive, keys[0]), 2)
    assert "source ubuntu-security:noble-security: the mirror does not have this suite" in told


def test_an_archive_without_a_component(
    noble: Path, keys: tuple[SigningKey, SigningKey], tmp_path: Path
) -> None:
    archive = broken(noble, tmp_path)
    pockets = make_pockets("noble")
    release = {name: debs for name, debs in pockets.release.items() if name != "universe"}
    make_ubuntu(archive, "noble", replace(pockets, release=release), keys[0])
    told = said(make_shop(tmp_path, archive, keys[0]), 2)
    assert "noble InRelease' doesn't have the component 'universe'" in told


def test_a_base_without_universe(
    noble: Path, keys: tuple[SigningKey, SigningKey], tmp_path: Path
) -> None:
    assert DRACUT_IN["noble"] == "universe"
    shop = make_shop(tmp_path, noble, keys[0])
    base = shop.project / "recipes/bases/ubuntu-noble.yaml"
    base.write_text(base.read_text().replace(", universe]", "]"))
    told = said(shop, 2)
    assert "the base: no source has a package named dracut" in told
    assert "overlays/a/overlay.yaml:4:5: no source has a package named only-universe" in told


def test_a_name_that_nobody_mapped(
    noble: Path, keys: tuple[SigningKey, SigningKey], tmp_path: Path
) -> None:
    """The error says the line of the overlay and the key to write."""
    shop = make_shop(tmp_path, noble, keys[0])
    overlay = shop.project / "overlays/a/overlay.yaml"
    overlay.write_text(overlay.read_text().partition("package-names:")[0])
    told = said(shop, 2)
    assert "overlays/a/overlay.yaml:3:5: no source has a package named firmware-realtek" in told
    mapping = "map its name in the overlay: package-names: {noble: {firmware-realtek: NAME}}"
    assert mapping in told


def test_a_mapped_name_that_is_gone(
    noble: Path, keys: tuple[SigningKey, SigningKey], tmp_path: Path
) -> None:
    archive = broken(noble, tmp_path)
    make_ubuntu(archive, "noble", without(make_pockets("noble"), "linux-firmware"), keys[0])
    told = said(make_shop(tmp_path, archive, keys[0]), 2)
    assert "overlays/a/overlay.yaml:6:30: no source has a package named linux-firmware" in told


def test_a_host_without_ubuntus_keyring(noble: Path, tmp_path: Path) -> None:
    key = SigningKey(tmp_path, "", tmp_path / "nowhere/ubuntu-archive-keyring.gpg")
    told = said(make_shop(tmp_path, noble, key), 3)
    assert "this host does not have the keyring /" in told
    assert "/ubuntu-archive-keyring.gpg" in told
    assert "hint: apt install ubuntu-keyring" in told
