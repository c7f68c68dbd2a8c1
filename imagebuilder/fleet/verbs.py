# SPDX-License-Identifier: Apache-2.0
"""up, down, restart: each action is asked for, then confirmed by evidence or contradicted.

`asked` is not `done`: a verb ends when every node gave evidence, or when its time is over.  Where a
scheduler is, work ends before `down` and `restart`, and what comes back gets work again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from imagebuilder.digest import Json
from imagebuilder.errors import ImagebuilderError
from imagebuilder.fleet.drain import Drainer
from imagebuilder.fleet.limited import try_each
from imagebuilder.fleet.overview import observe
from imagebuilder.fleet.power.protocol import PowerDriver, PowerError
from imagebuilder.fleet.select import fold
from imagebuilder.fleet.ssh import Said, last_line, run_on
from imagebuilder.fleet.state import NodeState
from imagebuilder.nodes.types import Node
from imagebuilder.ssh import SSH_FAILED
from imagebuilder.tree import Tree

POLL = 2.0
SSH_SECONDS = 30.0
OFF_SECONDS = 60.0
BOOT_ID = ("cat", "/proc/sys/kernel/random/boot_id")
OFF = ("sudo", "-n", "systemctl", "poweroff")
REBOOT = ("sudo", "-n", "systemctl", "reboot")
Tell = Callable[[str], None]
T = TypeVar("T")
WORK_POLL = 5.0  # seconds between two checks of the work that is left
# `up` and `restart` let work onto what `down` and `restart` drained, whoever of them was killed.
REASON = "imagebuilder down or restart"


@dataclass(frozen=True)
class NodeOutcome:
    """What became of a node: whether what was asked for was seen, and in words."""

    node: str
    done: bool
    words: str

    def as_json(self) -> dict[str, Json]:
        return {"node": self.node, "done": self.done, "words": self.words}

    def row(self) -> tuple[str, ...]:
        """The columns of `up`, `down` and `restart`."""
        return self.node, "done" if self.done else "FAILED", self.words


def done(node: str, words: str) -> NodeOutcome:
    return NodeOutcome(node, done=True, words=words)


def missed(node: str, words: str) -> NodeOutcome:
    return NodeOutcome(node, done=False, words=words)


def explain_failure(error: ImagebuilderError) -> str:
    """What went wrong and what to try, without the node that it names."""
    fault = error.faults[0]
    return "; ".join(each for each in (fault.what, fault.hint) if each)


@dataclass(frozen=True)
class Crew:
    """Nodes with what is needed to reach and switch them; `tell` hears of each as it happens."""

    tree: Tree
    nodes: tuple[Node, ...]
    drivers: Mapping[str, PowerDriver]
    tell: Tell

    @property
    def names(self) -> list[str]:
        return [node.name for node in self.nodes]

    def only(self, names: Collection[str]) -> Crew:
        """The same for some of the nodes."""
        return replace(self, nodes=tuple(node for node in self.nodes if node.name in names))

    def states(self, names: Sequence[str]) -> dict[str, NodeState]:
        return {state.node: state for state in observe(self.tree, self.only(names).nodes)}

    def run(self, names: Collection[str], command: Sequence[str]) -> dict[str, Said]:
        nodes = self.only(names).nodes
        return {said.node: said for said in run_on(self.tree, nodes, command, SSH_SECONDS)}

    def order(self, names: Collection[str], command: Sequence[str]) -> dict[str, str]:
        """Run a command; tells and returns why nodes did not take it."""
        refused = refusals(self.run(names, command))
        for name, why in refused.items():
            self.tell(f"{name}: {why}")
        return refused

    def switch(
        self, names: Sequence[str], action: Callable[[PowerDriver], T]
    ) -> dict[str, T | ImagebuilderError]:
        return try_each({name: self.drivers[name] for name in names}, action)


def power_up(crew: Crew, seconds: float) -> list[NodeOutcome]:
    """Switch nodes on, and wait up to `seconds` until each answers (0: only ask)."""
    states = crew.states(crew.names)
    outcomes = {n: done(n, "is up already") for n, s in states.items() if s.ready}
    switched = crew.switch(
        [name for name in crew.names if name not in outcomes], lambda driver: driver.on()
    )
    for name, result in switched.items():
        if isinstance(result, ImagebuilderError):
            outcomes[name] = missed(name, explain_failure(result))
            crew.tell(f"{result}")
        elif not seconds:
            outcomes[name] = done(name, "was asked to switch on")
    waiting = [name for name in crew.names if name not in outcomes]
    found = await_nodes(crew, waiting, seconds, is_up)
    return in_order(crew, outcomes | found)


def power_down(crew: Crew, seconds: float, *, force: bool) -> list[NodeOutcome]:
    """Shut nodes down over ssh and wait until they are off; `force` cuts the power of the rest.

    Off is: the driver says so, or, where it cannot tell, the ssh server of a node that was asked no
    longer answers.  One that was silent before is not done: it was asked nothing.
    """
    states = crew.states(crew.names)
    up = [name for name, state in states.items() if state.ready]
    refused = crew.order(up, OFF)
    blind = find_blind(crew, [name for name in crew.names if name not in up])
    hopeful = [name for name in crew.names if name not in blind]
    found = blind | await_nodes(crew, hopeful, seconds, is_off)
    left = [name for name, outcome in found.items() if not outcome.done]
    if force and left:
        failed = failures(crew.switch(left, lambda driver: driver.off()))
        cut_off = [name for name in left if name not in failed]
        found |= failed | await_nodes(crew, cut_off, seconds, is_off)
    return in_order(crew, with_reasons(found, refused))


def find_blind(crew: Crew, silent: Sequence[str]) -> dict[str, NodeOutcome]:
    """Those of the silent nodes whose driver cannot tell whether they are off."""
    power = crew.switch(silent, lambda driver: driver.is_on())
    words = "did not answer before either, and its power driver cannot tell whether it is off"
    return {name: missed(name, words) for name in silent if power[name] is None}


def restart(crew: Crew, seconds: float, *, force: bool) -> list[NodeOutcome]:
    """Reboot nodes over ssh, and wait until each answers from another boot.

    With `force`, a node that does not answer to ssh has its power cut and switched on again.
    """
    before = boot_ids(crew, crew.names)
    refused = crew.order(before, REBOOT)
    dead = [name for name in crew.names if name not in before]
    untouched = "does not answer to ssh, so it was not touched; --force cuts its power"
    outcomes = cycle(crew, dead) if force else {name: missed(name, untouched) for name in dead}
    waiting = [n for n in crew.names if n not in outcomes and n not in refused]

    def is_back(crew: Crew, names: Sequence[str]) -> dict[str, str]:
        ready = [name for name, state in crew.states(names).items() if state.ready]
        now = boot_ids(crew, ready)
        return {n: "restarted" for n in ready if n in now and now[n] != before.get(n)}

    found = await_nodes(crew, waiting, seconds, is_back)
    gone = {name: missed(name, why) for name, why in refused.items()}
    return in_order(crew, outcomes | gone | found)


def cycle(crew: Crew, names: Sequence[str]) -> dict[str, NodeOutcome]:
    """Cut the power and switch it on again; the outcomes of those where that failed."""

    def off_and_on(driver: PowerDriver) -> None:
        driver.off()
        await_off(driver)
        driver.on()

    return failures(crew.switch(names, off_and_on))


def failures(results: Mapping[str, object]) -> dict[str, NodeOutcome]:
    """The outcomes of nodes that could not be switched."""
    return {
        name: missed(name, explain_failure(result))
        for name, result in results.items()
        if isinstance(result, ImagebuilderError)
    }


def await_off(driver: PowerDriver) -> None:
    """Wait until the driver says that the power is off, POLL seconds where it cannot tell.

    A BMC answers before it acts, and `on` to a node that still has power is lost.
    Raises PowerError when it says for OFF_SECONDS that the power is on.
    """
    deadline = time.monotonic() + OFF_SECONDS
    time.sleep(POLL)
    while driver.is_on():
        if time.monotonic() > deadline:
            raise PowerError(f"still has power {OFF_SECONDS:g} s after it was cut")
        time.sleep(POLL)


def boot_ids(crew: Crew, names: Sequence[str]) -> dict[str, str]:
    """The kernel's id of the running boot (random(4)) of those that can be logged in to."""
    said = crew.run(names, BOOT_ID)
    return {n: one.from_boot_id.strip() for n, one in said.items() if one.from_boot_id}


def refusals(said: Mapping[str, Said]) -> dict[str, str]:
    """Why a node did not take a command; a connection that its shutdown ended is none."""
    found = {}
    for name, one in said.items():
        said_nothing = not (one.errors + one.output).strip()
        if one.succeeded or one.status is None or (one.status == SSH_FAILED and said_nothing):
            continue
        if "closed by remote host" not in one.errors + one.output:
            why = last_line(one.errors) or last_line(one.output) or one.last_words
            found[name] = f"did not take the command: {why}"
    return found


Seek = Callable[[Crew, Sequence[str]], Mapping[str, str]]


def await_nodes(
    crew: Crew, names: Sequence[str], seconds: float, seek: Seek
) -> dict[str, NodeOutcome]:
    """Ask again and again until `seek` has evidence of every node, at most for `seconds`.

    Whoever interrupts it hears who is missing, and why.
    """
    found: dict[str, NodeOutcome] = {}
    try:
        seek_all(crew, names, seconds, seek, found)
    except KeyboardInterrupt:
        for outcome in find_late(crew, names, found).values():
            crew.tell(f"{outcome.node}: not done: {outcome.words}")
        raise
    return found | find_late(crew, names, found)


def find_late(
    crew: Crew, names: Sequence[str], found: Mapping[str, NodeOutcome]
) -> dict[str, NodeOutcome]:
    """Those that are not in `found`, with how they are now."""
    states = crew.states([name for name in names if name not in found])
    return {name: missed(name, state.words) for name, state in states.items()}


def seek_all(
    crew: Crew, names: Sequence[str], seconds: float, seek: Seek, found: dict[str, NodeOutcome]
) -> None:
    """Fill `found` with the outcomes of nodes as there is evidence of them."""
    started = time.monotonic()
    while waiting := [name for name in names if name not in found]:
        for name, words in seek(crew, waiting).items():
            took = f"{time.monotonic() - started:.0f} s"
            found[name] = done(name, f"{words} after {took}")
            crew.tell(f"{name}: {found[name].words}")
        if len(found) == len(names) or time.monotonic() - started > seconds:
            break
        time.sleep(POLL)


def is_up(crew: Crew, names: Sequence[str]) -> dict[str, str]:
    return {name: "is up" for name, state in crew.states(names).items() if state.ready}


def is_off(crew: Crew, names: Sequence[str]) -> dict[str, str]:
    silent = [name for name, state in crew.states(names).items() if not state.ready]
    power = crew.switch(silent, lambda driver: driver.is_on())
    found = {}
    for name in silent:
        if power[name] is False:
            found[name] = "is off"
        elif power[name] is None:
            found[name] = "no longer answers"
    return found


def with_reasons(
    found: Mapping[str, NodeOutcome], reasons: Mapping[str, str]
) -> dict[str, NodeOutcome]:
    """Outcomes; those that are not done say why, where that is known."""
    return {
        name: outcome if outcome.done or name not in reasons
        else missed(name, f"{outcome.words}; {reasons[name]}")
        for name, outcome in found.items()
    }  # fmt: skip


def in_order(crew: Crew, outcomes: Mapping[str, NodeOutcome]) -> list[NodeOutcome]:
    return [outcomes[name] for name in crew.names]


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
            time.sleep(WORK_POLL)
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
    more = "; if it was drained, `up` lets work onto it"
    return [o if o.done else replace(o, words=o.words + more) for o in outcomes]


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
