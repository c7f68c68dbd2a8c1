# SPDX-License-Identifier: Apache-2.0
"""Notify people about a nightly run."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from imagebuilder.decode import find_object
from imagebuilder.errors import Fault, RootError
from imagebuilder.files import write_file
from imagebuilder.nightly.exclusive import RunningError
from imagebuilder.nightly.faults import fault_of, in_a_line
from imagebuilder.nightly.history import RUNS_FOLDER, begin_run, unchanged
from imagebuilder.nightly.message import headline, render_message, render_not_started, run_json
from imagebuilder.nightly.page import page_of
from imagebuilder.nightly.run import TellRun
from imagebuilder.nightly.types import NightlyOptions, NightlyRun
from imagebuilder.notify.send import Notifier
from imagebuilder.notify.types import Message, Topic, one_line

# What was sent about a run that could not start.  The state may be read-only, so it is elsewhere.
NOT_STARTED = Path("/run/imagebuilder-nightly.json")
# Seconds until that is sent again: less than a day, and more than between restarts of the service.
AGAIN = 12 * 3600


def find_kind(run: NightlyRun, *, after_kill: bool) -> str:
    """The kind of notification; a run before that was killed, and could notify nobody, counts as a
    failure.
    """
    if run.failed or after_kill:
        return "nightly-failed"
    return "nightly-unchanged" if unchanged(run) else "nightly-changed"


def messages_file(state: Path) -> Path:
    return state / "nightly" / "notify" / "waiting.json"


def notify_run(
    run: NightlyRun, folder: Path, notifier: Notifier, *, after_kill: bool = False
) -> None:
    """Send the notification about a run whose report is in `folder`."""
    kind, page = find_kind(run, after_kill=after_kill), folder / RUNS_FOLDER / page_of(run.id)
    text, details = one_line(headline(run)), render_message(run, page)
    message = Message(Topic.NIGHTLY, (kind,), text, details, run_json(run, page))
    notifier.send(lambda receiver: message if receiver.wants(kind) else None)


@contextmanager
def telling_run(
    options: NightlyOptions, notifier: Notifier, sent: Path = NOT_STARTED
) -> Iterator[TellRun]:
    """What sends the notification about a run; an error before that is sent here.

    Another run in progress sends its own notification, and a command that lacks rights starts over
    with them.
    """
    told = False

    def tell(run: NightlyRun, *, after_kill: bool) -> None:
        nonlocal told
        told = True
        notify_run(run, options.folder, notifier, after_kill=after_kill)

    try:
        yield tell
    except (RootError, RunningError):
        raise
    except Exception as error:
        if not told:
            notify_not_started(fault_of(error), options, notifier, sent)
        raise


def notify_not_started(
    fault: Fault, options: NightlyOptions, notifier: Notifier, sent: Path = NOT_STARTED
) -> None:
    """Send that a run could not start, unless that was sent lately, as the file `sent` says."""
    now, what = time.clock_gettime(time.CLOCK_BOOTTIME), in_a_line(fault)
    before = find_object(sent) or {}
    at = before.get("at")
    if before.get("what") == what and isinstance(at, int | float) and 0 <= now - at < AGAIN:
        return
    with contextlib.suppress(OSError):  # sent twice is better than not at all
        write_file(sent, json.dumps({"what": what, "at": now}).encode(), 0o600)
    run = begin_run(options.profiles, options.folder)
    run = replace(run, warnings=(f"the run could not start: {what}", "nothing was recorded"))
    body = {**run_json(run, options.folder), "report": ""}
    text = one_line(f"the nightly run could not start: {what}")
    message = Message(
        Topic.NIGHTLY, ("nightly-failed",), text, render_not_started(run, fault), body
    )
    notifier.send(lambda receiver: message if receiver.wants("nightly-failed") else None)
