# SPDX-License-Identifier: Apache-2.0
"""Deliver messages: a thread for each receiver, so that none waits for another."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from imagebuilder.errors import ImagebuilderError
from imagebuilder.notify.deliver import TRY_LATER
from imagebuilder.notify.receivers import DELIVER
from imagebuilder.notify.types import PATIENCE, Message, MessageReceiver, SendPatience, one_line
from imagebuilder.process import Completed, run

MOST = 100  # messages that wait for one receiver
TROUBLE = 3  # failures in a row after which it is said
LAST_SECONDS = 120.0  # that a command waits at its end for what is not sent yet


@dataclass(frozen=True)
class WaitingMessage:
    """A message that a receiver does not have yet."""

    receiver: str
    message: Message


@dataclass
class Lane:
    """One receiver: its messages, the first of which is being sent; what became of others.

    `failures` are tries in a row that failed, `failed` all of them.  `suppressed` are changes that
    were not reported because there were too many, `succeeded` is when the last message was sent.
    """

    receiver: MessageReceiver
    messages: deque[Message] = field(default_factory=deque)
    failures: int = 0
    sent: int = 0
    failed: int = 0
    dropped: int = 0
    suppressed: int = 0
    succeeded: datetime | None = None


class DeliveryEndedError(Exception):
    """Raised while a program delivers: its time is over, or we are asked to stop."""


Keep = Callable[[Sequence[WaitingMessage]], None]


def nowhere(waiting: Sequence[WaitingMessage]) -> None:
    """Where messages of a command are kept: it sends them before it ends."""


class Notifier:
    """Sends messages in the background; nothing here raises what a receiver did wrong.

    `warn` says what was not sent.  `keep` is called with all that is not sent, whenever that
    changes and before any of it is sent; what it kept is passed as `waiting`.
    """

    def __init__(
        self,
        receivers: Iterable[MessageReceiver],
        warn: Callable[[str], None],
        *,
        patience: SendPatience = PATIENCE,
        keep: Keep = nowhere,
        waiting: Iterable[WaitingMessage] = (),
    ) -> None:
        self.lanes = {each.name: Lane(each) for each in receivers}
        self._warn, self._keep, self._patience = warn, keep, patience
        self._changed = threading.Condition()
        self._last = False  # what cannot be sent now never is
        self._stopped = False
        for one in waiting:
            if lane := self.lanes.get(one.receiver):
                lane.messages.append(one.message)
        self._threads = [
            threading.Thread(target=self._deliver_all, args=(lane,), daemon=True)
            for lane in self.lanes.values()
        ]
        for thread in self._threads:
            thread.start()

    def send(self, make: Callable[[MessageReceiver], Message | None]) -> bool:
        """Send each receiver the message that `make` has for it; whether there was one."""
        sent = False
        with self._changed:
            for lane in self.lanes.values():
                if message := make(lane.receiver):
                    sent = True
                    lane.messages.append(message)
                    if len(lane.messages) > MOST:
                        self._drop(lane, lane.messages[1], f"{MOST} messages are waiting")
            self._note_kept()
            self._changed.notify_all()
        return sent

    def suppress(self, wanted: Callable[[MessageReceiver], bool]) -> None:
        """Count a change that those receivers are not told of now, because there were too many."""
        with self._changed:
            for lane in self.lanes.values():
                lane.suppressed += wanted(lane.receiver)

    def close(self, seconds: float, *, last: bool) -> None:
        """End, after at most so many seconds.

        What is `last` is tried at once, and what is not sent then is said; otherwise only what is
        under way is waited for.
        """
        until = time.monotonic() + seconds
        with self._changed:
            self._last = last
            for lane in self.lanes.values():
                lane.failures = 0
            if not last:
                self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        with self._changed:
            self._until = time.monotonic()
            self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        if last:
            for lane in self.lanes.values():
                for message in tuple(lane.messages):
                    self._drop(lane, message, "time ran out")
            self._note_kept()

    _until = float("inf")  # when a delivery under way is ended

    def _deliver_all(self, lane: Lane) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: lane.messages or self._last or self._stopped)
                if self._stopped or not lane.messages:
                    return
                message = lane.messages[0]
            try:
                what, retry = self._try(lane.receiver, message)
            except DeliveryEndedError:
                return
            with self._changed:
                self._settle(lane, message, what, retry=retry)

    def _try(self, receiver: MessageReceiver, message: Message) -> tuple[str, bool]:
        """Once: what went wrong ("" for nothing), and whether it may go better another time."""
        end = time.monotonic() + self._patience.answer

        def ask() -> None:
            if time.monotonic() > min(end, self._until):
                raise DeliveryEndedError

        try:
            argv, content = receiver.render(message)
            return judge(argv, run(argv, stdin=content, cwd=Path("/"), ask=ask, check=False))
        except DeliveryEndedError:
            if time.monotonic() > self._until:
                raise
            return f"did not end within {self._patience.answer:.0f} s", True
        except ImagebuilderError as error:
            return one_line(str(error)), False
        except OSError as error:
            return one_line(str(error)), True
        except ValueError as error:  # an argument or a text that cannot be handed over
            return one_line(str(error)), False

    def _settle(self, lane: Lane, message: Message, what: str, *, retry: bool) -> None:
        """What follows from a try.  The caller has the lock."""
        lane.failures = lane.failures + 1 if what else 0
        lane.failed += bool(what)
        age = (datetime.now(UTC) - datetime.fromisoformat(message.at)).total_seconds()
        late = age > self._patience.keep or (self._last and lane.failures >= self._patience.tries)
        if what and retry and not late:
            if lane.failures == TROUBLE:
                self._warn(f"notify {lane.receiver.name}: {what}; trying again")
            pauses = self._patience.pauses
            pause = pauses[0] if self._last else self._patience.pause(lane.failures)
            before = self._last
            self._changed.wait_for(lambda: self._stopped or self._last != before, pause)
            return
        if what:
            self._drop(lane, message, what)
        else:
            lane.sent += 1
            lane.succeeded = datetime.now(UTC)
            lane.messages.popleft()
        if what and late and self._last:
            for left in tuple(lane.messages):
                self._drop(lane, left, what)
        self._note_kept()

    def _drop(self, lane: Lane, message: Message, what: str) -> None:
        lane.dropped += 1
        lane.messages.remove(message)
        self._warn(f"notify {lane.receiver.name}: could not send {message.text!r}: {what}")

    def _note_kept(self) -> None:
        kept = [
            WaitingMessage(name, message)
            for name, lane in self.lanes.items()
            for message in lane.messages
        ]
        try:
            self._keep(kept)
        except OSError as error:
            self._warn(f"notify: could not save the unsent messages: {error}")


def judge(argv: Sequence[str], done: Completed) -> tuple[str, bool]:
    """What a program that delivered says of it."""
    if done.status == 0:
        return "", False
    how = f"exit status {done.status}" if done.status > 0 else f"signal {-done.status}"
    if argv == DELIVER:  # whose traceback may have the address in it
        said = done.stdout.strip().splitlines()
        again = done.status == TRY_LATER or done.status < 0  # somebody killed it
        return one_line(said[-1]) if said else f"failed ({how})", again
    said = (done.stderr or done.stdout).strip().splitlines()
    words = f": {said[-1]}" if said else ""
    return one_line(f"{argv[0]} failed ({how}){words}"), True


@contextmanager
def notifying(
    receivers: Sequence[MessageReceiver],
    warn: Callable[[str], None],
    patience: SendPatience = PATIENCE,
) -> Iterator[Notifier]:
    """A notifier for a command: at the end it waits until its messages are sent, or cannot be."""
    notifier = Notifier(receivers, warn, patience=patience)
    try:
        yield notifier
    finally:
        notifier.close(LAST_SECONDS, last=True)
