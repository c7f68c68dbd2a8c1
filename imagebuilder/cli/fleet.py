# SPDX-License-Identifier: Apache-2.0
"""Running nodes: status, commands over ssh, power."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from imagebuilder.cli.context import (
    Call,
    argument,
    exit_unless,
    option,
    print_answer,
    print_json,
    print_list,
    print_table,
)
from imagebuilder.cli.names import AsJson, Drain, DrainSeconds, TreeOption
from imagebuilder.tree import DEFAULT_TREE
from imagebuilder.untrusted import clean_lines

if TYPE_CHECKING:
    from pathlib import Path

    from imagebuilder.fleet.verbs import Act, Crew, Draining, NodeOutcome
    from imagebuilder.nodes.types import Node
    from imagebuilder.tree import Tree

HEADERS = ("node", "state", "health", "said", "runs", "boots next", "")
NODES = "Nodes: node1, node[0-31], @all, @GROUP, @LABEL, @profile:NAME, @all!node2."
NodeSetArgument = Annotated[list[str], argument(NODES, metavar="NODES")]
OptionalNodes = Annotated[list[str] | None, argument(f"{NODES} [default: @all]", metavar="NODES")]
Yes = Annotated[bool, option("Do not ask before changing nodes of several groups.", "--yes")]
Force = Annotated[bool, option("Cut the power of nodes that do not shut down over ssh.", "--force")]
Seconds = Annotated[
    float, option("Seconds to wait for each step of every node.", "--timeout", min=1)
]


def status(
    nodes: OptionalNodes = None,
    ask: Annotated[
        bool, option("Ask nodes for their health over ssh instead of using reports.", "--ask")
    ] = False,
    no_health: Annotated[bool, option("Do not show the health of nodes.", "--no-health")] = False,
    watch: Annotated[bool, option("Refresh until Ctrl-C.", "--watch")] = False,
    every: Annotated[float, option("Interval of --watch.", metavar="SECONDS", min=1)] = 5,
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Show the state and the health of nodes, as observed now.

    The health is what each node reported last in this boot, every 10 minutes. Exits with 1 unless
    all are ready and healthy.

    Example: imagebuilder status @profile:rx7600xt
    """
    from datetime import UTC, datetime

    from imagebuilder.fleet.overview import overview

    words = nodes or ["@all"]
    opened, chosen = open_nodes(tree, words)
    if watch and not json and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        watch_on_terminal(opened, words, every, health=not no_health, ask=ask)
    while True:
        views = overview(opened, chosen, health=not no_health, ask=ask)
        if json:
            print_json([view.as_json() for view in views])
        else:
            now = datetime.now(UTC)
            print_table([view.row(now) for view in views], HEADERS, empty="no nodes")
        if not watch:
            break
        time.sleep(every)
    exit_unless(all(view.good for view in views))


def watch_on_terminal(
    tree: Tree, words: Sequence[str], every: float, *, health: bool, ask: bool
) -> NoReturn:
    """Show nodes and roll-outs until Ctrl-C."""
    from datetime import UTC, datetime

    from imagebuilder.fleet.overview import overview
    from imagebuilder.fleet.rollout.journal import find_live_rollouts
    from imagebuilder.fleet.screen import FleetShot, watch

    def find_shot() -> FleetShot:
        _, chosen = open_nodes(tree.path, words)
        views = overview(tree, chosen, health=health, ask=ask)
        return FleetShot(datetime.now(UTC), views, find_live_rollouts(tree))

    watch(tree, find_shot, every)


def run_on_nodes(
    words: Annotated[list[str], argument(f"{NODES} Then the command.", metavar="NODES -- COMMAND")],
    timeout: Annotated[float | None, option("Seconds to wait for each node.", min=1)] = None,
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Run a command on nodes over ssh. Equal output is printed once, with the nodes that gave it.

    Host keys are those that the tree knows. Exits with 1 unless it succeeded on every node.

    Example: imagebuilder run @all -- uptime
    """
    from imagebuilder.fleet.ssh import MOST_TYPED, group_output, run_on

    nodes, script = split_command(words)
    opened, chosen = open_nodes(tree, nodes)
    said = run_on(opened, chosen, script, timeout, most=MOST_TYPED, merged=True)
    value = [{"node": s.node, "status": s.status, "output": s.output} for s in said]
    groups = [(names, len(of), of[0].status, of[0].output) for names, of in group_output(said)]
    print_answer(value, "\n".join(render_group(*group) for group in groups), json=json)
    exit_unless(all(one.succeeded for one in said))


def up(
    context: Call,
    nodes: NodeSetArgument,
    wait: Annotated[
        bool, option("Wait until each node answers to ssh.", "--wait/--no-wait")
    ] = True,
    timeout: Seconds = 900,
    drain: Drain = "none",
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Switch nodes on, and wait until each is ready. With --drain, they may get work again.

    Example: imagebuilder up node[0-3]
    """
    from imagebuilder.fleet.verbs import power_up

    crew = make_crew(context, tree, nodes, ["on"])
    draining = make_draining(crew, drain)
    outcomes = power_up(crew, timeout if wait else 0)
    if draining and wait:
        from imagebuilder.fleet.verbs import let_work_onto

        let_work_onto(crew, draining, [outcome.node for outcome in outcomes if outcome.done])
    finish(outcomes, json=json)


def down(
    context: Call,
    nodes: NodeSetArgument,
    yes: Yes = False,
    force: Force = False,
    timeout: Seconds = 180,
    drain: Drain = "none",
    drain_timeout: DrainSeconds = 43_200,
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Shut nodes down over ssh, and wait until they are off. With --drain, their work ends first.

    Example: imagebuilder down @all --yes
    """
    from imagebuilder.fleet.verbs import power_down

    crew = make_crew(context, tree, nodes, ["off"] if force else [])
    draining = make_draining(crew, drain, drain_timeout)
    confirm("shut down", crew.nodes, yes=yes)
    act = partial(power_down, seconds=timeout, force=force)
    finish(after_work(crew, draining, act, force=force, back=False), json=json)


def restart(
    context: Call,
    nodes: NodeSetArgument,
    yes: Yes = False,
    force: Force = False,
    timeout: Seconds = 900,
    drain: Drain = "none",
    drain_timeout: DrainSeconds = 43_200,
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Reboot nodes over ssh, and wait until each answers from a new boot. With --drain, their work
    ends first, and they may get work again afterwards.

    Example: imagebuilder restart @gpu --yes
    """
    from imagebuilder.fleet.verbs import restart as restart_nodes

    crew = make_crew(context, tree, nodes, ["off", "on"] if force else [])
    draining = make_draining(crew, drain, drain_timeout)
    confirm("restart", crew.nodes, yes=yes)
    act = partial(restart_nodes, seconds=timeout, force=force)
    finish(after_work(crew, draining, act, force=force, back=True), json=json)


def open_nodes(tree: Path, words: Sequence[str]) -> tuple[Tree, tuple[Node, ...]]:
    """The tree, and the nodes that were named.  Raises InputError."""
    from imagebuilder.fleet.select import select_nodes
    from imagebuilder.nodes.load import load_nodes
    from imagebuilder.publish.find import find_tree

    opened = find_tree(tree)
    return opened, select_nodes(words, load_nodes(opened))


def make_crew(context: Call, tree: Path, words: Sequence[str], needs: Sequence[str]) -> Crew:
    """The nodes with their power drivers.  Raises InputError for everything that is missing.

    `needs` is what will be asked of the power: `on`, `off`.
    """
    from imagebuilder.fleet.addresses import find_addresses
    from imagebuilder.fleet.power.choose import choose_drivers
    from imagebuilder.fleet.verbs import Crew

    opened, chosen = open_nodes(tree, words)
    drivers = choose_drivers(chosen, find_addresses(opened, chosen), os.environ, needs)
    return Crew(opened, chosen, drivers, context.obj.ui.note)


def make_draining(crew: Crew, kind: str, seconds: float = 0) -> Draining | None:
    """How work is taken off these nodes; None where nothing schedules any.

    Raises ImagebuilderError when the scheduler does not answer, or does not know one of them.
    """
    if kind == "none":
        return None
    from imagebuilder.fleet.drain import choose_drainer
    from imagebuilder.fleet.verbs import Draining

    drainer = choose_drainer(kind)
    drainer.check(crew.names)
    return Draining(drainer, seconds)


def after_work(
    crew: Crew, draining: Draining | None, act: Act, *, force: bool, back: bool
) -> list[NodeOutcome]:
    """Do it to the nodes: at once, or as their work ends."""
    if draining is None:
        return act(crew)
    from imagebuilder.fleet.verbs import act_drained

    return act_drained(crew, draining, act, force=force, back=back)


def split_command(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Nodes and command; Typer gives both in one list, without the `--` between them.

    Raises InputError when one of them is missing.
    """
    from imagebuilder.errors import InputError

    count = len(sys.argv) - sys.argv.index("--") - 1 if "--" in sys.argv else 0
    if not 0 < count < len(words):
        what = "no nodes are named before" if count else "no command follows"
        if "--" not in sys.argv:
            what = "nodes and command must be separated by"
        raise InputError(f"run: {what} --", hint="write imagebuilder run NODES -- COMMAND")
    return words[:-count], words[-count:]


def confirm(verb: str, nodes: Sequence[Node], *, yes: bool) -> None:
    """Ask before more than one group is touched.  Raises InputError where nobody can answer."""
    from imagebuilder.errors import InputError
    from imagebuilder.fleet.select import ask_about

    question = "" if yes else ask_about(verb, nodes)
    if not question:
        return
    if not sys.stdin.isatty():
        raise InputError(f"not confirmed: {question}", hint="add --yes to confirm")
    exit_unless(typer.confirm(question, err=True))


def finish(outcomes: Sequence[NodeOutcome], *, json: bool) -> None:
    """Print what became of each node, and end with 1 unless all is done."""
    print_list(outcomes, ("node", "outcome", "evidence"), empty="no nodes", json=json)
    exit_unless(all(outcome.done for outcome in outcomes))


def render_group(names: str, count: int, status: int | None, output: str) -> str:
    """As clush -b prints it: a rule, the nodes and how many, what they said.

    A rule that a node says is moved, or it could speak for another one.
    """
    how = {0: "", None: ", time ran out"}.get(status, f", exit status {status}")
    rule = "-" * 15
    said = re.sub(r"^[ \t]*-+\s*$", r" \g<0>", clean_lines(output), flags=re.MULTILINE)
    return f"{rule}\n{names} ({count}{how})\n{rule}\n{said}".rstrip("\n")
