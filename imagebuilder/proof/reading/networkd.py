# SPDX-License-Identifier: Apache-2.0
"""Files of networkd and udev for NICs: which count (systemd.network(5), systemd.link(5))."""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Mapping

from imagebuilder.proof.reading.config import assignments, config_files, config_folders
from imagebuilder.root import Root

FOLDERS = config_folders("systemd/network")
# What the initrd leaves in /run: the file that its systemd-network-generator makes from ip=, and
# the drop-in of overlays/netboot, keep-network.sh.
BOOT = "/run/systemd/network/71-default.network"
INITRD = {
    BOOT: "[Match]\nKind=!*\nType=!loopback\n[Network]\nDHCP=yes\n",
    f"{BOOT}.d/50-imagebuilder.conf": "[Network]\nKeepConfiguration=yes\n"
    "[DHCPv4]\nClientIdentifier=mac\n",
}
NICS = ("enp1s0", "eno1", "ens1", "eth0")
# What is known of the NIC, by key of [Match]; it has no kind, and a driver and path of its node.
KNOWN = {
    "Name": NICS,
    "OriginalName": NICS,
    "Type": ("ether",),
    "Kind": (),
    "Driver": ("that-of-its-node",),
    "Path": ("pci-that-of-its-node",),
    "Architecture": ("x86-64",),
    "Virtualization": ("no",),
}
NETWORKD, RESOLVED = "systemd-networkd.service", "systemd-resolved.service"
Sections = Mapping[str, Mapping[str, str]]


def names_in(root: Root, folder: str) -> list[str]:
    """The names in a folder on a node: /run is empty but for what the initrd leaves there."""
    if folder.startswith("/run/"):
        return [posixpath.basename(path) for path in INITRD if posixpath.dirname(path) == folder]
    return root.names(folder)


def text_of(root: Root, path: str) -> str:
    return INITRD.get(path) or root.text(path)


def additions(root: Root, path: str) -> list[str]:
    """The drop-ins of a file, in the order in which they are read."""
    folders = (f"{each}/{posixpath.basename(path)}.d" for each in FOLDERS)
    return config_files(root, folders, ".conf", names_in)


def setter(root: Root, path: str, key: str) -> str:
    """The file that sets a key last: the drop-in, or the file itself."""
    for each in reversed(additions(root, path)):
        if any(name == key for _, name, _ in assignments(text_of(root, each))):
            return each
    return path


def network_files(root: Root, ending: str) -> list[str]:
    """The effective files in networkd's order, without masked ones."""
    files = config_files(root, FOLDERS, ending, names_in)
    return [path for path in files if text_of(root, path).strip()]


def read_sections(text: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for section, key, value in assignments(text):
        found.setdefault(section, {})[key] = value
    return found


def matches(sections: Sections, known: Mapping[str, tuple[str, ...]] = KNOWN) -> bool:
    """Whether a file applies to every interface with these values: by default every wired NIC."""
    match = sections.get("Match", {})
    are_known = set(match) <= set(known)
    return bool(match) and are_known and all(fits(text, known[key]) for key, text in match.items())


def fits(text: str, values: tuple[str, ...]) -> bool:
    """Whether patterns match one of some values (net_condition_test_strv() of systemd).

    A `!` before the first of them inverts all.
    """
    patterns = text.split()
    if text.startswith("!"):
        patterns = [f"!{pattern.lstrip('!')}" for pattern in patterns]
    excluded = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")]
    left = [v for v in values if not any(fnmatch.fnmatchcase(v, each) for each in excluded)]
    if wanted:
        return any(fnmatch.fnmatchcase(value, each) for value in left for each in wanted)
    return bool(left) or not values
