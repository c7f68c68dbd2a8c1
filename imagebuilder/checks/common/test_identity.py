# SPDX-License-Identifier: Apache-2.0
"""Nothing in an image names one machine.  Secrets are for the proof to find."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.checks.walk import walk

# What a node makes for itself, or is given; see "Safely Building Images" of systemd.
IDENTITY = (
    "/etc/hostname", "/etc/machine-info", "/var/lib/dbus/machine-id",
    "/var/lib/systemd/random-seed", "/var/lib/systemd/credential.secret",
    "/boot/loader/random-seed", "/boot/efi/loader/random-seed", "/loader/random-seed",
)  # fmt: skip
LEASES = ("/var/lib/dhcp", "/var/lib/dhcpcd", "/var/lib/NetworkManager")


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
