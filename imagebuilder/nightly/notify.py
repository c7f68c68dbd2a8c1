# SPDX-License-Identifier: Apache-2.0
"""The notification about a night."""

from __future__ import annotations

from pathlib import Path

from imagebuilder.nightly.history import NIGHTS, find_ids, read_nights, unchanged
from imagebuilder.nightly.message import headline, night_json, render_message
from imagebuilder.nightly.page import page_of
from imagebuilder.nightly.types import NightlyRun
from imagebuilder.notify.send import Notifier
from imagebuilder.notify.types import Message, Topic, one_line


def find_kind(night: NightlyRun, folder: Path) -> str:
    """The kind of notification; a night before this one that did not end counts as a failure."""
    if night.failed or was_cut_off(night, folder):
        return "nightly-failed"
    return "nightly-unchanged" if unchanged(night) else "nightly-changed"


def was_cut_off(night: NightlyRun, folder: Path) -> bool:
    """Whether the night before did not come to its end: it could tell nobody itself."""
    ids = [each for each in find_ids(folder) if each < night.id]
    return any(not each.finished for each in read_nights(folder, ids[-1:]).nights)


def tell_night(night: NightlyRun, folder: Path, notifier: Notifier) -> None:
    """Send the night whose report is in `folder`."""
    kind, page = find_kind(night, folder), folder / NIGHTS / page_of(night.id)
    text, details = one_line(headline(night)), render_message(night, page)
    message = Message(Topic.NIGHTLY, (kind,), text, details, night_json(night, page))
    notifier.send(lambda receiver: message if receiver.wants(kind) else None)
