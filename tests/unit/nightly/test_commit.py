# SPDX-License-Identifier: Apache-2.0
"""Lock files into git: those, nothing else, and nothing lost where that cannot be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from imagebuilder.errors import HostError, WorkError
from imagebuilder.lock.changes import PackageChange
from imagebuilder.nightly.commit import commit_locks, render_message
from imagebuilder.nightly.types import Ending, NightlyStage, ProfileRun
from imagebuilder.process import run
from tests.unit.notify.servers import until

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not here")
SECURE = PackageChange("openssl", "3.5.1-1", "3.5.1-2", security=True, suite="trixie-security")
RX = ProfileRun(
    "rx", Ending.PROMOTED, NightlyStage.PROMOTE, version="2", report="R1",
    changes=(SECURE, PackageChange("less", "1", "2"), PackageChange("new", "", "1")),
)  # fmt: skip
OTHER = ProfileRun("other", Ending.UNCHANGED, NightlyStage.PLAN, version="1")
Git = Callable[..., str]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person without any configuration of git."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture
def project(home: Path, tmp_path: Path) -> Path:
    """A checkout with a lock of `rx`, in a folder of its own below the top."""
    del home
    project = tmp_path / "project"
    (project / "recipes/locks").mkdir(parents=True)
    (project / "recipes/locks/rx.lock").write_text("one\n")
    (project / "README").write_text("read me\n")
    git(project, "init", "--quiet", "--initial-branch=main")
    git(project, "add", ".")
    git(project, "-c", "user.name=P", "-c", "user.email=p@example.org", "commit", "-qm", "first")
    return project


def git(project: Path, *words: str) -> str:
    """What git says."""
    return run(["git", *words], cwd=project).stdout.strip()


def locks(project: Path) -> Path:
    return project / "recipes" / "locks"


def test_only_locks_are_committed(project: Path) -> None:
    (locks(project) / "rx.lock").write_text("two\n")
    (locks(project) / "other.lock").write_text("new\n")
    (locks(project) / "failed.lock").write_text("of a profile that failed\n")
    (project / "README").write_text("half a thought\n")
    (project / "staged").write_text("somebody's\n")
    git(project, "add", "staged")
    commit = commit_locks(locks(project), (RX, OTHER))
    assert git(project, "rev-parse", "HEAD") == commit
    changed = git(project, "show", "--name-only", "--format=%an <%ae>%n%s", commit).splitlines()
    assert changed[0].startswith("imagebuilder nightly <imagebuilder@")
    assert changed[1:] == [
        "locks: Refresh rx, other (1 security)", "",
        "recipes/locks/other.lock", "recipes/locks/rx.lock",
    ]  # fmt: skip
    assert git(project, "status", "--porcelain").splitlines() == [
        "M README", "A  staged", "?? recipes/locks/failed.lock",
    ]  # fmt: skip


def test_who_commits_is_who_git_knows(project: Path) -> None:
    git(project, "config", "user.email", "ann@example.org")
    git(project, "config", "user.name", "Ann")
    (locks(project) / "rx.lock").write_text("two\n")
    commit_locks(locks(project), (RX,))
    assert git(project, "log", "-1", "--format=%an %ae") == "Ann ann@example.org"


def test_without_a_change_there_is_no_commit(project: Path) -> None:
    assert commit_locks(locks(project), (RX,)) == ""
    assert git(project, "rev-list", "--count", "HEAD") == "1"


def test_a_folder_without_git(tmp_path: Path, home: Path) -> None:
    del home
    with pytest.raises(HostError, match="is not in a git checkout"):
        commit_locks(tmp_path, (RX,))


def test_another_staged_state_of_a_lock_stays(project: Path) -> None:
    (locks(project) / "rx.lock").write_text("by hand\n")
    git(project, "add", "recipes/locks/rx.lock")
    (locks(project) / "rx.lock").write_text("two\n")
    with pytest.raises(HostError, match="has staged changes that differ"):
        commit_locks(locks(project), (RX,))
    assert git(project, "show", ":recipes/locks/rx.lock") == "by hand"


def test_a_merge_under_way_is_not_disturbed(project: Path) -> None:
    (locks(project) / "rx.lock").write_text("two\n")
    (project / ".git/MERGE_HEAD").write_text(git(project, "rev-parse", "HEAD"))
    with pytest.raises(HostError, match="a merge is in progress"):
        commit_locks(locks(project), (RX,))


def test_an_ignored_lock_is_said(project: Path) -> None:
    (project / ".gitignore").write_text("*.lock\n")
    (locks(project) / "other.lock").write_text("new\n")
    with pytest.raises(HostError, match="is ignored by git") as caught:
        commit_locks(locks(project), (RX, OTHER))
    assert "other.lock" in str(caught.value)


def test_a_hook_that_refuses_leaves_everything_as_it_was(project: Path) -> None:
    hook = project / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho not on my watch >&2\nexit 1\n")
    hook.chmod(0o755)
    (locks(project) / "rx.lock").write_text("two\n")
    (locks(project) / "other.lock").write_text("new\n")
    with pytest.raises(WorkError, match="not on my watch"):
        commit_locks(locks(project), (RX, OTHER))
    assert git(project, "status", "--porcelain").splitlines() == [
        "M recipes/locks/rx.lock", "?? recipes/locks/other.lock",
    ]  # fmt: skip


def test_git_says_why_in_the_first_line(project: Path) -> None:
    (locks(project) / "rx.lock").write_text("two\n")
    (project / ".git/index.lock").write_text("")
    with pytest.raises(WorkError) as caught:
        commit_locks(locks(project), (RX,))
    said = str(caught.value).splitlines()[0]
    assert "git failed (exit status 128): fatal: Unable to create" in said
    assert "index.lock': File exists" in said


def test_a_lock_that_a_killed_run_staged_is_committed(project: Path) -> None:
    (locks(project) / "other.lock").write_text("new\n")
    git(project, "add", "recipes/locks/other.lock")
    commit_locks(locks(project), (OTHER,))
    assert git(project, "status", "--porcelain") == ""


def test_git_takes_its_locks_with_it_when_the_run_is_killed(project: Path) -> None:
    hook = project / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n: > {project}/begun\nexec sleep 600\n")
    hook.chmod(0o755)
    (locks(project) / "rx.lock").write_text("two\n")
    code = (
        "from pathlib import Path\nfrom tests.unit.nightly.test_commit import RX, commit_locks\n"
        f"commit_locks(Path({str(locks(project))!r}), (RX,))"
    )
    top = Path(__file__).parents[3]
    with subprocess.Popen([sys.executable, "-c", code], cwd=top) as killed:
        until((project / "begun").exists)
        assert (project / ".git/index.lock").exists()
        killed.kill()
    until(lambda: not list((project / ".git").glob("*.lock")))
    hook.unlink()
    (project / "begun").unlink()
    assert commit_locks(locks(project), (RX,)) == git(project, "rev-parse", "HEAD")


@pytest.mark.root
@pytest.mark.parametrize("uid", [65534, 4_000_000])
def test_root_commits_as_the_owner_of_the_checkout(
    project: Path, uid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """git refuses the checkout of another; and what root writes into it would stay root's."""
    (locks(project) / "rx.lock").write_text("two\n")
    with TemporaryDirectory() as top:  # pytest closes its own folders to others
        Path(top).chmod(0o755)
        monkeypatch.setenv("HOME", top)
        theirs = Path(shutil.copytree(project, Path(top) / "project", symlinks=True))
        for path in (theirs, *theirs.rglob("*")):
            os.chown(path, uid, 65534)
        commit = commit_locks(locks(theirs), (RX,))
        loose = theirs / ".git/objects" / commit[:2] / commit[2:]
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
