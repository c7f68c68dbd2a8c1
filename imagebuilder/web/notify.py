# SPDX-License-Identifier: Apache-2.0
"""Notifications about nodes: from snapshots to messages, with a file of what was reported.

    STATE/notify/nodes.json

What was reported and what is not sent yet are written in one step before anything is sent, so that
a restart reports nothing twice and loses nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from imagebuilder.decode import JsonFile
from imagebuilder.errors import HostError, ImagebuilderError, InputError
from imagebuilder.files import make_folder, write_file
from imagebuilder.fleet.node_changes import (
    NodeSight,
    NodeTracker,
    ReportedNode,
    ReportedState,
    ReportTerms,
    make_message,
)
from imagebuilder.fleet.rollout.journal import is_running
from imagebuilder.fleet.state import Condition
from imagebuilder.locks import file_lock
from imagebuilder.notify.receivers import find_receivers
from imagebuilder.notify.send import Notifier, WaitingMessage
from imagebuilder.notify.types import PATIENCE, SendPatience
from imagebuilder.recipe.model_notify import NotifyModel
from imagebuilder.tree import Tree
from imagebuilder.ui import Ui
from imagebuilder.web.snapshot import FleetRow, WebSnapshot

GRACE = 3.0  # seconds that a delivery under way has when the server ends
FOLDER, FILE = "notify", "nodes.json"


@dataclass(frozen=True)
class NotifyRecord:
    """The file: of which tree, what was reported of its nodes last, and what is to be sent."""

    tree: str
    nodes: tuple[ReportedNode, ...] = ()
    waiting: tuple[WaitingMessage, ...] = ()


RECORD = JsonFile(NotifyRecord, 1, "remove it: nodes are reported from their next change on")


class FleetReporter:
    """Looks at each snapshot for what receivers want to know."""

    def __init__(
        self,
        tree: Tree,
        folder: Path,
        site: NotifyModel,
        warn: Callable[[str], None],
        *,
        env: Mapping[str, str] = os.environ,
        patience: SendPatience = PATIENCE,
    ) -> None:
        self.tree, self.path = tree, folder / FILE
        record = load_record(self.path, tree, warn)
        terms = ReportTerms(site.gather, site.per_hour, site.silent_after)
        known = record.nodes if record else ()
        self.tracker = NodeTracker(terms, {one.node: one for one in known})
        self._is_new = record is None
        self._number = 0
        self._lock = threading.Lock()
        self.notifier = Notifier(
            find_receivers(site, env), warn, patience=patience, keep=self._write,
            waiting=record.waiting if record else (),
        )  # fmt: skip

    def update(self, snapshot: WebSnapshot) -> None:
        """Report what is new.  Until ssh servers were asked, nothing is known of nodes."""
        with self._lock:
            if snapshot.probed is None or snapshot.number <= self._number:
                return
            self._number = snapshot.number
            self._report(find_sights(self.tree, snapshot), snapshot.at)

    def _report(self, sights: Sequence[NodeSight], now: datetime) -> None:
        if self._is_new:
            self.tracker.baseline(sights, now)
            self.notifier.send(lambda _: None)  # writes it down
            self._is_new = False
        if changes := self.tracker.advance(sights, now):
            self.notifier.send(lambda receiver: make_message(changes, receiver))

    def _write(self, waiting: Sequence[WaitingMessage]) -> None:
        record = NotifyRecord(os.fspath(self.tree.path), self.tracker.reported, tuple(waiting))
        write_file(self.path, RECORD.render(record).encode(), 0o600)

    def close(self) -> None:
        self.notifier.close(GRACE, last=False)


def load_record(path: Path, tree: Tree, warn: Callable[[str], None]) -> NotifyRecord | None:
    """What was written of this tree; None if nothing was, or it is damaged."""
    if not path.exists():
        return None
    try:
        record = RECORD.load(path)
    except InputError as error:
        warn(f"starting anew with notifications about nodes: {error}")
        return None
    return record if record.tree == os.fspath(tree.path) else None


def find_sights(tree: Tree, snapshot: WebSnapshot) -> list[NodeSight]:
    """Every node; those that a roll-out has in hand are its to report."""
    in_hand = {
        node.name
        for rollout in snapshot.rollouts
        if not rollout.ended and is_running(tree, rollout.profile)
        for node in rollout.nodes
        if node.in_flight
    }
    return [
        NodeSight(row.name, row.node.group, row.node.profile, state_of(row), words_of(row))
        if row.name not in in_hand
        else NodeSight(row.name, row.node.group, row.node.profile, None, "")
        for row in snapshot.rows
    ]


def state_of(row: FleetRow) -> ReportedState | None:
    """The state of a node that is worth a message; None while it is in between."""
    if row.condition is Condition.FAILED:
        return ReportedState.FAILED
    if row.condition is Condition.SILENT:
        return ReportedState.SILENT
    if row.condition is not Condition.READY:
        return None
    if row.illness:
        return ReportedState.ILL
    return ReportedState.FELL_BACK if row.view.state.fell_back else ReportedState.READY


def words_of(row: FleetRow) -> str:
    return f"{row.illness}: {row.view.words}" if row.illness else row.view.state.words


@contextmanager
def fleet_reporter(
    tree: Tree, state: Path, site: NotifyModel, ask_every: float, ui: Ui
) -> Iterator[FleetReporter | None]:
    """What reports changes of nodes while the server runs; None, with a warning, if it cannot."""
    kinds = {state.kind for state in ReportedState}
    if not any(kinds & {*receiver.kinds} for receiver in site.to.values()):
        yield None
        return
    with ExitStack() as stack:
        try:
            if not ask_every:
                raise HostError("with --ask 0 nobody knows whether nodes answer")
            make_folder(state / FOLDER)
            stack.enter_context(file_lock(state / FOLDER / "lock", waiting=refuse))
            reporter = FleetReporter(tree, state / FOLDER, site, ui.warn)
        except (ImagebuilderError, OSError) as error:
            ui.warn(f"changes of nodes are not reported: {error}")
            yield None
            return
        stack.callback(reporter.close)
        yield reporter


def refuse() -> None:
    raise HostError("another imagebuilder web with the same state folder reports them")


class NotifyCollector(Collector):
    """What became of messages, for Prometheus."""

    def __init__(self, notifier: Notifier) -> None:
        self.notifier = notifier

    def collect(self) -> Iterator[Metric]:
        words = "Notifications about nodes by what became of them"
        total = CounterMetricFamily(
            "imagebuilder_notifications", words, labels=("receiver", "result")
        )
        waiting = GaugeMetricFamily(
            "imagebuilder_notifications_waiting", "Not sent yet", labels=("receiver",)
        )
        for name, lane in self.notifier.lanes.items():
            total.add_metric([name, "sent"], lane.sent)
            total.add_metric([name, "dropped"], lane.dropped)
            waiting.add_metric([name], len(lane.messages))
        yield from (total, waiting)
