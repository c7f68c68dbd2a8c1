# SPDX-License-Identifier: Apache-2.0
"""Lock files into git: those, nothing else, and nothing lost where that cannot be."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from imagebuilder.errors import HostError, WorkError
from imagebuilder.nightly.commit import commit_locks, render_message
from imagebuilder.nightly.types import Ending, PackageChange, ProfileNight, Stage
from imagebuilder.process import run

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not here")
SECURE = PackageChange("openssl", "3.5.1-1", "3.5.1-2", security=True, suite="trixie-security")
RX = ProfileNight(
    "rx", Ending.PROMOTED, Stage.PROMOTE, version="2", report="R1",
    changes=(SECURE, PackageChange("less", "1", "2"), PackageChange("new", "", "1")),
)  # fmt: skip
OTHER = ProfileNight("other", Ending.UNCHANGED, Stage.PLAN, version="1")
Git = Callable[..., str]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person without any configuration of git."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture
def house(home: Path, tmp_path: Path) -> Path:
    """A checkout with a lock of `rx`, in a folder of its own below the top."""
    del home
    house = tmp_path / "house"
    (house / "recipes/locks").mkdir(parents=True)
    (house / "recipes/locks/rx.lock").write_text("one\n")
    (house / "README").write_text("read me\n")
    git(house, "init", "--quiet", "--initial-branch=main")
    git(house, "add", ".")
    git(house, "-c", "user.name=P", "-c", "user.email=p@example.org", "commit", "-qm", "first")
    return house


def git(house: Path, *words: str) -> str:
    """What git says."""
    return run(["git", *words], cwd=house).stdout.strip()


def locks(house: Path) -> Path:
    return house / "recipes" / "locks"


def test_only_locks_are_committed(house: Path) -> None:
    (locks(house) / "rx.lock").write_text("two\n")
    (locks(house) / "other.lock").write_text("new\n")
    (locks(house) / "failed.lock").write_text("of a profile that failed\n")
    (house / "README").write_text("half a thought\n")
    (house / "staged").write_text("somebody's\n")
    git(house, "add", "staged")
    commit = commit_locks(locks(house), (RX, OTHER))
    assert git(house, "rev-parse", "HEAD") == commit
    changed = git(house, "show", "--name-only", "--format=%an <%ae>%n%s", commit).splitlines()
    assert changed[0].startswith("imagebuilder nightly <imagebuilder@")
    assert changed[1:] == [
        "locks: Refresh rx, other (1 security)", "",
        "recipes/locks/other.lock", "recipes/locks/rx.lock",
    ]  # fmt: skip
    assert git(house, "status", "--porcelain").splitlines() == [
        "M README", "A  staged", "?? recipes/locks/failed.lock",
    ]  # fmt: skip


def test_who_commits_is_who_git_knows(house: Path) -> None:
    git(house, "config", "user.email", "ann@example.org")
    git(house, "config", "user.name", "Ann")
    (locks(house) / "rx.lock").write_text("two\n")
    commit_locks(locks(house), (RX,))
    assert git(house, "log", "-1", "--format=%an %ae") == "Ann ann@example.org"


def test_without_a_change_there_is_no_commit(house: Path) -> None:
    assert commit_locks(locks(house), (RX,)) == ""
    assert git(house, "rev-list", "--count", "HEAD") == "1"


def test_a_folder_without_git(tmp_path: Path, home: Path) -> None:
    del home
    with pytest.raises(HostError, match="is not in a git checkout"):
        commit_locks(tmp_path, (RX,))


def test_another_staged_state_of_a_lock_stays(house: Path) -> None:
    (locks(house) / "rx.lock").write_text("by hand\n")
    git(house, "add", "recipes/locks/rx.lock")
    (locks(house) / "rx.lock").write_text("two\n")
    with pytest.raises(HostError, match="staged another state"):
        commit_locks(locks(house), (RX,))
    assert git(house, "show", ":recipes/locks/rx.lock") == "by hand"


def test_a_merge_under_way_is_not_disturbed(house: Path) -> None:
    (locks(house) / "rx.lock").write_text("two\n")
    (house / ".git/MERGE_HEAD").write_text(git(house, "rev-parse", "HEAD"))
    with pytest.raises(HostError, match="a merge is under way"):
        commit_locks(locks(house), (RX,))


def test_an_ignored_lock_is_said(house: Path) -> None:
    (house / ".gitignore").write_text("*.lock\n")
    (locks(house) / "other.lock").write_text("new\n")
    with pytest.raises(HostError, match="told to ignore") as caught:
        commit_locks(locks(house), (RX, OTHER))
    assert "other.lock" in str(caught.value)


def test_a_hook_that_refuses_leaves_everything_as_it_was(house: Path) -> None:
    hook = house / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho not on my watch >&2\nexit 1\n")
    hook.chmod(0o755)
    (locks(house) / "rx.lock").write_text("two\n")
    (locks(house) / "other.lock").write_text("new\n")
    with pytest.raises(WorkError, match="not on my watch"):
        commit_locks(locks(house), (RX, OTHER))
    assert git(house, "status", "--porcelain").splitlines() == [
        "M recipes/locks/rx.lock", "?? recipes/locks/other.lock",
    ]  # fmt: skip


@pytest.mark.root
@pytest.mark.parametrize("uid", [65534, 4_000_000])
def test_root_commits_as_the_owner_of_the_checkout(house: Path, uid: int) -> None:
    """git refuses the checkout of another; and what root writes into it would stay root's."""
    (locks(house) / "rx.lock").write_text("two\n")
    for folder in (house.parent.parent.parent, house.parent.parent, house.parent):
        folder.chmod(0o755)
    for path in (house, *house.rglob("*")):
        os.chown(path, uid, 65534)
    commit = commit_locks(locks(house), (RX,))
    loose = house / ".git/objects" / commit[:2] / commit[2:]
    assert loose.stat().st_uid == uid


def test_security_comes_first() -> None:
    assert render_message((RX, OTHER)) == (
        "locks: Refresh rx, other (1 security)\n\n"
        "rx@2: 3 packages changed, 1 of them security; boot test R1\n"
        "  security: openssl 3.5.1-1 -> 3.5.1-2 (trixie-security)\n"
        "  less 1 -> 2\n"
        "  new 1 (added)\n\n"
        "other@1: no package changed\n"
    )
