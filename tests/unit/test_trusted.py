# SPDX-License-Identifier: Apache-2.0
"""No file is written where another user decides what a path leads to."""

from __future__ import annotations

import os
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from imagebuilder.errors import HostError
from imagebuilder.files import make_folder
from imagebuilder.process import run
from imagebuilder.rights import check_roots_alone
from imagebuilder.settings import Settings, load_settings
from imagebuilder.trusted import Trusted
from tests.workshop import CHECKOUT

EVE = 4321
pytestmark = pytest.mark.root


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder of root that every user may enter."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="imagebuilder-test-") as name:
        Path(name).chmod(0o755)
        (Path(name) / "project/recipes").mkdir(parents=True)
        yield Path(name)


def owned(path: Path, uid: int = EVE) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    os.chown(path, uid, uid)
    return path


def settings(place: Path, state: Path, **env: str) -> Settings:
    return load_settings({"HOME": "/root", **env}, project=place / "project", state=state)


def test_a_state_of_another_user_is_refused_before_anything_is_written(place: Path) -> None:
    state = owned(place / "eve/state")
    (state / "locks").symlink_to(place / "target")
    (place / "target").mkdir()
    with pytest.raises(HostError, match=r"is a folder that user 4321 can change"):
        settings(place, state)
    assert not list((place / "target").iterdir())


def test_a_state_below_a_folder_of_another_user_is_refused(place: Path) -> None:
    owned(place / "eve")
    (place / "eve/state").mkdir()
    with pytest.raises(HostError, match="is a folder that user 4321"):
        settings(place, place / "eve/state")
    with pytest.raises(HostError, match="is a folder that user 4321"):
        settings(place, place / "eve/not/there/yet")


@pytest.mark.parametrize("name", ["locks", "store", "nightly"])
def test_a_folder_or_link_of_another_user_in_the_state_is_refused(place: Path, name: str) -> None:
    (place / "state").mkdir()
    planted = place / "state" / name
    owned(planted)
    with pytest.raises(HostError, match=f"state/{name}: is a folder that user 4321"):
        settings(place, place / "state")
    planted.rmdir()
    planted.symlink_to("/etc")
    os.chown(planted, EVE, EVE, follow_symlinks=False)
    with pytest.raises(HostError, match=f"state/{name}: is a link to /etc that user 4321"):
        settings(place, place / "state")


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_state_that_every_user_can_change_is_refused(place: Path, mode: int) -> None:
    (place / "state").mkdir()
    (place / "state").chmod(mode)
    with pytest.raises(HostError, match="every user can change what is in this folder"):
        settings(place, place / "state")


def test_a_link_of_ours_is_followed_and_its_target_checked(place: Path) -> None:
    (place / "state").mkdir()
    (place / "disk").mkdir()
    (place / "state/layers").symlink_to("../disk")
    assert settings(place, place / "state")
    owned(place / "disk")
    with pytest.raises(HostError, match="disk: is a folder that user 4321"):
        settings(place, place / "state")


def test_the_cache_is_checked_too(place: Path) -> None:
    owned(place / "eve/cache")
    with pytest.raises(HostError, match="with IMAGEBUILDER_CACHE, name a folder"):
        settings(place, place / "state", IMAGEBUILDER_CACHE=f"{place}/eve/cache")


def test_the_state_may_belong_to_the_caller_of_sudo_or_to_the_owner_of_the_project(
    place: Path,
) -> None:
    state = owned(place / "eve/state")
    owned(place / "eve")
    owned(state / "locks")
    assert settings(place, state, SUDO_UID=str(EVE), SUDO_GID=str(EVE))
    owned(place / "project")
    assert settings(place, state)


def test_a_state_in_a_sticky_folder_may_be_made(place: Path) -> None:
    (place / "tmp").mkdir()
    (place / "tmp").chmod(0o1777)
    assert settings(place, place / "tmp/state")
    (place / "tmp/state").mkdir()
    assert settings(place, place / "tmp/state")
    owned(place / "tmp/state")
    with pytest.raises(HostError, match="is a folder that user 4321"):
        settings(place, place / "tmp/state")


def test_a_state_below_a_project_that_was_named_needs_nothing_of_the_folders_above(
    place: Path,
) -> None:
    # As GitLab's runner makes them, with the umask 0.
    (place / "project").chmod(0o777)
    place.chmod(0o777)
    assert settings(place, place / "project/.state")


def test_a_group_may_write_if_no_other_user_is_in_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import grp

    state = place / "state"
    state.mkdir()
    os.chown(state, 0, 777)
    state.chmod(0o2775)

    def group(members: list[str]) -> grp.struct_group:
        return grp.struct_group(("ops", "x", 777, members))

    monkeypatch.setattr("imagebuilder.trusted.grp.getgrgid", lambda _: group(["root"]))
    assert settings(place, state)
    monkeypatch.setattr("imagebuilder.trusted.grp.getgrgid", lambda _: group(["daemon"]))
    with pytest.raises(HostError, match="group ops, to which daemon belongs, can change"):
        settings(place, state)


def set_acl(path: Path, name: str, *entries: tuple[int, int, int], mask: int = 7) -> None:
    """Give a folder an ACL with these entries: tag, permissions, id."""
    none = 0xFFFFFFFF
    rows = [(1, 7, none), *entries, (4, 5, none), (0x10, mask, none), (0x20, 5, none)]
    value = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *row) for row in sorted(rows))
    os.setxattr(path, f"system.posix_acl_{name}", value)


@pytest.mark.parametrize("name", ["access", "default"])
@pytest.mark.parametrize("tag", [2, 8])
@pytest.mark.parametrize("folder", ["srv", "srv/state", "srv/state/layers"])
def test_a_state_that_an_acl_lets_another_user_change_is_refused(
    place: Path, name: str, tag: int, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import grp

    ops = grp.struct_group(("ops", "x", EVE, ["daemon"]))
    monkeypatch.setattr("imagebuilder.trusted.grp.getgrgid", lambda _: ops)
    (place / folder).mkdir(parents=True)
    set_acl(place / folder, name, (tag, 7, EVE))
    who = "user 4321" if tag == 2 else "group ops, to which daemon belongs,"
    made = "is in" if name == "access" else "is made in"
    with pytest.raises(HostError, match=f"by its ACL, {who} can change what {made} this folder"):
        settings(place, place / "srv/state")
    with pytest.raises(HostError, match="users other than root may"):
        check_roots_alone(place / folder)


@pytest.mark.parametrize("name", ["access", "default"])
def test_an_acl_that_lets_others_only_read_is_fine(place: Path, name: str) -> None:
    state = place / "state"
    state.mkdir()
    set_acl(state, name, (2, 5, EVE))
    assert settings(place, state)
    set_acl(state, name, (2, 7, EVE), mask=5)
    assert settings(place, state)
    set_acl(state, name, (2, 7, 0), (8, 7, 0))
    assert settings(place, state)
    # The mode's bit of the group is the mask, and the group itself may only read.
    os.chown(state, 0, EVE)
    assert state.stat().st_mode & 0o20 or name == "default"
    assert settings(place, state)


def test_a_folder_of_the_project_that_another_user_made_a_link_is_refused(place: Path) -> None:
    locks = place / "project/recipes/locks"
    locks.symlink_to(place / "target")
    assert settings(place, place / "state")
    os.chown(locks, EVE, EVE, follow_symlinks=False)
    with pytest.raises(HostError, match="recipes/locks: is a link of user 4321 to"):
        settings(place, place / "state")


def test_users_of_another_namespace_are_trusted_as_far_as_they_cannot_be_told_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "uid_map").write_text("         0       1000          1\n")
    monkeypatch.setattr("imagebuilder.trusted.UID_MAP", tmp_path / "uid_map")
    assert Trusted.of([0], tmp_path).users == {0, 65534, 2**32 - 1}
    (tmp_path / "uid_map").write_text("         0          0 4294967295\n")
    assert Trusted.of([0], tmp_path).users == {0}


def test_a_folder_that_another_user_makes_meanwhile_is_not_taken(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = place / "made"
    mkdir = Path.mkdir

    def too_late(path: Path, mode: int) -> None:
        monkeypatch.setattr(Path, "mkdir", mkdir)
        owned(place / "elsewhere")
        made.symlink_to("elsewhere")
        path.mkdir(mode)

    monkeypatch.setattr(Path, "mkdir", too_late)
    with pytest.raises(FileExistsError):
        make_folder(made)


def test_lock_build_and_images_end_before_they_write(place: Path) -> None:
    """The commands themselves, with links of eve in her state."""
    state = owned(place / "eve/state")
    target = place / "target"
    target.mkdir()
    for name in ("locks", "store", "work", "logs", "nightly"):
        (state / name).symlink_to(target)
    options = ["--state", os.fspath(state), "--project", os.fspath(CHECKOUT)]
    for words in (["build", "minimal"], ["images"], ["gc"], ["plan", "minimal"]):
        done = run([sys.executable, "-m", "imagebuilder.cli.main", *words, *options], check=False)
        assert done.status == 3
        assert "user 4321 can change" in done.stderr
    assert not list(target.iterdir())
