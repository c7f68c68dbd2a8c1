# SPDX-License-Identifier: Apache-2.0
"""Roll-outs: a release to one node, then some, then all, and back where it fails."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from imagebuilder.cli.context import Call, Context, argument, exit_unless, option, print_answer
from imagebuilder.cli.names import AsJson, Drain, DrainSeconds, TreeOption
from imagebuilder.tree import DEFAULT_TREE

if TYPE_CHECKING:
    from imagebuilder.fleet.health import Verdict
    from imagebuilder.fleet.rollout.message import TellRollout
    from imagebuilder.fleet.rollout.types import Rollout
    from imagebuilder.tree import Tree


class RolloutGroup(TyperGroup):
    """`rollout PROFILE` is short for `rollout start PROFILE`."""

    usual = "start"

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        known = {*self.commands, "--help", "-h"}
        if args and args[0] not in known and not ctx.resilient_parsing:
            args = [self.usual, *args]
        return super().parse_args(ctx, args)


rollout_app = typer.Typer(
    name="rollout",
    help="Roll out a release to nodes: `rollout PROFILE` starts it, see `rollout start --help`.",
    no_args_is_help=True,
    cls=RolloutGroup,
)

ProfileArgument = Annotated[str, argument("Profile of the roll-out.", metavar="PROFILE")]


@rollout_app.command()
def start(
    context: Call,
    name: Annotated[
        str, argument("Release; by default the candidate.", metavar="PROFILE[@VERSION]")
    ],
    canary: Annotated[
        str, option("Nodes to reboot first. [default: the first one up]", metavar="NODES")
    ] = "",
    batch: Annotated[str, option("Nodes after the canary: a percentage or a number.")] = "25%",
    at_once: Annotated[
        int, option("Maximum nodes updated at the same time; 0: a whole phase.", min=0)
    ] = 0,
    timeout: Annotated[
        float, option("Seconds for a node to reboot and become healthy.", min=1)
    ] = 900,
    drain: Drain = "none",
    drain_timeout: DrainSeconds = 43_200,
    accept: Annotated[
        list[str], option("Health verdict to accept as ok, such as unknown. Repeatable.")
    ] = [],  # noqa: B006 - Typer's way; it is never changed
    untested: Annotated[
        str, option("Proceed without a passed boot test; the reason is recorded.", metavar="REASON")
    ] = "",
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Roll out a release: to one node, then a batch, then all. It stops if a node fails.

    A node that fails goes back to the old release.

    Example: imagebuilder rollout rx7600xt --canary node7
    """
    from imagebuilder.fleet.rollout.command import start_rollout
    from imagebuilder.fleet.rollout.start import RolloutOrder
    from imagebuilder.fleet.rollout.types import RolloutTerms

    accepted = tuple(parse_verdict(word) for word in accept)
    terms = RolloutTerms(timeout, drain_timeout, accepted, drain, at_once, untested)
    order = RolloutOrder(name, terms, canary, batch)
    opened = open_for_change(tree)
    with notifying_of(context.obj, opened) as tell:
        finish(start_rollout(opened, order, os.environ, context.obj.ui, tell=tell), json=json)


@rollout_app.command()
def status(
    profile: Annotated[str, argument("Profile; by default every one.", metavar="[PROFILE]")] = "",
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Show the progress of roll-outs. Exits with 1 unless each of them is done.

    Example: imagebuilder rollout status rx7600xt
    """
    from imagebuilder.fleet.rollout.journal import find_live_rollouts
    from imagebuilder.fleet.rollout.show import render_rollout
    from imagebuilder.fleet.rollout.types import RolloutStatus
    from imagebuilder.publish.find import find_profile, find_tree

    opened = find_tree(tree)
    if profile:
        find_profile(opened, profile)
    found = [x for x in find_live_rollouts(opened) if profile in ("", x.rollout.profile)]
    empty = "no roll-out yet: run imagebuilder rollout PROFILE to start one"
    text = "\n\n".join(map(render_rollout, found)) or empty
    print_answer([each.as_json() for each in found], text, json=json)
    exit_unless(all(each.rollout.status is RolloutStatus.DONE for each in found))


@rollout_app.command()
def pause(context: Call, profile: ProfileArgument, tree: TreeOption = DEFAULT_TREE) -> None:
    """Pause a roll-out: nodes in progress finish, no other node starts.

    Example: imagebuilder rollout pause rx7600xt
    """
    from imagebuilder.fleet.rollout.journal import PAUSE

    wish(context, open_for_change(tree), profile, PAUSE)


@rollout_app.command()
def resume(
    context: Call, profile: ProfileArgument, tree: TreeOption = DEFAULT_TREE, json: AsJson = False
) -> None:
    """Continue a roll-out that was paused, stopped or interrupted.

    Example: imagebuilder rollout resume rx7600xt
    """
    from imagebuilder.fleet.rollout.command import resume_rollout

    opened = open_for_change(tree)
    with notifying_of(context.obj, opened) as tell:
        finish(resume_rollout(opened, profile, os.environ, context.obj.ui, tell=tell), json=json)


@rollout_app.command()
def abort(context: Call, profile: ProfileArgument, tree: TreeOption = DEFAULT_TREE) -> None:
    """Abort a roll-out, and return every node that it touched to the old release.

    Example: imagebuilder rollout abort rx7600xt
    """
    from imagebuilder.fleet.rollout.journal import ABORT

    wish(context, open_for_change(tree), profile, ABORT)


def wish(context: Call, tree: Tree, profile: str, word: str) -> None:
    """Have a roll-out paused or aborted, and print how it is if that was done here."""
    from imagebuilder.fleet.rollout.command import obey_wish, send_wish
    from imagebuilder.fleet.rollout.types import RolloutStatus

    if send_wish(tree, profile, word, context.obj.ui):
        return
    with notifying_of(context.obj, tree) as tell:
        done = obey_wish(tree, profile, word, os.environ, context.obj.ui, tell=tell)
        if done.status is not RolloutStatus.PAUSED:
            finish(done, json=False, wanted=RolloutStatus.ABORTED)


@contextmanager
def notifying_of(common: Context, tree: Tree) -> Iterator[TellRollout]:
    """Who is told of roll-outs, as the site file says, also of those that were interrupted.

    At the end messages are sent.
    """
    from imagebuilder.fleet.rollout.message import report_interruptions, telling
    from imagebuilder.notify.receivers import find_receivers, load_notify
    from imagebuilder.notify.send import notifying

    site = load_notify(common.settings, os.environ)
    with notifying(find_receivers(site, os.environ), common.ui.warn) as notifier:
        try:
            yield telling(notifier)
        finally:
            report_interruptions(tree, telling(notifier), reported_by_web(common, tree))


def reported_by_web(common: Context, tree: Tree) -> frozenset[str]:
    """The interruptions that a web server told of: one of ours, or the installed unit."""
    from imagebuilder.web.install import STATE
    from imagebuilder.web.notify_record import find_interruptions

    return find_interruptions(common.settings.state, tree) | find_interruptions(STATE, tree)


def finish(rollout: Rollout, *, json: bool, wanted: str = "done") -> None:
    """Print how it ended, and end with 1 unless it is as it should be."""
    from imagebuilder.fleet.rollout.show import render_rollout
    from imagebuilder.fleet.rollout.types import LiveRollout

    live = LiveRollout(rollout, runs=False)
    print_answer(live.as_json(), render_rollout(live), json=json)
    exit_unless(rollout.status == wanted)


def open_for_change(tree: Path) -> Tree:
    """The tree, which we may write.  Raises InputError and RootError."""
    from imagebuilder.publish.find import open_tree
    from imagebuilder.rights import check_writable

    opened = open_tree(tree)
    check_writable(opened.path)
    return opened


def parse_verdict(word: str) -> Verdict:
    """Raises InputError."""
    from imagebuilder.errors import InputError
    from imagebuilder.fleet.health import Verdict
    from imagebuilder.phrases import quote, suggest

    known = [verdict.value for verdict in Verdict]
    if word not in known:
        raise InputError(f"--accept {quote(word)}: is not a verdict", hint=suggest(word, known))
    return Verdict(word)
