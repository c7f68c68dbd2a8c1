# SPDX-License-Identifier: Apache-2.0
"""A vendor's repository as a person meets it: the program, a project, and a stand-in for NVIDIA's.

The base is a tiny archive, so nothing here is built; what matters is said before that.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from imagebuilder.process import Completed, run
from tests.fixtures.aptrepo import WITHOUT_PROXY, Deb, keyring, make_archive, make_key
from tests.fixtures.vendor import DATE, make_vendor, site_lines
from tests.fixtures.vendor_nvidia import nvidia
from tests.workshop import CHECKOUT, Workshop

BASE = """\
distribution: debian
suite: test
archives:
  - mirror: test
    suites: [test]
    components: [main]
    keyring: {keyring}
kernel: linux-image-test
"""
OVERLAY = """\
description: A driver from a vendor
vars:
  driver: {type: string, default: 580.126.20-1, description: Its version}
sources:
  - name: nvidia
    uri: http://localhost:9/vendor
    suites: ["/"]
    key: keys/vendor.asc
    fingerprints: [02182E60104FCDC26EAE1B8597A5D4CB8793F200]
    pin-packages: [nvidia-*, libnvidia-*, libcuda1, firmware-nvidia-gsp]
    pin-priority: 600
    pin-version: "{{ driver }}"
packages: ["nvidia-driver-cuda={{ driver }}"]
"""
DEBS = (
    Deb("base-files", "14", essential=True),
    Deb("apt", "3.0", depends="base-files"),
    Deb("linux-image-test", "7.2-1"),
)


@dataclass(frozen=True)
class Stand:
    """A project with the profile `p`, and the site files that a person may have."""

    shop: Workshop
    site: str

    def __call__(self, *words: str, site: str) -> Completed:
        """Run the program with that site file."""
        self.shop.site.write_text(site)
        return self.shop(*words, check=False, **WITHOUT_PROXY)


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """The project, the archives and the keys."""
    top = tmp_path_factory.mktemp("vendor")
    with keyring() as home:
        key = make_key(home, "Archive")
        make_archive(top / "base", DEBS, key, date=DATE)
        vendor = nvidia()
        certificate = make_vendor(top / "vendor", vendor, key)
        for path, text in (
            ("bases/b.yaml", BASE.format(keyring=key.certificate)),
            ("p.yaml", "base: b\noverlays: [gpu]\n"),
        ):
            (top / "project/recipes" / path).parent.mkdir(parents=True, exist_ok=True)
            (top / "project/recipes" / path).write_text(text)
        (top / "project/overlays/gpu").mkdir(parents=True)
        (top / "project/overlays/gpu/overlay.yaml").write_text(OVERLAY)
        shop = Workshop(top / "project", top / "state", top / "site.yaml", top / "cache")
        lines = site_lines(vendor, (top / "vendor").as_uri(), certificate, key.fingerprint)
        yield Stand(shop, f"mirrors: {{test: '{(top / 'base').as_uri()}'}}\n{lines}")


def lock_path(stand: Stand) -> Path:
    """Where the lock of the profile is."""
    return stand.shop.project / "recipes/locks/p.lock"


def test_without_key_or_stand_in_the_person_is_told_how_to_get_the_key(stand: Stand) -> None:
    done = stand("lock", "p", site="{}")
    assert done.status == 2
    assert "gpu/overlay.yaml:8:10: sources[0].key: the vendor's key is missing" in done.stderr
    assert '"02182E60104FCDC26EAE1B8597A5D4CB8793F200"' in done.stderr


def test_a_stand_in_is_locked_and_told(stand: Stand) -> None:
    done = stand("lock", "p", site=stand.site)
    assert done.status == 0, done.stderr
    assert "note: source nvidia is not the vendor's: fixture of imagebuilder" in done.stderr
    assert '"instead": "fixture of imagebuilder in the place of NVIDIA CUDA' in (
        lock_path(stand).read_text()
    )  # fmt: skip


@pytest.mark.parametrize("words", [("lock", "p"), ("build", "p")])
def test_a_vendor_that_is_down_is_one_error_before_anything_is_built(
    stand: Stand, words: tuple[str, ...]
) -> None:
    lock_path(stand).unlink(missing_ok=True)
    site = stand.site.replace((stand.shop.site.parent / "vendor").as_uri(), "http://localhost:9")
    done = stand(*words, site=site)
    assert done.status == 3, done.stderr
    assert done.stderr.count("error: ") == 1
    assert "source nvidia: the vendor is not reachable" in done.stderr
    assert not lock_path(stand).exists()
    assert not any((stand.shop.state / "work").glob("*"))


def test_a_key_of_another_fingerprint_is_refused_where_it_is_written(stand: Stand) -> None:
    lines = [
        "    fingerprints: [02182E60104FCDC26EAE1B8597A5D4CB8793F200]" if "fingerprints" in line
        else line
        for line in stand.site.splitlines()
    ]  # fmt: skip
    done = stand("lock", "p", site="\n".join(lines))
    assert done.status == 2
    assert "site.yaml:8:19: sources.nvidia.fingerprints: " in done.stderr
    assert "hint: compare with what its owner publishes" in done.stderr


def test_the_script_makes_what_the_site_file_can_name(stand: Stand, tmp_path: Path) -> None:
    made = tmp_path / "made"
    script = CHECKOUT / "scripts/fixture-repository"
    words = (sys.executable, script, "--version", "575.57.08", "nvidia", made)
    lines = run(words).stdout
    mirrors = stand.site.splitlines()[0]
    done = stand("lock", "p", site=f"{mirrors}\nvars: {{driver: 575.57.08-1}}\n{lines}")
    assert done.status == 0, done.stderr
    assert "575.57.08-1" in lock_path(stand).read_text()
    again = run(words, check=False)
    assert (again.status, again.stderr) == (2, f"{made}: is not empty\n")
    shutil.rmtree(made)
