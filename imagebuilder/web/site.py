# SPDX-License-Identifier: Apache-2.0
"""What the answers are made of: the tree, the newest snapshot, templates and assets."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from jinja2 import Environment

import imagebuilder.nightly
import imagebuilder.report
from imagebuilder import __version__
from imagebuilder.fleet.health import Verdict
from imagebuilder.fleet.rollout.types import RolloutStatus
from imagebuilder.fleet.state import Condition
from imagebuilder.image.diff import format_growth
from imagebuilder.image.proof import Result
from imagebuilder.nightly.page import add_words
from imagebuilder.nodes.types import NETCONSOLE_PORT
from imagebuilder.report.standing import State
from imagebuilder.templates import templates
from imagebuilder.tree import CANDIDATE, STABLE, Tree
from imagebuilder.ui import format_age
from imagebuilder.web.act_client import ActClient
from imagebuilder.web.action_journal import ActionState
from imagebuilder.web.session import Sessions
from imagebuilder.web.snapshot import WebSnapshot
from imagebuilder.web.tree_reader import Reader
from imagebuilder.web.watch import Watcher

HERE = Path(__file__).parent
KEPT_BYTES = 32 * 1024**2  # of answers to the same question
# The mark and the tone of a word: it is never told by the colour alone.
LOOKS: Mapping[str, tuple[str, str]] = {
    Condition.READY: ("●", "passed"),
    Condition.BOOTING: ("◐", "booting"),
    Condition.FAILED: ("✗", "failed"),
    Condition.SILENT: ("○", "degraded"),
    Condition.UNKNOWN: ("?", "absent"),
    Verdict.OK: ("✓", "passed"),
    Verdict.DEGRADED: ("!", "degraded"),
    Verdict.WRONG: ("≠", "failed"),
    Verdict.MISSING: ("✗", "failed"),
    State.PASSED: ("✓", "passed"),
    State.UNTESTED: ("–", "absent"),  # noqa: RUF001
    State.OTHER_BYTES: ("!", "degraded"),
    State.OTHER_ROOT: ("!", "degraded"),
    Result.PROVED: ("✓", "passed"),
    Result.WARNED: ("!", "degraded"),
    Result.NOT_ASKED: ("–", "absent"),  # noqa: RUF001
    RolloutStatus.RUNNING: ("▶", "booting"),
    RolloutStatus.PROMOTING: ("▶", "booting"),
    RolloutStatus.PAUSED: ("‖", "degraded"),
    RolloutStatus.DONE: ("✓", "passed"),
    RolloutStatus.STOPPED: ("✗", "failed"),
    RolloutStatus.ABORTING: ("↩", "degraded"),
    RolloutStatus.ABORTED: ("↩", "degraded"),
    ActionState.RUNNING: ("▶", "booting"),
    ActionState.INTERRUPTED: ("!", "degraded"),
    ActionState.REFUSED: ("✗", "failed"),
    STABLE: ("▲", "passed"),
    CANDIDATE: ("△", "booting"),
}
MARKS = {word: mark for word, (mark, _) in LOOKS.items()}
TONES = {word: tone for word, (_, tone) in LOOKS.items()}


@dataclass(frozen=True)
class Asset:
    """A file for browsers; its name has its digest in it, so it never changes."""

    name: str
    media: str
    content: bytes


class WebSite:
    """One per server."""

    def __init__(
        self, tree: Tree, reports: Path, watcher: Watcher, act_client: ActClient | None = None,
        reader: Reader | None = None,
    ) -> None:  # fmt: skip
        self.tree, self.reports, self.watcher = tree, reports, watcher
        self.reader = reader or watcher.maker.reader
        self.act_client, self.sessions = act_client, Sessions()
        self._answers: dict[str, bytes] = {}
        self._answered = self._kept = 0
        self._lock = threading.Lock()

    @property
    def snapshot(self) -> WebSnapshot:
        return self.watcher.snapshot

    @property
    def acts(self) -> bool:
        """Whether somebody has a token to act with."""
        return self.act_client is not None and self.act_client.is_open

    def once(self, key: str, snapshot: WebSnapshot, make: Callable[[], bytes]) -> bytes:
        """What `make` gives for a snapshot, made once however many ask for it."""
        with self._lock:
            if self._answered != snapshot.number:
                self._answers.clear()
                self._answered, self._kept = snapshot.number, 0
            if key in self._answers:
                return self._answers[key]
        made = make()
        with self._lock:
            kept = self._kept + len(key) + len(made)
            if self._answered == snapshot.number and kept <= KEPT_BYTES:
                self._answers[key], self._kept = made, kept
        return made

    @cached_property
    def assets(self) -> Mapping[str, Asset]:
        """By the name that pages know: `web.css`, `live.js`."""
        report = Path(imagebuilder.report.__path__[0])
        styles = (report / "page.css", nightly_folder() / "runs.css", HERE / "web.css")
        return {
            "web.css": asset("web.css", "text/css", b"".join(map(Path.read_bytes, styles))),
            "live.js": asset("live.js", "text/javascript", (HERE / "live.js").read_bytes()),
            "icon.svg": asset("icon.svg", "image/svg+xml", (HERE / "icon.svg").read_bytes()),
        }

    @cached_property
    def environment(self) -> Environment:
        made = templates(HERE, nightly_folder(), html=True)
        made.filters |= {"stamp": stamp, "moment": moment, "growth": format_growth}
        add_words(made)  # of the grid of runs
        made.globals |= {
            "assets": self.assets,
            "marks": MARKS,
            "tones": TONES,
            "conditions": [*Condition],
            "version": __version__,
            "age": format_age,
            "netconsole_port": NETCONSOLE_PORT,
        }
        return made


def nightly_folder() -> Path:
    return Path(imagebuilder.nightly.__path__[0])


def asset(name: str, media: str, content: bytes) -> Asset:
    stem, _, kind = name.rpartition(".")
    digest = hashlib.sha256(content).hexdigest()[:12]
    return Asset(f"{stem}.{digest}.{kind}", media, content)


def moment(text: str) -> datetime | None:
    """A time in a record; None for what is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def stamp(at: datetime) -> str:
    """A time in UTC for people: `2026-11-23 02:21:09 UTC`."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
