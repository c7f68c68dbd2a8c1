# SPDX-License-Identifier: Apache-2.0
"""down and restart where a scheduler is: work ends first, and what comes back gets work again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from imagebuilder.errors import ImagebuilderError
from imagebuilder.fleet.drain import Drainer
from imagebuilder.fleet.select import fold
from imagebuilder.fleet.verbs import Crew, NodeOutcome, in_order, missed

POLL = 5.0  # seconds between two checks of the work that is left
# `up` and `restart` let work onto what `down` and `restart` drained, whoever of them was killed.
REASON = "imagebuilder down or restart"
Act = Callable[[Crew], list[NodeOutcome]]


@dataclass(frozen=True)
class Draining:
    """Whom to ask that no work begins on nodes, and the seconds that work may take to end."""

    drainer: Drainer
    seconds: float


def act_drained(
    crew: Crew, draining: Draining, act: Act, *, force: bool, back: bool
) -> list[NodeOutcome]:
    """Do `act` to nodes as nothing runs on them any more; one whose work goes on is left alone.

    Nodes that do not answer to ssh are drained only if `force` is going to touch them.  With
    `back`, work is let onto those that are done; the others stay drained.
    """
    ready = [name for name, state in crew.states(crew.names).items() if state.ready]
    waiting = crew.names if force else ready
    free = [name for name in crew.names if name not in waiting]
    outcomes: dict[str, NodeOutcome] = {}
    said: dict[str, str] = {}
    deadline = time.monotonic() + draining.seconds
    try:
        while waiting or free:
            work = draining.drainer.drain(waiting, REASON) if waiting else {}
            free += [name for name in waiting if not work[name]]
            waiting = [name for name in waiting if work[name]]
            if free:
                outcomes |= {o.node: o for o in act_once(crew, free, draining, act, back=back)}
                free = []
                continue
            tell_work(crew, work, said)
            said = work
            if time.monotonic() > deadline:
                break
            time.sleep(POLL)
    finally:
        let_work_onto(crew, draining, waiting)
    late = {name: missed(name, f"was not touched: {said[name]}") for name in waiting}
    return in_order(crew, outcomes | late)


def act_once(
    crew: Crew, names: Sequence[str], draining: Draining, act: Act, *, back: bool
) -> list[NodeOutcome]:
    """Do it to these nodes, which are drained, and say which of them stay so."""
    outcomes = act(crew.only(names))
    ready = {o.node for o in outcomes if back and o.done}
    let_work_onto(crew, draining, sorted(ready))
    return [o if o.done else stays_drained(o) for o in outcomes]


def stays_drained(outcome: NodeOutcome) -> NodeOutcome:
    return replace(outcome, words=f"{outcome.words}; if it was drained, `up` lets work onto it")


def let_work_onto(crew: Crew, draining: Draining, names: Iterable[str]) -> None:
    """Let work onto those that we drained; what is wrong with that is told."""
    try:
        draining.drainer.resume([*names], REASON)
    except ImagebuilderError as error:
        crew.tell(f"{error}")


def tell_work(crew: Crew, work: Mapping[str, str], said: Mapping[str, str]) -> None:
    """Tell of work that goes on, once for all nodes of which the same is said."""
    fresh: dict[str, list[str]] = {}
    for name, what in work.items():
        if what and said.get(name) != what:
            fresh.setdefault(what, []).append(name)
    for what, names in fresh.items():
        crew.tell(f"{fold(names)}: waiting for its work to end: {what}")
