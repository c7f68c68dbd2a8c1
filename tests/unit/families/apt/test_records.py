# SPDX-License-Identifier: Apache-2.0
"""Records of a vendor's packages that are strange, or equal to another archive's but for bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.errors import WorkError
from imagebuilder.files import read_text
from imagebuilder.lock.types import Lock
from imagebuilder.recipe.types import Source
from tests.fixtures.aptrepo import Deb, SigningKey, make_archive, served, sign_release
from tests.unit.lock.world import DATE, World, overlay

pytestmark = pytest.mark.slow

TOOL, NEEDS = Deb("tool", "5"), Deb("needs-tool", "5", depends="tool")
OTHER_HELLO = Deb("hello", "1.0", depends="libhello (>= 1.0)", files={"/other": "bytes"})


@pytest.fixture
def lock_from(
    world: World, keys: tuple[SigningKey, SigningKey], tmp_path: Path
) -> Callable[..., Lock]:
    """Locks packages from a vendor whose records are changed, and its Release file too."""

    def lock(
        *names: str,
        debs: tuple[Deb, ...] = (TOOL, NEEDS),
        record: tuple[str, str] = ("", ""),
        release: tuple[str, str] = ("", ""),
        priority: int = 500,
        previous: Lock | None = None,
    ) -> Lock:
        vendor = tmp_path / "vendor"
        make_archive(vendor, debs, keys[1], suite="v", origin="Vendor", date=DATE)
        dists = vendor / "dists/v"
        index, signed = dists / "main/binary-amd64/Packages", dists / "Release"
        index.write_text(read_text(index).replace(*record))
        head = read_text(signed).partition("SHA256:")[0].replace(*release)
        content = index.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        signed.write_text(f"{head}SHA256:\n {digest} {len(content)} main/binary-amd64/Packages\n")
        sign_release(dists, keys[1])
        with served(vendor) as server:
            source = Source(
                "vendor", ("v",), ("main",), keys[1].certificate, uri=server.uri,
                fingerprints=(keys[1].fingerprint,), pin_priority=priority,
            )  # fmt: skip
            extra = replace(overlay("o", *names), sources=(source,))
            return world.lock(world.recipe(extra), previous)

    return lock


@pytest.mark.parametrize("name", ["to'ol", "to' 'ol", "to ol", "t\u2028ool", "t\x85ool", "t%27ool"])
def test_no_package_is_missing_because_of_the_name_of_its_file(
    lock_from: Callable[..., Lock], name: str
) -> None:
    """The bug: with a quote in its path, a package was silently left out of the lock."""
    lock = lock_from("needs-tool", record=("pool/tool_", f"pool/{name}_"))
    paths = {package.name: package.path for package in lock.layer("o").packages}
    assert paths == {
        "needs-tool": "pool/needs-tool_5_all.deb",
        "tool": f"pool/{name}_5_all.deb",
    }


@pytest.mark.parametrize(
    ("record", "release"),
    [
        (("pool/tool_", "pool/\x01tool_"), ("", "")),
        (("Version: 5", "Version: 5/../6"), ("", "")),
        (("Size: ", "Size: -"), ("", "")),
        (("", ""), ("Suite: v", "Suite: v\x1b[31m")),
        (("", ""), ("Codename: v", "Codename: v\x07")),
    ],
)
def test_what_no_lock_may_contain_is_refused_before_it_is_written(
    lock_from: Callable[..., Lock], record: tuple[str, str], release: tuple[str, str]
) -> None:
    """The bug: the lock was written, and no command could read it; or a traceback."""
    with pytest.raises(WorkError, match=r"which no lock may contain|cannot be locked"):
        lock_from("tool", record=record, release=release)


def test_the_same_version_with_other_bytes_is_the_file_that_apt_chose(
    lock_from: Callable[..., Lock], world: World
) -> None:
    lock = lock_from("hello", debs=(OTHER_HELLO,), priority=1001)
    (hello,) = (package for package in lock.packages if package.name == "hello")
    theirs, ours = (
        hashlib.sha256((folder / hello.path).read_bytes()).hexdigest()
        for folder in (world.folder.parent / "vendor", world.folder)
    )
    assert theirs != ours
    assert (hello.source, hello.sha256) == ("vendor", theirs)


def test_a_vendor_that_begins_to_replace_the_distributions_packages_is_told(
    lock_from: Callable[..., Lock], world: World
) -> None:
    first = lock_from("hello", "tool")
    assert not [note for note in world.notes if "replaces" in note]
    later = (TOOL, Deb("libhello", "9.0"))
    second = lock_from("hello", "tool", debs=later, previous=first)
    (told,) = (note for note in world.notes if "replaces" in note)
    assert told.startswith(
        "note: source vendor replaces 1 package of the distribution: libhello 9.0; "
    )
    world.notes.clear()
    lock_from("hello", "tool", debs=later, previous=second)
    assert not [note for note in world.notes if "replaces" in note]
