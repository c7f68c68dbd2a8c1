# SPDX-License-Identifier: Apache-2.0
"""What waits, what is tried again, what is given up, and what is kept when the process ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from imagebuilder.notify.send import MOST, Notifier, WaitingMessage
from imagebuilder.notify.types import Message, MessageReceiver, SendPatience, Topic
from tests.unit.notify.servers import until

OFTEN = SendPatience(answer=20.0, pauses=(0.01,))


def message(text: str, at: str = "") -> Message:
    made = Message(Topic.ROLLOUT, ("rollout-started",), text, text, {})
    return Message(made.topic, made.kinds, text, text, {}, at=at) if at else made


def receiver(name: str, script: str) -> MessageReceiver:
    """Somebody whose program is a shell script, which reads the text of a message."""

    def render(one: Message) -> tuple[list[str], bytes]:
        return ["sh", "-c", script], one.text.encode()

    return MessageReceiver(name, name, ("rollout-started",), (), render)


def test_messages_arrive_in_order_and_each_once(tmp_path: Path) -> None:
    notifier = Notifier([receiver("a", f"cat >> {tmp_path}/got; echo >> {tmp_path}/got")], fail)
    for number in range(5):
        send(notifier, str(number))
    notifier.close(30, last=True)
    assert (tmp_path / "got").read_text().split() == [*"01234"]
    assert notifier.lanes["a"].sent == 5


def send(notifier: Notifier, text: str) -> None:
    made = message(text)
    notifier.send(lambda _: made)


def fail(text: str) -> None:
    raise AssertionError(text)


def test_who_hangs_delays_nobody_and_no_sender(tmp_path: Path) -> None:
    warnings: list[str] = []
    both = [receiver("bad", "sleep 60"), receiver("good", f"cat >> {tmp_path}/got")]
    notifier = Notifier(both, warnings.append)
    begun = time.monotonic()
    for number in range(3):
        send(notifier, str(number))
    assert time.monotonic() - begun < 30
    until(lambda: notifier.lanes["good"].sent == 3)
    assert notifier.lanes["bad"].sent == 0
    notifier.close(0.1, last=True)
    assert len(warnings) == 3
    assert all(text.startswith("notify bad: could not send ") for text in warnings)


def test_it_is_tried_again_until_it_works(tmp_path: Path) -> None:
    script = f"echo x >> {tmp_path}/tries; [ $(wc -l < {tmp_path}/tries) = 5 ]"
    warnings: list[str] = []
    notifier = Notifier([receiver("a", script)], warnings.append, patience=OFTEN)
    notifier.send(lambda _: message("m"))
    until(lambda: notifier.lanes["a"].sent == 1)
    notifier.close(1, last=True)
    assert len((tmp_path / "tries").read_text().split()) == 5
    assert warnings == ["notify a: sh failed (exit status 1); trying again"]


def test_a_queue_is_bounded_and_the_oldest_goes() -> None:
    warnings: list[str] = []
    notifier = Notifier([receiver("a", "sleep 60")], warnings.append)
    for number in range(MOST + 3):
        send(notifier, f"m{number}")
    lane = notifier.lanes["a"]
    assert len(lane.messages) == MOST
    assert [one.text for one in lane.messages][:2] == ["m0", "m4"], "m0 is under way"
    assert lane.dropped == 3
    assert warnings[0] == f"notify a: could not send 'm1': {MOST} messages are waiting"
    notifier.close(0.1, last=False)


def test_what_is_too_old_is_given_up() -> None:
    warnings: list[str] = []
    notifier = Notifier([receiver("a", "exit 1")], warnings.append, patience=OFTEN)
    notifier.send(lambda _: message("m", "2026-01-01T00:00:00+00:00"))
    until(lambda: notifier.lanes["a"].dropped == 1)
    notifier.close(1, last=False)
    assert warnings == ["notify a: could not send 'm': sh failed (exit status 1)"]


def test_a_command_ends_soon_although_a_receiver_is_in_trouble() -> None:
    warnings: list[str] = []
    patience = SendPatience(answer=20.0, pauses=(0.1, 600.0), tries=3)
    notifier = Notifier([receiver("a", "exit 1")], warnings.append, patience=patience)
    notifier.send(lambda _: message("one"))
    notifier.send(lambda _: message("two"))
    until(lambda: notifier.lanes["a"].failures >= 2)  # it waits for ten minutes now
    begun = time.monotonic()
    notifier.close(60, last=True)
    assert time.monotonic() - begun < 30
    assert [text.split("'")[1] for text in warnings if "could not" in text] == ["one", "two"]


@pytest.mark.parametrize("under_way", [True, False])
def test_a_restart_sends_what_waits_and_nothing_twice(tmp_path: Path, *, under_way: bool) -> None:
    """The first process ends while one message is sent and another one waits."""
    kept: list[Sequence[WaitingMessage]] = []
    seconds = 1 if under_way else 60
    got = f"{tmp_path}/got"
    slow = f"touch {tmp_path}/begun; sleep {seconds}; cat >> {got}; echo >> {got}"
    first = Notifier([receiver("a", slow)], fail, keep=kept.append)
    for text in ("one", "two"):
        send(first, text)
    assert [one.message.text for one in kept[-1]] == ["one", "two"], "written before it is sent"
    until((tmp_path / "begun").exists)
    begun = time.monotonic()
    first.close(10 if under_way else 0.2, last=False)
    assert time.monotonic() - begun < 20
    left = ["two"] if under_way else ["one", "two"]
    assert [one.message.text for one in kept[-1]] == left
    quick = f"cat >> {tmp_path}/got; echo >> {tmp_path}/got"
    second = Notifier([receiver("a", quick)], fail, keep=kept.append, waiting=kept[-1])
    until(lambda: second.lanes["a"].sent == len(left))
    second.close(5, last=False)
    assert (tmp_path / "got").read_text().split() == ["one", "two"]
    assert [*kept[-1]] == []


def test_a_receiver_that_is_gone_gets_nothing() -> None:
    waiting = [WaitingMessage("gone", message("m"))]
    notifier = Notifier([receiver("a", "exit 0")], fail, waiting=waiting)
    notifier.close(5, last=True)
    assert notifier.lanes["a"].sent == 0


def test_a_full_disk_is_said_and_ends_nothing(tmp_path: Path) -> None:
    def full(_: Sequence[WaitingMessage]) -> None:
        raise OSError(28, "No space left on device")

    warnings: list[str] = []
    notifier = Notifier([receiver("a", f"cat > {tmp_path}/got")], warnings.append, keep=full)
    notifier.send(lambda _: message("m"))
    notifier.close(30, last=True)
    assert (tmp_path / "got").read_text() == "m"
    assert "No space left on device" in warnings[0]


def test_no_thread_is_left() -> None:
    before = threading.active_count()
    notifier = Notifier([receiver(name, "sleep 60") for name in "abc"], lambda _: None)
    notifier.send(lambda _: message("m"))
    notifier.close(0.1, last=False)
    assert threading.active_count() == before
