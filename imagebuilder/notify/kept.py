# SPDX-License-Identifier: Apache-2.0
"""Messages of a command that are kept in a file until they are sent.

Whoever runs the command next sends what a killed one did not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.decode import JsonFile
from imagebuilder.errors import HostError, ImagebuilderError, InputError
from imagebuilder.files import make_folder, write_file
from imagebuilder.locks import file_lock
from imagebuilder.notify.send import LAST_SECONDS, Keep, Notifier, WaitingMessage, nowhere
from imagebuilder.notify.types import MessageReceiver


@dataclass(frozen=True)
class KeptMessages:
    """The file: what receivers do not have yet."""

    waiting: tuple[WaitingMessage, ...] = ()


KEPT = JsonFile(KeptMessages, 1, "remove it: the messages in it will not be sent")


@contextmanager
def notifying_kept(
    path: Path, receivers: Sequence[MessageReceiver], warn: Callable[[str], None]
) -> Iterator[Notifier]:
    """notifying() with the file `path`: first sends what it has, and keeps in it what is not sent.

    Where the file cannot be used, that is a warning, and messages are sent without it.
    """
    with ExitStack() as stack:
        waiting: tuple[WaitingMessage, ...] = ()
        keep: Keep = nowhere
        try:
            make_folder(path.parent)
            stack.enter_context(file_lock(path.with_suffix(".lock"), waiting=refuse))
            waiting, keep = load_waiting(path, warn), keep_in(path)
        except (ImagebuilderError, OSError) as error:
            if receivers:
                warn(f"notify: messages are lost if this command is killed: {error}")
        notifier = Notifier(receivers, warn, keep=keep, waiting=waiting)
        try:
            yield notifier
        finally:
            notifier.close(LAST_SECONDS, last=True)


def refuse() -> None:
    raise HostError("another command is still sending its own")


def keep_in(path: Path) -> Keep:
    """What writes messages into `path`; there is no file while there are none."""

    def keep(waiting: Sequence[WaitingMessage]) -> None:
        if waiting:
            # Only we may read it: it says what is wrong with this host.
            write_file(path, KEPT.render(KeptMessages(tuple(waiting))).encode(), 0o600)
        else:
            path.unlink(missing_ok=True)

    return keep


def load_waiting(path: Path, warn: Callable[[str], None]) -> tuple[WaitingMessage, ...]:
    """The messages in a file, none where it is missing or, with a warning, damaged."""
    if not path.exists():
        return ()
    try:
        return KEPT.load(path).waiting
    except InputError as error:
        warn(f"notify: messages of an earlier run are lost: {error}")
        return ()
