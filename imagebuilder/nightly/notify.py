# SPDX-License-Identifier: Apache-2.0
"""Notify people about a nightly run."""

from __future__ import annotations

from pathlib import Path

from imagebuilder.nightly.history import RUNS_FOLDER, find_ids, read_runs, unchanged
from imagebuilder.nightly.message import headline, render_message, run_json
from imagebuilder.nightly.page import page_of
from imagebuilder.nightly.types import NightlyRun
from imagebuilder.notify.send import Notifier
from imagebuilder.notify.types import Message, Topic, one_line


def find_kind(run: NightlyRun, folder: Path) -> str:
    """The kind of notification; a previous run that was cut off counts as a failure."""
    if run.failed or was_cut_off(run, folder):
        return "nightly-failed"
    return "nightly-unchanged" if unchanged(run) else "nightly-changed"


def was_cut_off(run: NightlyRun, folder: Path) -> bool:
    """Whether the previous run was cut off: it could notify nobody itself."""
    ids = [each for each in find_ids(folder) if each < run.id]
    return any(not each.finished for each in read_runs(folder, ids[-1:]).runs)


def notify_run(run: NightlyRun, folder: Path, notifier: Notifier) -> None:
    """Send the notification about a run whose report is in `folder`."""
    kind, page = find_kind(run, folder), folder / RUNS_FOLDER / page_of(run.id)
    text, details = one_line(headline(run)), render_message(run, page)
    message = Message(Topic.NIGHTLY, (kind,), text, details, run_json(run, page))
    notifier.send(lambda receiver: message if receiver.wants(kind) else None)
