# SPDX-License-Identifier: Apache-2.0
"""`imagebuilder act`: one action for the web page, which itself may do nothing.

The page has no right but to send one request to this program: a token, from which address it came,
and an order.  Everything is decided here: whose token it is, whether its role is for that, and what
the command is.  The answer is one line; then the command runs to its end, whatever becomes of the
page.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path

from pydantic import ConfigDict

from imagebuilder.decode import Opaque, decode_box, encode_box, parse_object
from imagebuilder.environment import OWN_MODULE
from imagebuilder.errors import ImagebuilderError, InputError
from imagebuilder.process import run
from imagebuilder.publish.journal import ASKER
from imagebuilder.tree import Tree
from imagebuilder.untrusted import clean, fit
from imagebuilder.web.action_journal import (
    ActionEvent,
    ActionLine,
    ActionLog,
    action_log,
    note,
    now,
)
from imagebuilder.web.orders import ActOrder, parse_order
from imagebuilder.web.tokens import Token, find_token

REQUEST = "the request"
MOST_REQUEST = 256 * 1024
SECONDS = 10.0  # for the request to come
# The end of an action is worth an hour of patience with a full disk.
TRIES, PAUSE = 720, 5.0
# A command never becomes root by itself: whoever started the page may have sudo without a password.
COMMAND_ENV = {"IMAGEBUILDER_SUDO": "never", "NO_COLOR": "1"}


@dataclass(frozen=True)
class ActAnswer:
    """What the page is told: a status of HTTP, why not, who it is for, and the action's id."""

    status: int
    error: str = ""
    name: str = ""
    role: str = ""
    id: str = ""


class RefusedError(Exception):
    """Why nothing is done."""

    def __init__(self, status: HTTPStatus, words: str) -> None:
        self.answer = ActAnswer(status, words)
        super().__init__(words)


@dataclass(frozen=True)
class ActEnvelope:
    """What comes: without an order only the token is asked about."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    token: str
    address: str
    order: Opaque | None = None


@dataclass(frozen=True)
class ActRequest:
    """The same, known to be of somebody with a token."""

    token: Token
    address: str
    order: ActOrder | None


@dataclass(frozen=True)
class ActCaller:
    """Who asks: the descriptors of the request and of the answer, which may be one socket."""

    source: int = 0
    sink: int = 1

    def tell(self, answer: ActAnswer) -> None:
        """Answer if anybody is still there, and hang up: what comes next needs nobody."""
        with contextlib.suppress(OSError):
            os.write(self.sink, json.dumps(encode_box(answer)).encode() + b"\n")
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, self.source)
        os.dup2(nothing, self.sink)
        os.close(nothing)


def act(tree: Tree, tokens: Path, caller: ActCaller, env: Mapping[str, str]) -> int:
    """Answer the one request that the caller makes, and do it; an exit status."""
    try:
        request = parse_request(read_request(caller.source), tokens)
        if request.order is None:
            caller.tell(ActAnswer(HTTPStatus.OK, "", request.token.name, request.token.role))
            return 0
        return perform(tree, request, request.order, caller.tell, env)
    except RefusedError as error:
        caller.tell(error.answer)
        return 1


def read_request(source: int, seconds: float = SECONDS, most: int = MOST_REQUEST) -> bytes:
    """The line that comes, of bounded size and in a bounded time.  Raises RefusedError."""
    until, found = time.monotonic() + seconds, b""
    while b"\n" not in found:
        left = until - time.monotonic()
        ready, _, _ = select.select([source], [], [], max(0.0, left))
        if not ready:
            raise RefusedError(HTTPStatus.REQUEST_TIMEOUT, "the request did not come in time")
        more = os.read(source, 65536)
        found += more
        if len(found) > most:
            raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the request is too long")
        if not more:
            break
    return found.partition(b"\n")[0]


def parse_request(raw: bytes, tokens: Path) -> ActRequest:
    """Raises RefusedError, for a token that is nobody's before anything else is looked at."""
    try:
        envelope = decode_box(ActEnvelope, parse_object(raw, REQUEST, hint=""), REQUEST, hint="")
        token = find_token(tokens, envelope.token)
    except InputError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, str(error)) from error
    except ImagebuilderError as error:
        raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
    if token is None:
        print(f"unknown token, from {fit(envelope.address)}", file=sys.stderr)
        raise RefusedError(HTTPStatus.UNAUTHORIZED, "there is no such token")
    try:
        order = parse_order(envelope.order) if envelope.order is not None else None
    except InputError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, str(error)) from error
    return ActRequest(token, fit(envelope.address), order)


def perform(
    tree: Tree,
    request: ActRequest,
    order: ActOrder,
    answer: Callable[[ActAnswer], None],
    env: Mapping[str, str],
) -> int:
    """Run the command of an order, on record; the command's exit status.  Raises RefusedError."""
    token = request.token
    key = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
    line = ActionLine(
        ActionEvent.BEGUN, key, now(), token.name, token.role, request.address,
        order.command, order.verb, order.profile or order.release.partition("@")[0],
    )  # fmt: skip
    if not token.role.covers(order.kind.role):
        words = f"this takes the role {order.kind.role}, and {token.name} has {token.role}"
        record(tree, replace(line, event=ActionEvent.REFUSED, words=words))
        raise RefusedError(HTTPStatus.FORBIDDEN, words)
    with ExitStack() as stack:
        try:
            log = stack.enter_context(action_log(tree, line.id))
        except ImagebuilderError as error:
            raise unrecorded(error) from error
        try:
            record(tree, line)
        except RefusedError:
            tree.action_log(line.id).unlink(missing_ok=True)
            raise
        answer(ActAnswer(HTTPStatus.ACCEPTED, "", token.name, token.role, line.id))
        # No order names a tree: its command has ours.
        more = {"IMAGEBUILDER_TREE": os.fspath(tree.path), ASKER: token.name, **COMMAND_ENV}
        argv = [sys.executable, *OWN_MODULE, *order.argv]
        status, words = run_command(argv, {**env, **more}, log)
        end = replace(line, event=ActionEvent.ENDED, time=now(), status=status, words=words)
        note_end(tree, end)
    return status


def record(tree: Tree, line: ActionLine) -> None:
    """Write a line down.  Raises RefusedError: what nobody would ever know of is not done."""
    try:
        note(tree, line)
    except ImagebuilderError as error:
        raise unrecorded(error) from error


def unrecorded(error: ImagebuilderError) -> RefusedError:
    words = f"it cannot be recorded, so it is not done: {error}"
    return RefusedError(HTTPStatus.INSUFFICIENT_STORAGE, words)


def run_command(argv: Sequence[str], env: Mapping[str, str], log: ActionLog) -> tuple[int, str]:
    """How a command ended: its status, and the last thing that it said."""
    said: list[str] = []

    def hear(line: str) -> None:
        if words := clean(line).strip():
            said[:] = [words]

    try:
        done = run(argv, env=env, log=log, on_line=hear, check=False)
    except KeyboardInterrupt:
        return 130, "interrupted"
    except ImagebuilderError as error:
        return error.exit_code, fit(str(error))
    return done.status, "".join(said)


def note_end(tree: Tree, line: ActionLine) -> None:
    """Write down how it ended; somebody may make room on a full disk meanwhile.

    Until then the action counts as running, because its log is locked, and afterwards as
    interrupted: only our log has how it ended.
    """
    ended = f"{line.id} ended with {line.status}"
    for attempt in range(TRIES):
        try:
            note(tree, line)
        except ImagebuilderError as error:
            if attempt == 0:
                print(f"{ended}, trying to record that: {error}", file=sys.stderr, flush=True)
            time.sleep(PAUSE)
        else:
            return
    print(f"{ended}, and its journal does not have that", file=sys.stderr, flush=True)
