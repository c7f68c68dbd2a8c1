# SPDX-License-Identifier: Apache-2.0
"""What can be asked for on the web page: a closed list of verbs, and the command of each.

An order has no words of a command line in it, only values of fields that each have a pattern.  None
of them can begin with `-`, and all stand after `--` or within their option's own word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field, ValidationError

from imagebuilder.decode import describe, validate
from imagebuilder.digest import Json
from imagebuilder.errors import InputError
from imagebuilder.process import paste
from imagebuilder.tree import NAME
from imagebuilder.web.roles import Role

MOST_NODES = 1000  # words that name nodes
MOST_NAMED = 5  # in a sentence
NODE = r"^[A-Za-z0-9@][A-Za-z0-9@:._!&,^+\[\]-]{0,199}$"
NodeWord = Annotated[str, Field(pattern=NODE)]
ReleaseWord = Annotated[str, Field(pattern=f"^({NAME}(@{NAME})?)?$")]
ProfileWord = Annotated[str, Field(pattern=f"^({NAME})?$")]
OptionalNodes = Annotated[str, Field(pattern=f"^({NODE[1:-1]})?$")]
BatchWord = Annotated[str, Field(pattern=r"^([0-9]{1,5}%?)?$")]
HINT = "see /api/v1/openapi.json for what each verb needs"


class ActVerb(StrEnum):
    UP = "up"
    DOWN = "down"
    RESTART = "restart"
    PROMOTE = "promote"
    ROLLBACK = "rollback"
    ROLLOUT = "rollout"
    PAUSE = "pause"
    RESUME = "resume"
    ABORT = "abort"


@dataclass(frozen=True)
class ActOrder:
    """What is to be done. up, down and restart need `nodes` (sets such as `@gpu!node7` too) and
    the role power; promote and rollout need `release` (PROFILE for its candidate, or
    PROFILE@VERSION), rollback, pause, resume and abort need `profile`, and all these the role
    release. `force` is for down and restart, and so is `yes`, without which they touch one group
    alone; `canary` and `batch` are for rollout."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    verb: ActVerb
    nodes: Annotated[tuple[NodeWord, ...], Field(max_length=MOST_NODES)] = ()
    release: ReleaseWord = ""
    profile: ProfileWord = ""
    force: bool = False
    yes: bool = False
    canary: OptionalNodes = ""
    batch: BatchWord = ""

    @property
    def kind(self) -> VerbKind:
        return KINDS[self.verb]

    @property
    def argv(self) -> list[str]:
        """The words of the command, without the program."""
        options = [
            f"--{name}={value}" for name in ("canary", "batch") if (value := getattr(self, name))
        ]
        options += [f"--{name}" for name in ("force", "yes") if getattr(self, name)]
        named = self.nodes or (self.release or self.profile,)
        return [*self.kind.command, *options, "--", *named]

    @property
    def command(self) -> str:
        """The command, for people."""
        return f"imagebuilder {paste(self.argv)}"

    @property
    def subject(self) -> str:
        if len(self.nodes) > MOST_NAMED:
            return f"{len(self.nodes)} nodes"
        return ", ".join(self.nodes) or self.release or self.profile

    @property
    def words(self) -> str:
        """What will happen, as a sentence."""
        said = self.kind.words.format(self.subject)
        return f"{said} {FORCED}" if self.force else said


@dataclass(frozen=True)
class VerbKind:
    """A verb: the role it takes, its field, what else it may have, its command.

    `words` say what will happen, `button` is on the button for it.  What `asks` has to be
    confirmed if it is for nodes of more than one group, as on the command line.
    """

    role: Role
    field: str
    more: tuple[str, ...]
    command: tuple[str, ...]
    words: str
    button: str
    asks: str = ""


FORCED = "The power of nodes that do not respond over ssh is cut."
KINDS: Mapping[ActVerb, VerbKind] = {
    ActVerb.UP: VerbKind(
        Role.POWER, "nodes", (), ("up",),
        "Switches {} on, and waits until each is ready.", "Switch on",
    ),
    ActVerb.DOWN: VerbKind(
        Role.POWER, "nodes", ("force", "yes"), ("down",),
        "Shuts {} down over ssh, and waits until each is off.", "Shut down", "shut down",
    ),
    ActVerb.RESTART: VerbKind(
        Role.POWER, "nodes", ("force", "yes"), ("restart",),
        "Reboots {} over ssh, and waits until each is back.", "Restart", "restart",
    ),
    ActVerb.PROMOTE: VerbKind(
        Role.RELEASE, "release", (), ("promote",),
        "Moves stable to {} if it has passed its boot test. Nodes take it when they boot.",
        "Promote",
    ),
    ActVerb.ROLLBACK: VerbKind(
        Role.RELEASE, "profile", (), ("rollback",),
        "Moves stable of {} back to the release before. Nodes take it when they boot.",
        "Roll back",
    ),
    ActVerb.ROLLOUT: VerbKind(
        Role.RELEASE, "release", ("canary", "batch"), ("rollout", "start"),
        "Reboots nodes into {}: one first, then a batch, then all. The first failure stops it.",
        "Roll out",
    ),
    ActVerb.PAUSE: VerbKind(
        Role.RELEASE, "profile", (), ("rollout", "pause"),
        "Starts no further node in the roll-out of {}; nodes in progress are finished.", "Pause",
    ),
    ActVerb.RESUME: VerbKind(
        Role.RELEASE, "profile", (), ("rollout", "resume"),
        "Continues the roll-out of {}.", "Resume",
    ),
    ActVerb.ABORT: VerbKind(
        Role.RELEASE, "profile", (), ("rollout", "abort"),
        "Aborts the roll-out of {}: every node it touched is rebooted into the old release.",
        "Abort",
    ),
}  # fmt: skip
FIELDS = tuple(field.name for field in fields(ActOrder) if field.name != "verb")


def parse_order(value: Json | Mapping[str, object]) -> ActOrder:
    """An order from what somebody sent.  Raises InputError."""
    try:
        order = validate(ActOrder, value)
    except ValidationError as error:
        raise InputError(describe(error)[1], hint=HINT) from error
    kind = order.kind
    if not getattr(order, kind.field):
        raise InputError(f"{order.verb} needs `{kind.field}`", hint=HINT)
    alien = [n for n in FIELDS if getattr(order, n) and n not in (kind.field, *kind.more)]
    if alien:
        raise InputError(f"{order.verb} knows no `{alien[0]}`", hint=HINT)
    return order


def parse_form(sent: Sequence[tuple[str, str]]) -> ActOrder:
    """An order from the fields of a form or a query; others than an order's are left out.

    Raises InputError.
    """
    found: dict[str, object] = {n: v.strip() for n, v in sent if n in ("verb", *FIELDS)}
    if "nodes" in found:
        found["nodes"] = [word for n, v in sent if n == "nodes" for word in v.split()]
    found |= {name: found.get(name) == "on" for name in ("force", "yes")}
    return parse_order(found)
