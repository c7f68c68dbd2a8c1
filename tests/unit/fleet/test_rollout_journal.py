# SPDX-License-Identifier: Apache-2.0
"""What others do to a roll-out while its files are read neither gets lost nor looks like a kill."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.errors import FullError, InputError
from imagebuilder.files import move_away
from imagebuilder.fleet.rollout import journal
from imagebuilder.fleet.rollout.journal import (
    ABORT,
    PAUSE,
    find_live,
    find_rollout,
    forget_wishes,
    make_wish,
    obey,
    rolling_out,
    runner_file,
    save_rollout,
    taken_file,
    wish_file,
)
from imagebuilder.fleet.rollout.types import Rollout, RolloutNode, RolloutStatus
from imagebuilder.tree import Tree, make_tree

RUNNING = Rollout("demo", "1", "2", "ada", "2026-11-20T12:00:00+00:00", ())
EARLIER = "ada, process 1, since 2026-11-20 12:00:00+00:00\n"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A roll-out whose process was killed."""
    made = make_tree(tmp_path / "tree")
    save_rollout(made, RUNNING)
    runner_file(made, "demo").parent.mkdir(parents=True, exist_ok=True)
    runner_file(made, "demo").write_text(EARLIER)
    return made


def after_the_journal_was_read(
    monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]
) -> None:
    """Let something happen once, right after somebody read the journal."""
    events = [happens]

    def read(tree: Tree, profile: str) -> Rollout | None:
        found = find_rollout(tree, profile)
        while events:
            events.pop()()
        return found

    monkeypatch.setattr(journal, "find_rollout", read)


def test_a_kill_is_an_interruption(tree: Tree) -> None:
    live = find_live(tree, RUNNING)
    assert live.interrupted
    assert live.interruption == f"{RUNNING.started} {EARLIER.strip()}"


@pytest.mark.parametrize("written", [EARLIER, "", "ada, process 2, since 2026-11-20 12:05\n"])
def test_one_that_goes_on_meanwhile_is_not_interrupted(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    with ExitStack() as stack:

        def resume() -> None:
            stack.enter_context(rolling_out(tree, "demo"))
            runner_file(tree, "demo").write_text(written)  # the earlier one, none yet, itself

        after_the_journal_was_read(monkeypatch, resume)
        live = find_live(tree, RUNNING)
    assert not live.interrupted
    assert live.runner == (written.strip() or "it has just begun")


def test_one_that_goes_on_and_pauses_meanwhile_is_not_interrupted(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = replace(RUNNING, status=RolloutStatus.PAUSED)

    def go_on() -> None:
        with rolling_out(tree, "demo"):
            save_rollout(tree, paused)

    after_the_journal_was_read(monkeypatch, go_on)
    live = find_live(tree, RUNNING)
    assert (live.rollout, live.interrupted) == (paused, False)


def test_looking_ends_where_one_process_after_the_other_begins(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = iter(range(1000))
    monkeypatch.setattr(journal, "runner", lambda *_: f"process {next(processes)}")
    assert not find_live(tree, RUNNING).interrupted


def test_a_wish_that_comes_while_another_is_obeyed_is_obeyed_next(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wish(tree, "demo", PAUSE)

    def save(tree: Tree, rollout: Rollout) -> None:
        save_rollout(tree, rollout)
        make_wish(tree, "demo", ABORT)

    with monkeypatch.context() as patch:
        patch.setattr(journal, "save_rollout", save)
        paused = obey(tree, RUNNING)
    assert paused.status is RolloutStatus.PAUSED
    assert obey(tree, paused).status is RolloutStatus.ABORTING
    assert not wish_file(tree, "demo").exists()
    assert not taken_file(tree, "demo").exists()


def test_what_a_killed_process_was_to_obey_is_obeyed_first(tree: Tree) -> None:
    make_wish(tree, "demo", ABORT)
    move_away(wish_file(tree, "demo"), taken_file(tree, "demo"))
    make_wish(tree, "demo", PAUSE)
    assert obey(tree, RUNNING).status is RolloutStatus.ABORTING
    assert obey(tree, RUNNING) == RUNNING
    make_wish(tree, "demo", PAUSE)
    move_away(wish_file(tree, "demo"), taken_file(tree, "demo"))
    make_wish(tree, "demo", ABORT)
    forget_wishes(tree, "demo")
    assert obey(tree, RUNNING) == RUNNING


def test_a_full_disk_says_which_and_how_to_continue(tree: Tree) -> None:
    with (
        pytest.raises(FullError, match=r"tree: no space left\n.*rollout status shows how"),
        rolling_out(tree, "demo"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("name", ["\x1b[2Jn1", "n[1", "a b", "", "../n1"])
def test_a_journal_with_a_name_that_no_node_has_is_damaged(tree: Tree, name: str) -> None:
    node = RolloutNode(name, 0)
    save_rollout(tree, replace(RUNNING, nodes=(node,)))
    with pytest.raises(InputError, match=r"demo.json: is damaged: nodes\[0\].name"):
        find_rollout(tree, "demo")


def test_reasons_are_lines_of_text(tree: Tree) -> None:
    node = RolloutNode("n1", 0, why="a\x1b[2J\nerror: b")
    save_rollout(tree, replace(RUNNING, nodes=(node,), why="c\nd"))
    found = find_rollout(tree, "demo")
    assert found
    assert (found.nodes[0].why, found.why) == (r"a\x1b[2J\nerror: b", r"c\nd")
