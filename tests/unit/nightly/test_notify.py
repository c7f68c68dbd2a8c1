# SPDX-License-Identifier: Apache-2.0
"""Who is told of a night, over real sockets, and what nobody is ever shown."""

from __future__ import annotations

import io
import json
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from email import message_from_bytes, message_from_string
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pydantic import SecretStr

from imagebuilder.errors import InputError
from imagebuilder.nightly.message import headline
from imagebuilder.nightly.notify import WebhookPatience, find_webhook, is_wanted, notify
from imagebuilder.nightly.save import save_night
from imagebuilder.nightly.site import find_report_folder, in_home, load_nightly
from imagebuilder.nightly.types import Ending, NightlyRun, NightlyStage
from imagebuilder.recipe.model import SiteFile
from imagebuilder.recipe.model_nightly import MailModel, NightlyModel
from imagebuilder.recipe.positions import load_document
from imagebuilder.recipe.validate import parse_model
from imagebuilder.settings import load_settings
from imagebuilder.ui import Ui
from tests.unit.nightly.samples import FIRST, HOSTILE, failed, make_nights, night, unchanged

TOKEN = "T0KEN-nobody-may-see"
QUICK = WebhookPatience(answer=0.3, tries=3, pause=0.01)
FAILED = night(unchanged(), failed("rx7600xt", NightlyStage.TEST, stable="1"))


@dataclass
class Hook:
    """A web server: answers with `statuses` one after the other, the last one for ever."""

    statuses: list[int]
    requests: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    port: int = 0

    @property
    def site(self) -> NightlyModel:
        return NightlyModel(webhook=SecretStr(f"http://127.0.0.1:{self.port}/hooks/{TOKEN}"))


@contextmanager
def web_server(*statuses: int) -> Iterator[Hook]:
    """A real one on a free port; a status of 0 is no answer at all, 1 an answer that is none."""
    hook = Hook(list(statuses))
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            hook.requests.append((self.path, json.loads(self.rfile.read(length))))
            status = hook.statuses.pop(0) if hook.statuses[1:] else hook.statuses[0]
            if status == 0:
                over.wait(5)
                return
            if status == 1:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nno header at all\r\n\r\n")
                return
            self.send_response(status)
            self.send_header("Location", f"http://127.0.0.1:{hook.port}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hook.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield hook
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Post:
    """What a mail server was told."""

    port: int
    commands: list[str] = field(default_factory=list)
    mails: list[bytes] = field(default_factory=list)


@contextmanager
def mail_server(refuse: str = "") -> Iterator[Post]:
    """A real SMTP server for one mail; it refuses recipients that have `refuse` in them."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(5)
    post = Post(listener.getsockname()[1])

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rwb", buffering=0) as stream:
            stream.write(b"220 mail.example ESMTP\r\n")
            while line := stream.readline().decode().rstrip():
                post.commands.append(line)
                verb = line.split()[0].upper()
                if verb == "DATA":
                    stream.write(b"354 go on\r\n")
                    lines = iter(stream.readline, b".\r\n")
                    post.mails.append(b"".join(lines))
                    stream.write(b"250 taken\r\n")
                elif verb == "RCPT" and refuse and refuse in line:
                    stream.write(b"550 no such mailbox\r\n")
                else:
                    stream.write(b"221 bye\r\n" if verb == "QUIT" else b"250 fine\r\n")
                if verb == "QUIT":
                    return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield post
    finally:
        listener.close()
        thread.join(5)


def told(one: NightlyRun, folder: Path, site: NightlyModel) -> tuple[tuple[str, ...], str]:
    """What could not be told, and what a person saw of it."""
    stream = io.StringIO()
    return notify(one, folder, site, Ui(stream), QUICK), stream.getvalue()


# --- when


@pytest.mark.parametrize(
    ("one", "wanted"),
    [
        (night(unchanged()), "a"),
        (night(unchanged(), replace(unchanged("x"), ending=Ending.PROMOTED)), "ac"),
        (night(replace(unchanged(), warnings=("the lock was not refreshed",))), "ac"),
        (replace(night(unchanged()), warnings=("nothing was committed",)), "ac"),
        (FAILED, "acf"),
        (night(unchanged(), finished=False), "acf"),
    ],
    ids=["unchanged", "promoted", "warned", "night-warned", "failed", "unfinished"],
)
def test_when_to_tell(one: NightlyRun, wanted: str) -> None:
    chosen = "".join(
        when[0] for when in ("always", "changed", "failed") if is_wanted(one, when, cut_off=False)
    )
    assert chosen == wanted


def test_a_night_that_was_cut_off_is_told_of_by_the_next(tmp_path: Path) -> None:
    save_night(night(unchanged(), finished=False), tmp_path)
    quiet = night(unchanged(), started=FIRST + timedelta(days=1))
    with web_server(200) as hook:
        site = hook.site.model_copy(update={"when": "failed"})
        assert told(quiet, tmp_path, site) == ((), "")
        assert len(hook.requests) == 1
        save_night(quiet, tmp_path)
        again = night(unchanged(), started=FIRST + timedelta(days=2))
        assert told(again, tmp_path, site) == ((), "")
        assert len(hook.requests) == 1, "nothing changed, and nothing was cut off"


def test_headlines() -> None:
    done = [failed(name, NightlyStage.LOCK) for name in "abcde"]
    for one, said in (
        (FAILED, "1 of 2 profiles failed (rx7600xt at test)"),
        (night(*done), "5 of 5 profiles failed (a at lock, b at lock, c at lock, 2 more)"),
        (night(unchanged()), "1 profile unchanged"),
        (night(), "no profiles"),
        (night(unchanged(), finished=False, planned=2), "1 of 3 profiles done"),
        (
            night(unchanged(), replace(unchanged("x"), ending=Ending.PROMOTED)),
            "2 profiles: 1 promoted, 1 unchanged",
        ),
    ):
        assert headline(one) == said


# --- the webhook


def test_a_webhook_gets_the_night(tmp_path: Path) -> None:
    with web_server(200) as hook:
        assert told(FAILED, tmp_path, hook.site) == ((), "")
    ((path, body),) = hook.requests
    assert path == f"/hooks/{TOKEN}"
    assert body["text"] == "imagebuilder: 1 of 2 profiles failed (rx7600xt at test)"
    assert body["failed"] is True
    assert isinstance(body["profiles"], list)
    assert body["profiles"][1]["what"].startswith("failed in stage root")
    assert TOKEN not in json.dumps(body)


@pytest.mark.parametrize(
    ("statuses", "said", "tries"),
    [
        ((500, 429, 200), "", 3),
        ((500,), "127.0.0.1: answers 500", 3),
        ((404,), "127.0.0.1: answers 404", 1),
        ((302,), "127.0.0.1: answers 302", 1),
        ((0,), "127.0.0.1: did not answer within", 3),
        ((1,), "", 1),
    ],
    ids=["late", "broken", "gone", "elsewhere", "hanging", "malformed"],
)
def test_a_webhook_in_trouble(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    statuses: tuple[int, ...],
    said: str,
    tries: int,
) -> None:
    caplog.set_level(logging.DEBUG)
    with web_server(*statuses) as hook:
        failures, seen = told(FAILED, tmp_path, hook.site)
    assert len(hook.requests) == tries
    assert said in seen
    assert bool(failures) is bool(said)
    assert {path for path, _ in hook.requests} == {f"/hooks/{TOKEN}"}, "no redirect is followed"
    out, err = capfd.readouterr()
    assert TOKEN not in seen + out + err + caplog.text


def test_the_library_would_have_logged_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with web_server(200) as hook:
        import requests

        assert hook.site.webhook
        requests.post(hook.site.webhook.get_secret_value(), json={}, timeout=5).close()
    assert TOKEN in caplog.text


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:{port}/{token}", "http://[{token}/x", "http://h:{token}/x", "http:///{token}",
     "http://{token}\x7f\udcff/x", "http://a..b/{token}"],
)  # fmt: skip
def test_a_webhook_that_is_not_there(tmp_path: Path, address: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    site = NightlyModel.model_construct(
        webhook=SecretStr(address.format(port=port, token=TOKEN)), when="always", mail=None,
        webhook_file="",
    )  # fmt: skip
    (failure,), seen = told(FAILED, tmp_path, site)
    assert failure.startswith("could not call the webhook: ")
    assert TOKEN not in seen


def test_where_the_address_comes_from(tmp_path: Path) -> None:
    (tmp_path / "hook").write_text("https://file.example/x\n")
    (tmp_path / "webhook").write_text("https://credential.example/x\n")
    site = NightlyModel(webhook=SecretStr("https://site.example/x"))
    in_file = NightlyModel.model_validate({"webhook-file": str(tmp_path / "hook")})
    assert find_webhook(NightlyModel(), {}) == ""
    assert find_webhook(site, {}) == "https://site.example/x"
    assert find_webhook(in_file, {}) == "https://file.example/x"
    env = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    assert find_webhook(in_file, env) == "https://credential.example/x"
    assert in_home("~/hook", {"HOME": "/home/me"}) == Path("/home/me/hook")
    absent = NightlyModel.model_validate({"webhook-file": str(tmp_path / "absent")})
    (failure,), _ = told(FAILED, tmp_path, absent)
    assert f"{tmp_path}/absent: cannot be read: No such file" in failure


# --- mail


def test_a_relay_gets_a_mail_as_rfc_5322_has_it(tmp_path: Path) -> None:
    one = replace(make_nights(1)[0], warnings=("Größe: zu klein",))
    with mail_server() as post:
        mail = {"to": ["ops@example.org", "root"], "from": "b@c", "relay": f"127.0.0.1:{post.port}"}
        assert told(one, tmp_path, NightlyModel.model_validate({"mail": mail})) == ((), "")
    (raw,) = post.mails
    assert raw.isascii()
    assert max(map(len, raw.split(b"\r\n"))) <= 78
    assert b"\n" not in raw.replace(b"\r\n", b"")
    found = message_from_bytes(raw, policy=default)
    assert found["Subject"] == f"imagebuilder: {headline(one)}"
    assert (found["From"], found["To"]) == ("b@c", "ops@example.org, root")
    assert found["Date"].datetime.tzinfo is not None
    assert found["Message-ID"]
    assert found["Auto-Submitted"] == "auto-generated"
    text = found.get_content()
    assert "Größe: zu klein" in text
    assert f"{tmp_path}/nights/{one.id}.html" in text
    assert "From security pockets" in text
    said = [command.lower() for command in post.commands]  # Python 3.13 has it in capitals
    assert [command for command in said if command.startswith("rcpt")] == [
        "rcpt to:<ops@example.org>", "rcpt to:<root>",
    ]  # fmt: skip


def test_text_of_strangers_stays_text(tmp_path: Path) -> None:
    fault = replace(FAILED.profiles[1], profile=f"x{HOSTILE}\r\nBcc: evil@example.org")
    with mail_server() as post:
        site = NightlyModel(mail=MailModel(to=["a@b"], relay=f"127.0.0.1:{post.port}"))
        assert told(night(fault), tmp_path, site)[0] == ()
    found = message_from_bytes(post.mails[0], policy=default)
    assert found["Bcc"] is None
    assert "\x1b" not in found.get_content()


def test_a_relay_that_refuses_some_or_all(tmp_path: Path) -> None:
    for to in (["gone@example.org", "ops@example.org"], ["gone@example.org"]):
        with mail_server(refuse="gone") as post:
            site = NightlyModel(mail=MailModel(to=to, relay=f"127.0.0.1:{post.port}"))
            (failure,), _ = told(FAILED, tmp_path, site)
        assert "did not take it for gone@example.org (550)" in failure
        assert len(post.mails) == len(to) - 1


def test_a_relay_that_is_not_there_or_hangs(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        relay = f"127.0.0.1:{silent.getsockname()[1]}"
        site = NightlyModel(mail=MailModel(to=["a@b"], relay=relay))
        (failure,), _ = told(FAILED, tmp_path, site)
        assert f"{relay}: did not take it: " in failure
        assert "timed out" in failure
    (failure,), seen = told(FAILED, tmp_path, site)
    assert f"{relay}: did not take it: Connection refused" in failure
    assert seen.startswith("warning: could not send the mail: ")
    site = NightlyModel(mail=MailModel(to=["a@b"], relay="127.0.0.1:99999"))
    assert told(FAILED, tmp_path, site)[0]


def fake_sendmail(folder: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    """A sendmail(8) on PATH that keeps what it is given."""
    folder.mkdir()
    program = folder / "sendmail"
    program.write_text(f'#!/bin/sh\necho "$@" > {folder}/argv\ncat > {folder}/mail\n{ending}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_sendmail_where_there_is_no_relay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_sendmail(tmp_path / "bin", monkeypatch, "exit 0")
    assert told(FAILED, tmp_path, NightlyModel(mail=MailModel(to=["root"]))) == ((), "")
    text = (tmp_path / "bin" / "mail").read_bytes()
    assert b"\r" not in text
    found = message_from_string(text.decode(), policy=default)
    assert found["To"] == "root"
    assert found["From"].startswith("imagebuilder@")
    assert "rx7600xt: FAILED at test" in found.get_content()
    assert (tmp_path / "bin" / "argv").read_text().split() == ["-i", "-t"]


@pytest.mark.parametrize(
    ("ending", "said"),
    [("echo no queue >&2; exit 75", "no queue"), ("sleep 9", "exit status 124")],
    ids=["refuses", "hangs"],
)
def test_sendmail_in_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, said: str
) -> None:
    fake_sendmail(tmp_path / "bin", monkeypatch, ending)
    (failure,), _ = told(FAILED, tmp_path, NightlyModel(mail=MailModel(to=["root"])))
    assert said in failure


def test_no_sendmail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    (failure,), _ = told(FAILED, tmp_path, NightlyModel(mail=MailModel(to=["root"])))
    assert "sendmail" in failure


# --- the site file


def test_faults_of_the_site_file_have_positions_and_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(
        f"nightly:\n  webhook: ftp://{TOKEN}\n  when: never\n  keep: 0\n  mail:\n    to: []\n"
        "    form: x@y\n    relay: a b\n"
    )
    faults: list[object] = []
    _, whole = parse_model(SiteFile, load_document(path, "site.yaml"), faults)  # type: ignore[arg-type]
    said = sorted(str(fault).splitlines()[0] for fault in faults)
    assert not whole
    assert [line.split(": ")[0] for line in said] == [
        "site.yaml:2:12", "site.yaml:3:9", "site.yaml:4:9", "site.yaml:6:9", "site.yaml:7:5",
        "site.yaml:8:12",
    ]  # fmt: skip
    assert "must begin with https:// or http://" in said[0]
    assert TOKEN not in "".join(said)
    assert TOKEN not in repr(NightlyModel(webhook=SecretStr(f"https://{TOKEN}")))


def test_what_the_site_says_is_read_with_its_faults(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    env = {"HOME": str(tmp_path), "IMAGEBUILDER_SITE": str(tmp_path / "site.yaml")}
    settings = load_settings(env, project=tmp_path, state=tmp_path / "state")
    assert load_nightly(settings, env) == NightlyModel()
    assert find_report_folder(NightlyModel(), settings, env) == tmp_path / "state/nightly"
    settings.site.write_text("nightly: {report: ~/nights, keep: 7}\n")
    found = load_nightly(settings, env)
    assert found.keep == 7
    assert find_report_folder(found, settings, env) == tmp_path / "nights"
    settings.site.write_text("nightly: {kepp: 7}\n")
    with pytest.raises(InputError, match="unknown key"):
        load_nightly(settings, env)
