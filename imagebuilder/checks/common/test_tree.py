# SPDX-License-Identifier: Apache-2.0
"""The root can be served to any node, and contains what was declared."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from imagebuilder.checks.facts import Facts
from imagebuilder.checks.traversal import Found, walk
from imagebuilder.phrases import list_first
from imagebuilder.root import Root

MERGED = ("bin", "sbin", "lib", "lib64")
UNITS = ("etc/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system")
WANTS = (".wants", ".requires", ".upholds")
CAPABILITIES = "security.capability"
LISTS = ("system.posix_acl_access", "system.posix_acl_default")
# NFS does not carry file capabilities.  ping(8) works without, by net.ipv4.ping_group_range.
DO_WITHOUT = {"/usr/bin/ping": "net.ipv4.ping_group_range"}
MOST = 5


def fail_with(found: Sequence[str], what: str) -> None:
    """Fail if anything was found, and show the first few."""
    if found:
        pytest.fail(f"{what}: {list_first(found, MOST)}")


@pytest.fixture(scope="session")
def everything(tree: Path) -> tuple[Found, ...]:
    return tuple(walk(tree))


@pytest.mark.static
def test_only_files_folders_and_links(everything: tuple[Found, ...]) -> None:
    found = [
        f.path for f in everything if not (f.is_file or f.is_link or stat.S_ISDIR(f.mode))
    ]  # fmt: skip
    fail_with(found, "sockets, FIFOs and devices must not be shipped; programs create them")


@pytest.mark.static
def test_usr_is_merged(tree: Path) -> None:
    found = [f"/{n}" for n in MERGED if (tree / n).is_dir() and not (tree / n).is_symlink()]
    fail_with(found, "must be a link into /usr; move the overlay's files below /usr")


@pytest.mark.static
def test_nothing_is_for_all_to_write(everything: tuple[Found, ...]) -> None:
    found = [f.path for f in everything if f.mode & stat.S_IWOTH and not f.is_link]
    sticky = {f.path for f in everything if stat.S_ISDIR(f.mode) and f.mode & stat.S_ISVTX}
    fail_with([path for path in found if path not in sticky], "every user of a node may change")


@pytest.mark.static
def test_every_owner_has_a_name(tree: Path, everything: tuple[Found, ...]) -> None:
    users, groups = ids(tree, "/etc/passwd"), ids(tree, "/etc/group")
    found = [
        f"{f.path} ({f.info.st_uid}:{f.info.st_gid})"
        for f in everything
        if f.info.st_uid not in users or f.info.st_gid not in groups
    ]
    fail_with(found, "the owner or group does not exist in the image")


def ids(tree: Path, name: str) -> set[int]:
    """The numbers in passwd(5) or group(5)."""
    return {int(fields[2]) for _, fields in rows(tree, name) if "".join(fields[2:3]).isdecimal()}


@pytest.mark.static
def test_enabled_units_exist(tree: Path) -> None:
    there = {name for place in UNITS for name in listed(tree / place)}
    found = [
        f"{link.path} ({unit_of(link.path)})"
        for place in UNITS
        for link in walk(tree, f"/{place}")
        if link.is_link and Path(link.path).parent.suffix in WANTS
        if not {Path(link.path).name, unit_of(link.path)} & there
    ]
    fail_with(found, "enabled, but the unit does not exist")


@pytest.mark.static
def test_declared_units_are_enabled_or_masked(tree: Path, facts: Facts) -> None:
    wanted = {
        Path(link.path).name
        for place in UNITS
        for link in walk(tree, f"/{place}")
        if link.is_link and Path(link.path).parent.suffix in WANTS
    }
    found = []
    for unit, verb in facts.image.units.items():
        masked = is_masked(tree, unit)
        if verb == "enable" and (masked or unit not in wanted):
            found.append(f"{unit} is {'masked' if masked else 'not enabled'}")
        elif verb == "mask" and not masked:
            found.append(f"{unit} is not masked")
    fail_with(found, "not as an overlay declares it")


def is_masked(tree: Path, unit: str) -> bool:
    """Whether a unit is a link to nowhere (systemctl(1), mask)."""
    path = tree / "etc/systemd/system" / unit
    return path.is_symlink() and os.fspath(path.readlink()) == os.devnull


def listed(folder: Path) -> list[str]:
    """The names in a folder; empty if it does not exist."""
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


def unit_of(path: str) -> str:
    """The unit file of an enabled unit: foo@.service for foo@bar.service."""
    name, _, suffix = Path(path).name.rpartition(".")
    return f"{name.partition('@')[0]}@.{suffix}" if "@" in name else f"{name}.{suffix}"


@pytest.mark.static
def test_declared_groups_and_users_are_there(tree: Path, facts: Facts) -> None:
    groups = dict(rows(tree, "/etc/group"))
    users = dict(rows(tree, "/etc/passwd"))
    found = [f"the group {name}" for name in facts.image.groups if name not in groups]
    for user in facts.image.users:
        if user.name not in users:
            found.append(f"the user {user.name}")
            continue
        if user.uid is not None and users[user.name][2:3] != [str(user.uid)]:
            found.append(f"{user.name} with uid {user.uid} (it has {':'.join(users[user.name])})")
        found.extend(
            f"{user.name} in the group {name}"
            for name in user.groups
            if user.name not in [*groups.get(name, ()), *[""] * 4][3].split(",")
        )
    fail_with(found, "declared, but not in the root")


def rows(tree: Path, name: str) -> Iterator[tuple[str, list[str]]]:
    """The lines of passwd(5) or group(5) by name."""
    for line in Root(tree).text(name).splitlines():
        yield line.partition(":")[0], line.split(":")


@pytest.mark.static
def test_nothing_needs_file_capabilities(
    tree: Path, facts: Facts, everything: tuple[Found, ...]
) -> None:
    if facts.image.boot.root != "nfs":
        pytest.skip("nodes of this profile boot a packed root, which keeps them")
    text = "\n".join(map(Root(tree).text, sysctl_files(tree)))
    found = [
        file.path
        for file in everything
        if file.is_file and file.mode & 0o111
        if file.path in DO_WITHOUT or CAPABILITIES in attributes(tree, file)
        if DO_WITHOUT.get(file.path, "\0") not in text
    ]
    fail_with(found, "needs file capabilities, which NFS does not carry")


def sysctl_files(tree: Path) -> list[str]:
    root = Root(tree)
    places = ("/etc/sysctl.d", "/usr/lib/sysctl.d")
    found = [path for place in places for path in root.glob(f"{place}/*.conf")]
    return [path for path in found if not root.link_at(path)]


@pytest.mark.static
def test_nothing_has_access_control_lists(
    tree: Path, facts: Facts, everything: tuple[Found, ...]
) -> None:
    if facts.image.boot.root != "nfs":
        pytest.skip("nodes of this profile boot a packed root")
    found = [
        file.path
        for file in everything
        if file.is_file and not attributes(tree, file).isdisjoint(LISTS)
    ]
    fail_with(found, "NFS does not carry access control lists")


def attributes(tree: Path, file: Found) -> set[str]:
    """The names of a file's extended attributes."""
    try:
        return set(os.listxattr(f"{tree}{file.path}", follow_symlinks=False))
    except OSError:
        return set()
