# SPDX-License-Identifier: Apache-2.0
"""Nothing in an image identifies a machine.  The proof finds secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.checks.traversal import walk
from imagebuilder.root import Root

# Files that each node creates or gets; see "Safely Building Images" of systemd.
IDENTITY = (
    "/etc/hostname", "/etc/machine-info", "/var/lib/dbus/machine-id",
    "/var/lib/systemd/random-seed", "/var/lib/systemd/credential.secret",
    "/boot/loader/random-seed", "/boot/efi/loader/random-seed", "/loader/random-seed",
)  # fmt: skip
LEASES = ("/var/lib/dhcp", "/var/lib/dhcpcd", "/var/lib/NetworkManager")


@pytest.mark.static
def test_machine_id_is_empty(tree: Path) -> None:
    root, file = Root(tree), "/etc/machine-id"
    is_file = root.is_file(file) and not root.link_at(file)
    value = root.text(file).strip() if is_file else "missing"
    if value:
        pytest.fail(
            f"/etc/machine-id is {value}: it must be an empty file, or all nodes share one id"
        )


@pytest.mark.static
def test_nothing_names_one_machine(tree: Path) -> None:
    found = [path for path in IDENTITY if is_file_of_image(tree, path)]
    found += [file.path for place in LEASES for file in walk(tree, place) if "lease" in file.path]
    if found:
        pytest.fail(f"{', '.join(found)}: each node has its own, so an image must not contain it")


def is_file_of_image(tree: Path, path: str) -> bool:
    """Whether the file is in the image itself; a link to the node's own does not count."""
    place = Path(f"{tree}{path}")
    return place.is_file() and not place.is_symlink()
