# SPDX-License-Identifier: Apache-2.0
"""Notify people about a nightly run."""

from __future__ import annotations

from pathlib import Path

from imagebuilder.nightly.history import RUNS_FOLDER, unchanged
from imagebuilder.nightly.message import headline, render_message, run_json
from imagebuilder.nightly.page import page_of
from imagebuilder.nightly.types import NightlyRun
from imagebuilder.notify.send import Notifier
from imagebuilder.notify.types import Message, Topic, one_line


def find_kind(run: NightlyRun, *, after_kill: bool) -> str:
    """The kind of notification; a run before that was killed, and could notify nobody, counts as a
    failure.
    """
    if run.failed or after_kill:
        return "nightly-failed"
    return "nightly-unchanged" if unchanged(run) else "nightly-changed"


def messages_file(state: Path) -> Path:
    """The file with the messages that are not sent yet."""
    return state / "nightly" / "notify" / "waiting.json"


def notify_run(
    run: NightlyRun, folder: Path, notifier: Notifier, *, after_kill: bool = False
) -> None:
    """Send the notification about a run whose report is in `folder`."""
    kind, page = find_kind(run, after_kill=after_kill), folder / RUNS_FOLDER / page_of(run.id)
    text, details = one_line(headline(run)), render_message(run, page)
    message = Message(Topic.NIGHTLY, (kind,), text, details, run_json(run, page))
    notifier.send(lambda receiver: message if receiver.wants(kind) else None)
