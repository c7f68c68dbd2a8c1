# SPDX-License-Identifier: Apache-2.0
"""Notifications about nodes and interrupted roll-outs: from snapshots to messages.

What was reported and what is not sent yet are written in one step before anything is sent, so that
a restart reports nothing twice and loses nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path

from imagebuilder.errors import HostError, ImagebuilderError
from imagebuilder.files import make_folder, write_file
from imagebuilder.fleet.rollout.journal import is_reported
from imagebuilder.fleet.rollout.message import KIND_INTERRUPTED, telling
from imagebuilder.fleet.rollout.types import LiveRollout
from imagebuilder.fleet.state import Condition
from imagebuilder.locks import file_lock
from imagebuilder.notify.receivers import find_receivers
from imagebuilder.notify.send import Notifier, WaitingMessage
from imagebuilder.notify.types import PATIENCE, SendPatience
from imagebuilder.recipe.model_notify import NotifyModel
from imagebuilder.tree import Tree
from imagebuilder.ui import Ui
from imagebuilder.web.node_changes import (
    NodeSight,
    NodeTracker,
    ReportedState,
    ReportTerms,
    concerns,
    make_message,
)
from imagebuilder.web.notify_record import FILE, FOLDER, RECORD, NotifyRecord, load_record
from imagebuilder.web.snapshot import FleetRow, WebSnapshot

GRACE = 3.0  # seconds that a delivery under way has when the server ends
KEPT = 256  # interruptions that are remembered


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
        known = record.nodes if record else None
        self.tracker = NodeTracker(terms, {one.node: one for one in known or ()})
        self.interruptions = record.interruptions if record else ()
        self._is_new = known is None
        self._number = 0
        self._lock = threading.Lock()
        self.notifier = Notifier(
            find_receivers(site, env), warn, patience=patience, keep=self._write,
            waiting=record.waiting if record else (),
        )  # fmt: skip
        self._tell = telling(self.notifier)

    def update(self, snapshot: WebSnapshot) -> None:
        """Report what is new.  Until ssh servers were asked, nothing is known of nodes."""
        with self._lock:
            if snapshot.number <= self._number:
                return
            self._number = snapshot.number
            self._report_interruptions(snapshot.rollouts)
            if snapshot.probed is not None:
                self._report_nodes(find_sights(snapshot), snapshot.at)

    def _report_interruptions(self, rollouts: Sequence[LiveRollout]) -> None:
        """Tell of each interruption that neither we nor a command told of."""
        if not any(x.receiver.wants(KIND_INTERRUPTED) for x in self.notifier.lanes.values()):
            return  # somebody else may know whom to tell
        for live in rollouts:
            new = live.interrupted and live.interruption not in self.interruptions
            if new and not is_reported(self.tree, live):
                self.interruptions = (*self.interruptions, live.interruption)[-KEPT:]
                self._tell(live)

    def _report_nodes(self, sights: Sequence[NodeSight], now: datetime) -> None:
        if self._is_new:
            self.tracker.baseline(sights, now)
            self._is_new = False
            self.notifier.send(lambda _: None)  # writes it down
        if changes := self.tracker.advance(sights, now):
            self.notifier.send(lambda receiver: make_message(changes, receiver))
        for sight in self.tracker.limited:
            self.notifier.suppress(partial(concerns, sight))

    def _write(self, waiting: Sequence[WaitingMessage]) -> None:
        nodes = None if self._is_new else self.tracker.reported
        tree = os.fspath(self.tree.path)
        record = NotifyRecord(tree, nodes, tuple(waiting), self.interruptions)
        write_file(self.path, RECORD.render(record).encode(), 0o600)

    def close(self) -> None:
        self.notifier.close(GRACE, last=False)


def find_sights(snapshot: WebSnapshot) -> list[NodeSight]:
    """Every node; those that a roll-out has in hand are its to report."""
    in_hand = {
        node.name
        for live in snapshot.rollouts
        if live.runs
        for node in live.rollout.nodes
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
    """What reports changes of nodes and interrupted roll-outs while the server runs.

    None, with a warning, if it cannot, and None if no receiver wants to know.
    """
    wanted: set[str] = {kind for receiver in site.to.values() for kind in receiver.kinds}
    nodes = wanted & {state.kind for state in ReportedState}
    if not nodes and KIND_INTERRUPTED not in wanted:
        yield None
        return
    if nodes and not ask_every:
        ui.warn("changes of nodes are not reported: with --ask 0 nobody knows whether they answer")
    with ExitStack() as stack:
        try:
            make_folder(state / FOLDER)
            stack.enter_context(file_lock(state / FOLDER / "lock", waiting=refuse))
            reporter = FleetReporter(tree, state / FOLDER, site, ui.warn)
        except (ImagebuilderError, OSError) as error:
            what = "changes of nodes and interrupted roll-outs"
            ui.warn(f"{what} are not reported: {error}")
            yield None
            return
        stack.callback(reporter.close)
        yield reporter


def refuse() -> None:
    raise HostError("another imagebuilder web with the same state folder reports them")
