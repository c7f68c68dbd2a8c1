# SPDX-License-Identifier: Apache-2.0
"""What a command said is kept as far as there is room, and what is missing is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.errors import HostError
from imagebuilder.tree import Tree, make_tree
from imagebuilder.web import action_journal
from imagebuilder.web.action_journal import (
    KEPT_LOGS,
    MOST_LOG,
    SHOWN,
    TAIL,
    ActionEvent,
    ActionLine,
    ActionLog,
    ActionState,
    action_log,
    note,
    read_actions,
    read_said,
)


def test_what_a_full_disk_keeps_from_the_log_is_told(tmp_path: Path) -> None:
    place = tmp_path / "said"
    with Path("/dev/full").open("wb", 0) as full, place.open("ab", 0) as kept:
        log = ActionLog(kept.fileno())
        log.write(b"one\n")
        log.descriptor = full.fileno()
        log.write(b"two\n")
        log.write(b"three\n")
        log.descriptor = kept.fileno()
        log.write(b"four\n")
        log.write(b"x" * MOST_LOG)
        log.write(b"y")
        log.tell()
        log.tell()
    left_out = "\n[{} bytes left out: the disk or this log was full]\n"
    assert place.read_text() == f"one\n{left_out.format(10)}four\n{left_out.format(MOST_LOG + 1)}"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_tree(tmp_path / "tree")


def make_line(number: int, event: ActionEvent = ActionEvent.BEGUN, **more: object) -> ActionLine:
    time = "2026-11-23T02:00:00+00:00"
    return ActionLine(event, f"20261123T020000-{number:08x}", time, "ada", **more)  # type: ignore[arg-type]


def test_the_state_of_an_action_is_what_its_lines_and_its_lock_say(tree: Tree) -> None:
    refused = make_line(5, ActionEvent.REFUSED, words="this takes the role release")
    for line in (*map(make_line, range(1, 5)), refused):
        note(tree, line)
    note(tree, make_line(1, ActionEvent.ENDED))
    note(tree, make_line(2, ActionEvent.ENDED, status=1))
    with action_log(tree, make_line(3).id):
        states = [record.state for record in read_actions(tree)]
    assert states == [
        ActionState.REFUSED, ActionState.INTERRUPTED, ActionState.RUNNING, ActionState.FAILED,
        ActionState.DONE,
    ]  # fmt: skip
    assert read_actions(tree)[2].state is ActionState.INTERRUPTED


def test_an_action_that_ends_while_it_is_looked_at_was_not_interrupted(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 3):
        note(tree, make_line(number))
    free = {make_line(1).id: 0, make_line(2).id: 1}  # the third was killed

    def end(log: Path) -> bool:
        """The journal was read: now they end, and free their locks."""
        if (status := free.pop(log.stem, None)) is not None:
            note(tree, make_line(int(log.stem[-1]), ActionEvent.ENDED, status=status))
        return False

    monkeypatch.setattr(action_journal, "is_locked", end)
    states = [record.state for record in read_actions(tree)]
    assert states == [ActionState.INTERRUPTED, ActionState.FAILED, ActionState.DONE]
    assert not free


def test_what_is_damaged_or_leads_elsewhere_is_left_out(tree: Tree) -> None:
    note(tree, make_line(1))
    journal = tree.actions.read_bytes()
    evil = journal.replace(b"20261123T020000-00000001", b"../../../../etc/passwd")
    tree.actions.write_bytes(b"{\n" + evil + b"[1]\n\xff\n" + journal + b'{"half')
    assert [record.begun.id for record in read_actions(tree)] == [make_line(1).id]


def test_the_newest_are_shown_first_and_the_oldest_not_at_all(tree: Tree) -> None:
    for number in range(SHOWN + 5):
        note(tree, make_line(number))
    found = [record.begun.id for record in read_actions(tree)]
    assert found == [make_line(n).id for n in range(SHOWN + 4, 4, -1)]


def test_only_the_end_of_a_long_journal_is_read(tree: Tree) -> None:
    note(tree, make_line(1))
    with tree.actions.open("ab") as journal:
        journal.write(b"{}\n" * TAIL)
    note(tree, make_line(2))
    assert [record.begun.id for record in read_actions(tree)] == [make_line(2).id]


def test_the_logs_of_old_actions_go_unless_they_run(tree: Tree) -> None:
    with action_log(tree, make_line(0).id):
        for number in range(1, KEPT_LOGS + 3):
            with action_log(tree, make_line(number).id):
                pass
        folder = tree.action_log("x").parent
        kept = sorted(path.stem for path in folder.iterdir())
    assert kept == [make_line(n).id for n in (0, *range(3, KEPT_LOGS + 3))]


def test_a_log_is_of_one_action(tree: Tree) -> None:
    with action_log(tree, make_line(1).id) as log:
        log.write(b"$ imagebuilder up n1\nn1: is up\n")
    assert read_said(tree, make_line(1).id) == "n1: is up\n"
    with pytest.raises(HostError, match="cannot be written: File exists"):
        action_log(tree, make_line(1).id).__enter__()
    assert read_said(tree, make_line(1).id) == "n1: is up\n"


def test_a_full_disk_says_how_to_make_room(tree: Tree) -> None:
    tree.actions.symlink_to("/dev/full")
    with pytest.raises(HostError) as caught:
        note(tree, make_line(1))
    assert caught.value.faults[0].hint
