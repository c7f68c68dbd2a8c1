# SPDX-License-Identifier: Apache-2.0
"""Messages over real sockets and to real programs, and what nobody is ever shown."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from email import message_from_bytes, message_from_string
from email.policy import default
from pathlib import Path

import pytest
from pydantic import SecretStr

from imagebuilder.notify.deliver import TRY_LATER
from imagebuilder.notify.receivers import DELIVER, find_address, find_receivers, in_home
from imagebuilder.notify.send import Lane, judge, notifying
from imagebuilder.notify.types import Message, SendPatience, Topic
from imagebuilder.process import Completed, run
from imagebuilder.recipe.model_notify import MailModel, NotifyModel, ReceiverModel
from tests.unit.notify.servers import TOKEN, mail_server, until, web_server

pytestmark = pytest.mark.slow

QUICK = SendPatience(answer=20.0, pauses=(0.01,), tries=3)
HASTY = SendPatience(answer=1.5, pauses=(0.01,), tries=1)
TEXT = "2 nodes are silent: node[1-2]"


def message(details: str = "node1: Größe\n", text: str = TEXT) -> Message:
    return Message(Topic.NODES, ("node-silent",), text, details, {"counts": {"silent": 2}})


def hook(address: str) -> ReceiverModel:
    return ReceiverModel(webhook=SecretStr(address))


def mail(relay: str, *to: str) -> ReceiverModel:
    return ReceiverModel(mail=MailModel(to=[*to] or ["ops@example.org"], relay=relay))


def send(
    *receivers: ReceiverModel,
    patience: SendPatience = QUICK,
    env: Mapping[str, str] | None = None,
    what: Message | None = None,
) -> tuple[list[str], Sequence[Lane]]:
    """What a person was warned of, and what became of the messages."""
    warnings: list[str] = []
    site = NotifyModel(to={f"r{n}": each for n, each in enumerate(receivers)})
    made = what or message()
    with notifying(find_receivers(site, env or {}), warnings.append, patience) as notifier:
        notifier.send(lambda _: made)
    return warnings, [*notifier.lanes.values()]


# --- the webhook


def test_a_webhook_gets_the_documented_json() -> None:
    made = message()
    with web_server(200) as server:
        warnings, (lane,) = send(hook(server.address), what=made)
    assert (warnings, lane.sent) == ([], 1)
    ((path, body),) = server.requests
    assert path == f"/hooks/{TOKEN}"
    assert body == {
        "schema": 1,
        "id": made.id,
        "at": made.at,
        "host": socket.gethostname(),
        "text": f"imagebuilder: {TEXT}",
        "topic": "nodes",
        "kinds": ["node-silent"],
        "nodes": {"counts": {"silent": 2}},
    }


@pytest.mark.parametrize(
    ("statuses", "said", "tries"),
    [
        ((500, 429, 200), "", 3),
        ((500,), "127.0.0.1: answers 500", 3),
        ((404,), "127.0.0.1: answers 404", 1),
        ((302,), "127.0.0.1: answers 302", 1),
        ((1,), "", 1),
        ((3,), "127.0.0.1: is not reachable", 3),
    ],
    ids=["late", "broken", "gone", "elsewhere", "malformed", "closes"],
)
def test_a_webhook_in_trouble(
    capfd: pytest.CaptureFixture[str], statuses: tuple[int, ...], said: str, tries: int
) -> None:
    with web_server(*statuses) as server:
        warnings, (lane,) = send(hook(server.address))
    assert len(server.requests) == tries
    assert (lane.sent, lane.dropped) == (not said, bool(said))
    assert said in "".join(warnings)
    assert bool(warnings) is bool(said)
    assert {path for path, _ in server.requests} == {f"/hooks/{TOKEN}"}, "no redirect is followed"
    assert len({body["id"] for _, body in server.requests}) == 1
    out, err = capfd.readouterr()
    assert TOKEN not in out + err + "".join(warnings)


@pytest.mark.parametrize("status", [0, 2], ids=["hangs", "a byte at a time"])
def test_a_webhook_that_hangs_is_given_up(status: int) -> None:
    begun = time.monotonic()
    good = ReceiverModel(exec=["true"])  # which takes no time to start
    with web_server(status) as server:
        warnings, (_, lane) = send(hook(server.address), good, patience=HASTY)
    assert time.monotonic() - begun < 20
    assert warnings == [f"notify r0: could not send '{TEXT}': did not end within 2 s"]
    assert lane.sent == 1, "one receiver does not delay another"


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:{port}/{token}", "http://[{token}/x", "http://h:{token}/x", "http:///{token}",
     "http://{token}\x7f\udcff/x", "http://a..b/{token}"],
)  # fmt: skip
def test_a_webhook_that_is_not_there(address: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    given = ReceiverModel.model_construct(
        webhook=SecretStr(address.format(port=port, token=TOKEN)), webhook_file="", mail=None,
        program=[], kinds=[], groups=[],
    )  # fmt: skip
    site = NotifyModel.model_construct(to={"r0": given})
    warnings: list[str] = []
    with notifying(find_receivers(site, {}), warnings.append, QUICK) as notifier:
        notifier.send(lambda _: message())
    assert warnings[-1].startswith("notify r0: could not send ")
    assert TOKEN not in "".join(warnings)


def test_no_secret_is_on_a_command_line() -> None:
    """While the program of ours waits for an answer, every process may be looked at."""
    seen: list[str] = []
    with ExitStack() as answering:
        server = answering.enter_context(web_server(0))
        site = NotifyModel(to={"r0": hook(server.address)})
        patience = replace(HASTY, answer=60.0)  # to look at it, until the server hangs up
        with notifying(find_receivers(site, {}), lambda _: None, patience) as notifier:
            notifier.send(lambda _: message())
            until(lambda: bool(server.requests))
            for each in Path("/proc").glob("[0-9]*"):
                for name in ("cmdline", "environ"):
                    try:
                        seen.append((each / name).read_bytes().decode(errors="replace"))
                    except OSError:
                        continue
            answering.close()
    assert any("imagebuilder.notify.deliver" in one for one in seen)
    assert not any(TOKEN in one for one in seen if "deliver" in one)


def test_where_the_address_comes_from(tmp_path: Path) -> None:
    (tmp_path / "hook").write_text("https://file.example/x\n")
    (tmp_path / "notify-chat").write_text("https://credential.example/x\n")
    in_file = ReceiverModel.model_validate({"webhook-file": str(tmp_path / "hook")})
    assert find_address("chat", hook("https://site.example/x"), {}) == "https://site.example/x"
    assert find_address("chat", in_file, {}) == "https://file.example/x"
    env = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    assert find_address("chat", in_file, env) == "https://credential.example/x"
    assert find_address("other", in_file, env) == "https://file.example/x"
    assert in_home("~/hook", {"HOME": "/home/me"}) == Path("/home/me/hook")
    absent = ReceiverModel.model_validate({"webhook-file": str(tmp_path / "absent")})
    (warning,), _ = send(absent)
    assert f"{tmp_path}/absent: cannot be read: No such file" in warning


# --- mail


def test_a_relay_gets_a_mail_as_rfc_5322_has_it() -> None:
    made = message()
    given = {"to": ["ops@example.org", "root"], "from": "b@c"}
    with mail_server() as post:
        given |= {"relay": f"127.0.0.1:{post.port}"}
        assert send(ReceiverModel.model_validate({"mail": given}), what=made)[0] == []
    (raw,) = post.mails
    assert raw.isascii()
    assert max(map(len, raw.split(b"\r\n"))) <= 78
    assert b"\n" not in raw.replace(b"\r\n", b"")
    found = message_from_bytes(raw, policy=default)
    assert found["Subject"] == f"imagebuilder: {TEXT}"
    assert (found["From"], found["To"]) == ("b@c", "ops@example.org, root")
    assert found["Date"].datetime.tzinfo is not None
    assert found["Message-ID"].startswith(f"<{made.id}@")
    assert found["Auto-Submitted"] == "auto-generated"
    assert found.get_content() == "node1: Größe\r\n"
    said = [command.lower() for command in post.commands]  # Python 3.13 has it in capitals
    assert [command for command in said if command.startswith("rcpt")] == [
        "rcpt to:<ops@example.org>", "rcpt to:<root>",
    ]  # fmt: skip


def test_a_relay_that_refuses_some_or_all() -> None:
    for to in (["gone@example.org", "ops@example.org"], ["gone@example.org"]):
        with mail_server(refuse="gone") as post:
            (warning,), _ = send(mail(f"127.0.0.1:{post.port}", *to))
        assert "did not accept the message for gone@example.org (550)" in warning
        assert len(post.mails) == len(to) - 1


def test_a_relay_that_is_not_there_or_hangs() -> None:
    with mail_server(slow=True) as post:
        (warning,), _ = send(mail(f"127.0.0.1:{post.port}"), patience=HASTY)
    assert "did not end within 2 s" in warning
    with socket.create_server(("127.0.0.1", 0)) as free:
        relay = f"127.0.0.1:{free.getsockname()[1]}"
    warnings, _ = send(mail(relay))
    assert f"{relay}: did not accept the message: Connection refused" in warnings[-1]
    (warning,), _ = send(mail("127.0.0.1:99999"))
    assert "is not a mail server" in warning


def fake_program(folder: Path, name: str, ending: str) -> Path:
    """A program that keeps what it is given."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    kept = f'printf "%s\\n" "$@" > {folder}/argv\nenv > {folder}/env\ncat > {folder}/stdin'
    program.write_text(f"#!/bin/sh\n{kept}\n{ending}\n")
    program.chmod(0o755)
    return program


def test_sendmail_where_there_is_no_relay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_program(tmp_path / "bin", "sendmail", "exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    assert send(ReceiverModel(mail=MailModel(to=["root"])))[0] == []
    text = (tmp_path / "bin/stdin").read_bytes()
    assert b"\r" not in text
    found = message_from_string(text.decode(), policy=default)
    assert found["To"] == "root"
    assert found["From"].startswith("imagebuilder@")
    assert (tmp_path / "bin/argv").read_text().split() == ["-i", "-t"]


# --- programs


def test_a_program_gets_the_json_and_no_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_MINE", TOKEN)
    program = fake_program(tmp_path, "hook", "exit 0")
    words = ["$(touch /tmp/never)", "a b", ";"]
    assert send(ReceiverModel(exec=[str(program), *words]))[0] == []
    assert json.loads((tmp_path / "stdin").read_text())["text"] == f"imagebuilder: {TEXT}"
    assert (tmp_path / "argv").read_text().splitlines() == words
    assert TOKEN not in (tmp_path / "env").read_text()


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        ("echo no queue >&2; exit 75", "failed (exit status 75): no queue"),
        ("kill -SEGV $$", "failed (signal 11)"),
        ("sleep 60", "did not end within 2 s"),
        ("sleep 60 & exit 0", "did not end within 2 s"),
        ("trap '' TERM; sleep 60", "did not end within 2 s"),
    ],
    ids=["fails", "crashes", "hangs", "forks", "does not listen"],
)
def test_a_program_in_trouble(tmp_path: Path, ending: str, said: str) -> None:
    program = fake_program(tmp_path, "hook", f"echo $$ > {tmp_path}/pid\n{ending}")
    begun = time.monotonic()
    (warning,), _ = send(ReceiverModel(exec=[str(program)]), patience=HASTY)
    assert said in warning
    assert time.monotonic() - begun < 20
    pid = (tmp_path / "pid").read_text().strip()
    until(lambda: is_gone(Path(f"/proc/{pid}/stat")))


def is_gone(stat: Path) -> bool:
    """Whether a process has ended, also if nobody has asked for its exit status."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    (warning,), _ = send(ReceiverModel(exec=[str(tmp_path / "absent")]))
    assert "absent is not installed" in warning


def test_a_program_that_reads_nothing(tmp_path: Path) -> None:
    program = tmp_path / "hook"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    assert send(ReceiverModel(exec=[str(program)]), what=message("x" * 1_000_000))[0] == []


# --- the program of ours


def test_when_it_is_killed_it_is_started_again() -> None:
    assert judge(DELIVER, Completed(-9, "", "")) == ("failed (signal 9)", True)


def test_what_libraries_say_on_stderr_is_shown_to_nobody() -> None:
    assert judge(DELIVER, Completed(1, "", f"Traceback: {TOKEN}")) == (
        "failed (exit status 1)",
        False,
    )


def test_the_library_would_have_logged_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with web_server(200) as server:
        import requests

        requests.post(server.address, json={}, timeout=5).close()
    assert TOKEN in caplog.text


def test_a_relay_that_greets_without_end_fills_no_memory() -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def greet() -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            while True:
                connection.sendall(b"220-and\r\n" * 4096)

    thread = threading.Thread(target=greet, daemon=True)
    thread.start()
    relay = f"127.0.0.1:{listener.getsockname()[1]}"
    order = json.dumps({"relay": relay, "mail": "Subject: x\n\nx\n"}).encode()
    with listener:
        done = run([sys.executable, "-m", "imagebuilder.notify.deliver"], stdin=order, check=False)
        thread.join(60)
    assert (done.status, done.stdout) == (TRY_LATER, "its answer is too long\n")
