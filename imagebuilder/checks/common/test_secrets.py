# SPDX-License-Identifier: Apache-2.0
"""Whoever can boot an image can read it: no secret is in it, and nothing that names one machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from imagebuilder.checks.facts import Facts
from imagebuilder.checks.leftover import KINDS, Secret, find_leftovers
from imagebuilder.checks.walk import walk

MOST_PATHS = 5
# What a node makes for itself, or is given; see "Safely Building Images" of systemd.
IDENTITY = (
    "/etc/hostname", "/etc/machine-info", "/var/lib/dbus/machine-id",
    "/var/lib/systemd/random-seed", "/var/lib/systemd/credential.secret",
    "/boot/loader/random-seed", "/boot/efi/loader/random-seed", "/loader/random-seed",
)  # fmt: skip
LEASES = ("/var/lib/dhcp", "/var/lib/dhcpcd", "/var/lib/NetworkManager")
SECRET_WORDS = ("password", "passwd", "secret", "token", "credential")


@pytest.fixture(scope="session")
def leftovers(tree: Path) -> Mapping[str, tuple[str, ...]]:
    """Every secret in the root, by kind."""
    return find_leftovers(tree)


@pytest.mark.static
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name.replace(" ", "-"))
def test_no_secret_is_in_the_image(kind: Secret, leftovers: Mapping[str, tuple[str, ...]]) -> None:
    paths = leftovers.get(kind.name, ())
    shown = ", ".join(paths[:MOST_PATHS])
    more = f" and {len(paths) - MOST_PATHS} more" if len(paths) > MOST_PATHS else ""
    if paths:
        pytest.fail(f"{kind.name} in the image: {shown}{more}\n{kind.todo}")


@pytest.mark.static
def test_machine_id_is_empty(tree: Path) -> None:
    file = tree / "etc/machine-id"
    said = file.read_text().strip() if file.is_file() and not file.is_symlink() else "missing"
    if said:
        pytest.fail(
            f"/etc/machine-id is {said}: it must be an empty file, or all nodes are one machine"
        )


@pytest.mark.static
def test_nothing_names_one_machine(tree: Path) -> None:
    there = [path for path in IDENTITY if is_own_file(tree, path)]
    there += [file.path for place in LEASES for file in walk(tree, place) if "lease" in file.path]
    if there:
        pytest.fail(f"{', '.join(there)}: a node gets or makes its own, an image has none")


def is_own_file(tree: Path, path: str) -> bool:
    """Whether there is a file in the image itself; a link to the node's own does not count."""
    place = Path(f"{tree}{path}")
    return place.is_file() and not place.is_symlink()


@pytest.mark.static
def test_command_line_has_no_secret(facts: Facts) -> None:
    keys = [word.partition("=")[0] for word in facts.image.boot.cmdline if "=" in word]
    found = [name for name in keys if any(secret in name.lower() for secret in SECRET_WORDS)]
    if found:
        names = ", ".join(found)
        pytest.fail(f"{names} on the kernel command line, which every user of a node sees")
