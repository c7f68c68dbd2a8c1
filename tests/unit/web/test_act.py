# SPDX-License-Identifier: Apache-2.0
"""The program that acts: who may, what becomes a command, what is on record."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from imagebuilder.digest import Json
from imagebuilder.errors import HostError, InputError
from imagebuilder.tree import Tree, make_tree
from imagebuilder.web.act import (
    MOST_REQUEST,
    ActAnswer,
    ActCaller,
    RefusedError,
    act,
    read_request,
)
from imagebuilder.web.act_client import (
    AT_ONCE,
    MOST_ADDRESSES,
    WAITING,
    ActClient,
    Lockout,
)
from imagebuilder.web.action_journal import ActionState, read_actions, read_said
from imagebuilder.web.orders import ActVerb, parse_order
from imagebuilder.web.roles import Role
from imagebuilder.web.tokens import add_token, load_tokens
from tests.acting import await_end, plant_plug
from tests.integration.started import command_lines

COMMAND = (sys.executable, "-m", "imagebuilder.cli.main", "act")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_tree(tmp_path / "tree")


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    return tmp_path / "etc/tokens.json"


def send(tree: Tree, tokens: Path, request: bytes) -> dict[str, Json]:
    """What `act` answers to these bytes, which it reads while we write."""
    ours, its = socket.socketpair()

    def write() -> None:
        with suppress(OSError):  # it hung up: it had read enough
            ours.sendall(request)
            ours.shutdown(socket.SHUT_WR)

    with ours, its:
        writing = threading.Thread(target=write)
        writing.start()
        status = act(tree, tokens, ActCaller(its.fileno(), its.fileno()), os.environ)
        its.close()
        writing.join()
        answer = dict(json.loads(ours.recv(65536)))
    assert answer["status"] in (200, 202) or status == 1
    return answer


def ask(tree: Tree, tokens: Path, token: str, order: Json) -> dict[str, Json]:
    request = {"token": token, "address": "10.0.0.9", "order": order}
    return send(tree, tokens, json.dumps(request).encode() + b"\n")


@pytest.mark.parametrize(
    ("order", "argv"),
    [
        ({"verb": "up", "nodes": ["n1", "@gpu!n2"]}, "up -- n1 @gpu!n2"),
        ({"verb": "down", "nodes": ["n[1-3]"], "force": True}, "down --force -- n[1-3]"),
        ({"verb": "restart", "nodes": ["n1"], "yes": True}, "restart --yes -- n1"),
        ({"verb": "promote", "release": "p@1-2"}, "promote -- p@1-2"),
        ({"verb": "rollback", "profile": "p"}, "rollback -- p"),
        ({"verb": "rollout", "release": "p", "canary": "n1", "batch": "10%"},
         "rollout start --canary=n1 --batch=10% -- p"),
        ({"verb": "pause", "profile": "p"}, "rollout pause -- p"),
        ({"verb": "resume", "profile": "p"}, "rollout resume -- p"),
        ({"verb": "abort", "profile": "p"}, "rollout abort -- p"),
    ],
    ids=str,
)  # fmt: skip
def test_every_verb_has_its_command(order: dict[str, Json], argv: str) -> None:
    assert parse_order(order).argv == argv.split()


def test_no_verb_was_forgotten() -> None:
    assert {verb.value for verb in ActVerb} == {
        "up", "down", "restart", "promote", "rollback", "rollout", "pause", "resume", "abort",
    }  # fmt: skip


@pytest.mark.parametrize(
    "order",
    [
        {"verb": "down", "nodes": ["--force"]},
        {"verb": "down", "nodes": ["n1\n--force"]},
        {"verb": "down", "nodes": ["n1\n"]},
        {"verb": "down", "nodes": [""]},
        {"verb": "down", "nodes": []},
        {"verb": "down", "nodes": "n1"},
        {"verb": "down", "nodes": ["n1"] * 1001},
        {"verb": "down", "nodes": ["n" * 201]},
        {"verb": "down", "nodes": ["n1"], "force": "yes"},
        {"verb": "down", "nodes": ["n1"], "release": "p"},
        {"verb": "down", "nodes": ["n1"], "argv": ["sh"]},
        {"verb": "promote", "release": "p@1\n"},
        {"verb": "promote", "release": "p@-1"},
        {"verb": "promote", "release": "p@.."},
        {"verb": "rollout", "release": "p", "canary": "-x"},
        {"verb": "rollout", "release": "p", "canary": "n1("},
        {"verb": "rollout", "release": "p", "batch": "1 --force"},
        {"verb": "sh", "profile": "p"},
        {"verb": ["up"], "nodes": ["n1"]},
        [], "up", 7,
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_no_order(order: Json) -> None:
    with pytest.raises(InputError):
        parse_order(order)


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_could_write_gives_no_rights(tokens: Path, mode: int) -> None:
    secret = add_token(tokens, "ada", Role.ADMIN)
    tokens.chmod(mode)
    with pytest.raises(HostError, match="others could write"):
        load_tokens(tokens)
    answer = ask(make_tree(tokens.parent / "tree"), tokens, secret, None)
    assert answer["status"] == 503


def test_a_damaged_file_gives_no_rights(tree: Tree, tokens: Path) -> None:
    secret = add_token(tokens, "ada", Role.ADMIN)
    tokens.write_text("{")
    assert ask(tree, tokens, secret, {"verb": "up", "nodes": ["n1"]})["status"] in (400, 503)
    assert read_actions(tree) == ()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"", 400),
        (b"\n", 400),
        (b"\xff\xfe\x00\n", 400),
        (b"[" * 100_000 + b"\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"[]\n", 400),
        (b'{"token": 7, "address": "a"}\n', 400),
        (b'{"token": "x"}\n', 400),
        (b'{"token": "x", "address": "a", "more": 1}\n', 400),
        (b'{"token": "\\ud800", "address": "a"}\n', 400),
        (b'{"token": "ibt_wrong", "address": "a"}\n', 401),
        (b'{"token": "", "address": "a", "order": {"verb": "sh"}}\n', 401),
        (b"x" * (MOST_REQUEST - 65536), 400),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_garbage_is_refused(tree: Tree, tokens: Path, request_: bytes, status: int) -> None:
    add_token(tokens, "ada", Role.ADMIN)
    assert send(tree, tokens, request_)["status"] == status
    assert read_actions(tree) == ()


def send_to_program(tree: Tree, tokens: Path, request: bytes) -> dict[str, Json]:
    """What the real program answers to what it refuses."""
    env = {**os.environ, "IMAGEBUILDER_TREE": str(tree.path), "IMAGEBUILDER_TOKENS": str(tokens)}
    done = subprocess.run(
        COMMAND, input=request, env=env, capture_output=True, check=False, timeout=300
    )
    assert b"Traceback" not in done.stderr, done.stderr
    assert done.returncode == 1
    return dict(json.loads(done.stdout))


def test_a_request_that_is_too_long_is_not_read_to_its_end(tree: Tree, tokens: Path) -> None:
    assert send_to_program(tree, tokens, b"x" * (MOST_REQUEST + 1))["status"] == 413


@pytest.mark.parametrize(
    ("request_", "status"), [(b"\xff\xfe\x00\n", 400), (b'{"token": "", "address": "a"}\n', 401)]
)
def test_the_program_refuses_garbage_without_a_traceback(
    tree: Tree, tokens: Path, request_: bytes, status: int
) -> None:
    add_token(tokens, "ada", Role.ADMIN)
    assert send_to_program(tree, tokens, request_)["status"] == status


def test_a_request_that_never_ends_is_given_up() -> None:
    ours, its = socket.socketpair()
    with ours, its:
        ours.sendall(b'{"token": ')
        begun = time.monotonic()
        with pytest.raises(RefusedError) as caught:
            read_request(its.fileno(), seconds=0.3)
        assert caught.value.answer.status == 408
        assert time.monotonic() - begun < 60


def test_a_request_ends_with_its_line_and_not_with_the_connection() -> None:
    ours, its = socket.socketpair()
    with ours, its:
        ours.sendall(b"{}\n")
        assert read_request(its.fileno(), seconds=0.3).strip() == b"{}"


def test_only_the_first_line_counts(tree: Tree, tokens: Path) -> None:
    secret = add_token(tokens, "ada", Role.ADMIN)
    first = json.dumps({"token": secret, "address": "a"}).encode()
    second = json.dumps({"token": secret, "address": "a", "order": {"verb": "up", "nodes": ["n"]}})
    answer = send(tree, tokens, first + b"\n" + second.encode() + b"\n")
    assert (answer["status"], answer["name"], answer["role"]) == (200, "ada", "admin")
    assert read_actions(tree) == ()


@pytest.mark.parametrize(
    ("role", "order"),
    [
        (Role.POWER, {"verb": "promote", "release": "p"}),
        (Role.POWER, {"verb": "abort", "profile": "p"}),
        (Role.RELEASE, {"verb": "up", "nodes": ["n1"]}),
    ],
)
def test_a_role_is_for_its_own_verbs(
    tree: Tree, tokens: Path, role: Role, order: dict[str, Json]
) -> None:
    answer = ask(tree, tokens, add_token(tokens, "ada", role), order)
    assert answer["status"] == 403
    (record,) = read_actions(tree)
    assert (record.state, record.begun.by) == (ActionState.REFUSED, "ada")


def test_a_journal_that_cannot_be_written_refuses(tree: Tree, tokens: Path) -> None:
    secret = add_token(tokens, "ada", Role.ADMIN)
    order: Json = {"verb": "rollback", "profile": "p"}
    tree.actions.symlink_to("/dev/full")
    assert ask(tree, tokens, secret, order)["status"] == 507
    tree.actions.unlink()
    assert not [*tree.actions.with_name("actions").iterdir()]
    assert ask(tree, tokens, secret, order)["status"] == 202


def test_the_token_is_nowhere_but_in_its_request(tree: Tree, tokens: Path) -> None:
    secret = add_token(tokens, "ada", Role.ADMIN)
    answer = ask(tree, tokens, secret, {"verb": "rollback", "profile": "p"})
    assert answer["status"] == 202
    (record,) = read_actions(tree)
    assert record.begun.by == "ada"
    written = b"".join(p.read_bytes() for p in tree.path.rglob("*") if p.is_file())
    assert b'"ada"' in written
    assert secret.encode() not in written
    assert secret not in json.dumps(answer)


def test_what_it_runs_is_told_for_whom(
    tree: Tree, tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal of releases and the record of a roll-out name who has the token."""
    from imagebuilder.publish.journal import find_person

    plant_plug(tree, "exit 1")
    monkeypatch.setenv("IMAGEBUILDER_SUDO", "")
    answer = ask(
        tree, tokens, add_token(tokens, "ada", Role.POWER), {"verb": "up", "nodes": ["n1"]}
    )
    (record,) = read_actions(tree)
    assert (answer["id"], record.state) == (record.begun.id, ActionState.FAILED)
    assert "n1" in read_said(tree, record.begun.id)
    assert find_person({"IMAGEBUILDER_ASKER": "ada", "SUDO_USER": "bob"}) == "ada (web)"
    assert find_person({"IMAGEBUILDER_ASKER": "a\x1b[2J"}) == "a\\x1b[2J (web)"


def begin(tree: Tree, tokens: Path, order: Mapping[str, Json], secret: str) -> ActClient:
    """A client whose program is a child, as `imagebuilder web` has it without systemd."""
    act_client = ActClient(tree, tokens)
    answer = act_client.ask(secret, "10.0.0.9", order)
    assert answer.status == 202, answer
    return act_client


def test_a_child_answers_and_goes_on(tree: Tree, tokens: Path, tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    plant_plug(tree, f"until [ -e {go_on} ]; do sleep 0.1; done\ntouch {tmp_path}/pulled\nexit 1")
    secret = add_token(tokens, "ada", Role.POWER)
    act_client = begin(tree, tokens, {"verb": "up", "nodes": ["n1"]}, secret)
    assert read_actions(tree)[0].state is ActionState.RUNNING
    assert act_client.ask("ibt_no", "10.0.0.9", None).status == 401
    assert act_client.ask(secret, "10.0.0.9", None).name == "ada"
    go_on.touch()
    assert await_end(tree).state is ActionState.FAILED
    assert (tmp_path / "pulled").exists()


def test_who_is_killed_leaves_an_action_that_was_interrupted(tree: Tree, tokens: Path) -> None:
    plant_plug(tree, "sleep 600")
    secret = add_token(tokens, "ada", Role.POWER)
    begin(tree, tokens, {"verb": "up", "nodes": ["n1"]}, secret)
    until = time.monotonic() + 120
    while not (found := find_acting(tree)):
        assert time.monotonic() < until
        time.sleep(0.05)
    os.kill(found, signal.SIGKILL)
    assert await_end(tree).state is ActionState.INTERRUPTED


def find_acting(tree: Tree) -> int:
    """The process that acts on a tree; 0 for none."""
    for pid, line in command_lines().items():
        words = line.split(b"\0")
        if b"act" in words and str(tree.path).encode() in words:
            return pid
    return 0


def test_no_program_is_no_traceback(tree: Tree, tokens: Path, tmp_path: Path) -> None:
    answer = ActClient(tree, tokens, tmp_path / "none").ask("x", "a", None)
    assert answer.status == 503
    assert "actions are not available" in answer.error


def test_a_lockout_is_bounded_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    lockout = Lockout()
    for _ in range(10):
        assert lockout.wait("a") == 0
        lockout.wrong("a")
    assert 0 < lockout.wait("a") <= 61
    assert lockout.wait("b") == 0
    for number in range(MOST_ADDRESSES):
        lockout.wrong(f"x{number}")
    assert len(lockout._wrong) == MOST_ADDRESSES
    for _ in range(10):
        lockout.wrong("c")
    later = time.monotonic() + 61
    monkeypatch.setattr("imagebuilder.web.act_client.time.monotonic", lambda: later)
    assert lockout.wait("c") == 0


def test_who_has_a_network_of_ipv6_is_locked_out_with_it() -> None:
    lockout = Lockout()
    for number in range(10):
        lockout.wrong(f"fd00:0:0:1::{number:x}")
    assert lockout.wait("fd00:0:0:1:abcd::1")
    assert not lockout.wait("fd00:0:0:2::1")


def test_an_end_that_cannot_be_recorded_is_none_on_record(
    tree: Tree, tokens: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither done nor failed, and what ran it says how it ended."""
    monkeypatch.setattr("imagebuilder.web.act.PAUSE", 0.01)
    monkeypatch.setattr("imagebuilder.web.act.TRIES", 3)
    journal, aside = tree.actions, tree.actions.with_name("aside")
    plant_plug(tree, f"mv {journal} {aside}\nln -s /dev/full {journal}\nexit 1")
    secret = add_token(tokens, "ada", Role.POWER)
    ask(tree, tokens, secret, {"verb": "up", "nodes": ["n1"]})
    journal.unlink()
    aside.rename(journal)
    (record,) = read_actions(tree)
    assert (record.state, record.ended) == (ActionState.INTERRUPTED, None)
    said = capfd.readouterr().err
    assert said.count(f"{record.begun.id} ended with 1") == 2
    assert "the disk is full" in said
    assert "its journal does not have that" in said


def test_who_asks_while_many_wait_is_told_at_once(
    tree: Tree, tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them takes one of the threads that answer everybody."""
    end = threading.Event()

    def slow(*_: object) -> ActAnswer:
        assert end.wait(60)
        return ActAnswer(200, "")

    monkeypatch.setattr(ActClient, "send", slow)
    client = ActClient(tree, tokens)

    async def ask_all() -> list[int]:
        many = [asyncio.create_task(client.ask_soon("x", f"a{n}", None)) for n in range(100)]
        done, _ = await asyncio.wait(many, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        assert {task.result().status for task in done} == {503}
        others = [asyncio.to_thread(str) for _ in range(50)]
        await asyncio.wait_for(asyncio.gather(*others), 30)
        end.set()
        return [answer.status for answer in await asyncio.gather(*many)]

    found = asyncio.run(ask_all())
    assert found == [200] * (AT_ONCE + WAITING) + [503] * (100 - AT_ONCE - WAITING)
    assert asyncio.run(client.ask_soon("x", "b", None)).status == 200
