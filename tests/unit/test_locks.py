# SPDX-License-Identifier: Apache-2.0
"""Who holds a lock, and who only asks."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from imagebuilder import locks
from imagebuilder.locks import file_lock, is_listed, is_locked, take_lock, turn_of
from imagebuilder.publish.removal import drop_unfinished
from imagebuilder.report.save import begin_report
from imagebuilder.tree import ReleaseName, Tree, make_tree
from imagebuilder.web.action_journal import action_log
from imagebuilder.web.roles import Role
from imagebuilder.web.tokens import add_token, remove_token

RELEASE = ReleaseName("demo", "20261123000000-aaaaaaaa")


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "lock"
    path.touch()
    return path


def test_who_asks_is_not_taken_for_the_holder(lock: Path) -> None:
    asking = os.open(lock, os.O_RDONLY)
    try:
        assert take_lock(asking, shared=True)  # as is_locked() does for an instant
        assert not is_locked(lock)
    finally:
        os.close(asking)


@pytest.mark.parametrize(("shared", "found"), [(False, (True, True)), (True, (False, True))])
def test_who_shares_a_lock_is_found_if_asked_for(
    lock: Path, *, shared: bool, found: tuple[bool, bool]
) -> None:
    with file_lock(lock, shared=shared):
        assert (is_locked(lock), is_locked(lock, shared=True)) == found
    assert not is_locked(lock, shared=True)


def test_a_lock_that_nobody_made_is_free(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "none")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert not is_locked(tmp_path / "pipe")


@pytest.mark.parametrize("mode", [0o644, 0o666])
def test_nobody_else_may_open_a_lock(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "lock"
    path.touch()
    path.chmod(mode)  # as earlier versions made it
    for each in (path, tmp_path / "new"):
        with file_lock(each):
            assert each.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("shared", "found"), [(False, (True, True)), (True, (False, True))])
def test_who_may_not_open_a_lock_is_told_the_same(
    lock: Path, *, shared: bool, found: tuple[bool, bool]
) -> None:
    with file_lock(lock, shared=shared):
        assert (is_listed(lock, shared=False), is_listed(lock, shared=True)) == found
        assert not is_listed(lock.parent, shared=True)
    assert not is_listed(lock, shared=True)


def change_tokens(tree: Tree) -> None:
    add_token(tree.path / "tokens.json", "ada", Role.ADMIN)
    remove_token(tree.path / "tokens.json", "ada")


def begin_one(tree: Tree) -> None:
    with begin_report(tree, RELEASE, "new"):
        pass


def log_action(tree: Tree) -> None:
    with action_log(tree, "20261123T000000-aaaaaaaa"):
        pass


@pytest.mark.parametrize("work", [change_tokens, begin_one, drop_unfinished, log_action])
def test_others_can_keep_nobody_waiting(tmp_path: Path, work: Callable[[Tree], None]) -> None:
    """Everybody may open and lock what everybody may read: no command waits for such a lock."""
    tree = make_tree(tmp_path / "tree")
    tree.reports(RELEASE).mkdir(parents=True)
    places = [path for path in (tree.path, *tree.path.rglob("*")) if path.stat().st_mode & 0o004]
    held = [os.open(path, os.O_RDONLY) for path in places]
    try:
        assert all(map(take_lock, held))
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(work, tree)
            try:
                done.result(10)
            finally:
                while held:
                    os.close(held.pop())
    finally:
        for each in held:
            os.close(each)


# Arguments: the lock, a folder.  Each shares the lock over and over, with others in between.
SHARING = """
import sys, time
from pathlib import Path
from imagebuilder.locks import file_lock
lock, folder = map(Path, sys.argv[1:3])
(folder / sys.argv[3]).touch()
while not (folder / "end").exists():
    with file_lock(lock, shared=True):
        time.sleep(0.3)
"""
# Shares the lock; when somebody waits to have it alone, shares it again, as a child does.
AGAIN = """
import os, subprocess, sys, time
from pathlib import Path
from imagebuilder.locks import file_lock, is_locked, turn_of
lock, once = Path(sys.argv[1]), "import sys; from pathlib import Path; " + (
    "from imagebuilder.locks import file_lock; "
    "file_lock(Path(sys.argv[1]), shared=True).__enter__()"
)
with file_lock(lock, shared=True):
    print("shared", flush=True)
    while not is_locked(turn_of(lock)):
        time.sleep(0.01)
    with file_lock(lock, shared=True):
        subprocess.run([sys.executable, "-c", once, lock], check=True, timeout=60)
    print("again", flush=True)
"""
ALONE = """
import sys
from pathlib import Path
from imagebuilder.locks import file_lock
with file_lock(Path(sys.argv[1])):
    print("alone", flush=True)
"""


@contextmanager
def started(script: str, *words: object) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-c", script, *map(str, words)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line that it says, within a minute."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], 60)
    return process.stdout.readline().strip() if ready else ""


def test_who_waits_to_have_it_alone_comes_before_who_shares_it_later(
    lock: Path, tmp_path: Path
) -> None:
    """While newcomers overlap, flock(2) would never let it in."""
    with ExitStack() as stack:
        for name in "abcd":
            stack.enter_context(started(SHARING, lock, tmp_path, name))
        while sum((tmp_path / name).exists() for name in "abcd") < 4:
            time.sleep(0.05)
        for _ in range(3):
            assert line_of(stack.enter_context(started(ALONE, lock))) == "alone"
        (tmp_path / "end").touch()


def test_who_shares_it_may_share_it_again_and_so_may_its_children(lock: Path) -> None:
    """Whoever waits to have it alone waits for them."""
    with started(AGAIN, lock) as sharing:
        assert line_of(sharing) == "shared"
        with started(ALONE, lock) as waits:
            assert line_of(sharing) == "again"
            assert line_of(waits) == "alone"


def test_who_was_killed_while_it_waited_is_not_waited_for(lock: Path) -> None:
    with started(AGAIN.replace("is_locked(turn_of(lock))", "False"), lock) as sharing:
        assert line_of(sharing) == "shared"
        with started(ALONE, lock) as waits:
            while not is_locked(turn_of(lock)):
                time.sleep(0.01)
            waits.kill()
        with started(ALONE.replace(")):", "), shared=True):"), lock) as newcomer:
            assert line_of(newcomer) == "alone"


def test_nobody_waits_for_a_turn_for_ever(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one who shares the lock may wait for a newcomer that has another lock."""
    monkeypatch.setattr(locks, "TURN_S", 0.3)
    told: list[str] = []
    with started(AGAIN.replace("is_locked(turn_of(lock))", "False"), lock) as sharing:
        assert line_of(sharing) == "shared"
        with started(ALONE, lock):
            while not is_locked(turn_of(lock)):
                time.sleep(0.01)
            with file_lock(lock, shared=True, waiting=lambda: told.append("waiting")):
                assert told == ["waiting"]
