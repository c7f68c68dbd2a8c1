# SPDX-License-Identifier: Apache-2.0
"""Acting on the page, with every process a real one: the page's, act's and the command's."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.cookiejar import CookieJar
from pathlib import Path

import pytest

from imagebuilder.digest import Json
from imagebuilder.nodes.references import find_version
from imagebuilder.process import run
from imagebuilder.publish.journal import read_tail
from imagebuilder.publish.publish import publish
from imagebuilder.store.repository import make_store
from imagebuilder.tree import CANDIDATE, STABLE, Tree, make_tree
from imagebuilder.web.act_client import ActClient
from imagebuilder.web.action_journal import ActionState, read_actions, read_said
from imagebuilder.web.roles import Role
from imagebuilder.web.tokens import add_token
from tests.acting import await_end, plant_plug
from tests.integration.published import PROFILE, make_image, quiet
from tests.integration.started import PATIENCE, Started, start, wait_until
from tests.ports import free_port
from tests.unit.planted_reports import make_report, plant

pytestmark = pytest.mark.root
# With the one capability that reads this checkout, wherever it lies.
NOBODY = (
    "setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search", "--bounding-set=-all,+dac_read_search", "--",
)  # fmt: skip
PROGRAM = (sys.executable, "-P", "-m", "imagebuilder.cli.main")


class Browser:
    """What a browser without JavaScript does: cookies, forms, and where they come from."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(CookieJar()), urllib.request.ProxyHandler({})
        )

    def open(self, path: str, fields: Mapping[str, str] | None = None) -> tuple[str, str]:
        """The page that one is led to, and its address."""
        body = urllib.parse.urlencode(fields).encode() if fields else None
        headers = {"Origin": self.address} if fields else {}
        request = urllib.request.Request(self.address + path, body, headers)
        with self.opener.open(request, timeout=PATIENCE) as answer:
            return answer.read().decode(), answer.url

    def confirm(self, place: str) -> str:
        """Fill in the form of a page on which one acts; the id of the action."""
        text, _ = self.open(place)
        fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', text))
        _, led = self.open("/act", fields)
        return led.rpartition("/")[2]


@contextmanager
def page_of(
    tree: Tree, tokens: Path, *more: str, before: tuple[str, ...] = (), hosts: str = ""
) -> Iterator[tuple[Started, str]]:
    """`imagebuilder web` on a tree, answering."""
    folder, port = tree.path.parent / f"web-{free_port()}", free_port()
    argv = [*before, *PROGRAM, "web", "--tree", str(tree.path), "--ask", "0", *more]
    argv += ["--listen", f"127.0.0.1:{port}", "--nights", str(folder)]
    env = {"HOME": os.fspath(folder), "IMAGEBUILDER_TOKENS": os.fspath(tokens)}
    env["IMAGEBUILDER_WEB_HOSTS"] = hosts
    started, address = start(argv, env, folder), f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert started.find_end() is None, started.stderr
        try:
            Browser(address).open("/api/v1/nodes")
        except OSError:
            return False
        return True

    wait_until(answers, "the web server does not answer")
    yield started, address
    with contextlib.suppress(ProcessLookupError):  # a test may have killed it
        started.send(signal.SIGTERM)
        started.wait(PATIENCE)


def order(address: str, token: str, value: Json) -> str:
    """Ask the API for an action; its id."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    body = json.dumps(value).encode()
    request = urllib.request.Request(f"{address}/api/v1/actions", body, headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        assert answer.status == 202
        return str(json.load(answer)["id"])


def refusal(address: str, token: str) -> int:
    """The status with which the API refuses to switch n1 on."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        order(address, token, {"verb": "up", "nodes": ["n1"]})
    with caught.value as answer:
        return int(answer.code)


def state_of(tree: Tree, action: str) -> ActionState:
    return next(each.state for each in read_actions(tree) if each.begun.id == action)


def test_a_release_is_promoted_by_who_has_a_token(tmp_path: Path) -> None:
    store, tree = make_store(tmp_path / "store"), make_tree(tmp_path / "tree")
    image = make_image(store, tmp_path, 1)
    publish(store, image, tree, quiet(), channel=CANDIDATE)
    plant(tree, make_report(tree, image.name, 1))
    tokens = tmp_path / "tokens.json"
    secret = add_token(tokens, "ada", Role.RELEASE)
    with page_of(tree, tokens) as (_, address):
        browser = Browser(address)
        browser.open("/login", {"token": secret})
        action = browser.confirm(f"/act?verb=promote&release={PROFILE}")
        assert await_end(tree, action).state is ActionState.DONE, read_said(tree, action)
        text, _ = browser.open(f"/actions/{action}")
    assert f"imagebuilder promote -- {image.name}" in text
    assert find_version(tree, PROFILE, STABLE) == image.version
    assert read_tail(tree.journal)[-1].by == "ada (web)"


def test_an_action_outlives_the_page(tmp_path: Path) -> None:
    """The server is killed while a node is switched on; another one knows how it ended."""
    tree, tokens = make_tree(tmp_path / "tree"), tmp_path / "tokens.json"
    going, go_on = tmp_path / "going", tmp_path / "go-on"
    waits = f"touch {going}\nwhile [ ! -e {go_on} ]; do sleep 0.1; done"
    plant_plug(tree, f"{waits}\ntouch {tmp_path}/pulled\nexit 1")
    secret = add_token(tokens, "ada", Role.POWER)
    with page_of(tree, tokens) as (server, address):
        action = order(address, secret, {"verb": "up", "nodes": ["n1"]})
        wait_until(going.exists, "the program of the driver was not started")
        server.send(signal.SIGKILL, group=True)
        server.wait(PATIENCE)
    assert state_of(tree, action) is ActionState.RUNNING
    with page_of(tree, tokens) as (_, address):
        text, _ = Browser(address).open(f"/actions/{action}")
        assert "running" in text
        go_on.touch()
        assert await_end(tree, action).state is ActionState.FAILED
        text, _ = Browser(address).open(f"/actions/{action}")
        assert "exit status 1" in text
    assert (tmp_path / "pulled").exists()


def test_a_page_without_rights_acts_through_its_socket(tmp_path: Path) -> None:
    """As the units have it: the page is nobody, act is root's, and a socket is between them."""
    tree, tokens = make_tree(tmp_path / "tree"), tmp_path / "tokens.json"
    plant_plug(tree, f"id -u > {tmp_path}/uid\necho it has no plug >&2\nexit 1")
    secret = add_token(tokens, "ada", Role.POWER)
    with tempfile.TemporaryDirectory() as short:
        place = Path(short, "act.socket")
        argv = ["systemd-socket-activate", "--accept", "--inetd", f"--listen={place}"]
        argv += [f"--setenv=IMAGEBUILDER_TOKENS={tokens}", "--setenv=HOME"]
        env = {"HOME": os.fspath(tmp_path), "IMAGEBUILDER_TOKENS": os.fspath(tokens)}
        acting = start([*argv, *PROGRAM, "act", "--tree", str(tree.path)], env, tmp_path / "acting")
        wait_until(place.exists, "there is no socket")
        Path(short).chmod(0o755)
        place.chmod(0o666)
        with page_of(tree, tokens, "--act", str(place), before=NOBODY) as (server, address):
            status = Path(f"/proc/{server.pid}/status").read_text()
            assert re.search(r"^Uid:\s+65534", status, re.MULTILINE)
            action = order(address, secret, {"verb": "up", "nodes": ["n1"]})
            assert await_end(tree, action).state is ActionState.FAILED
            assert refusal(address, "ibt_wrong") == 401
        acting.send(signal.SIGKILL)
        acting.wait(PATIENCE)
    assert (tmp_path / "uid").read_text() == "0\n"
    assert "it has no plug" in read_said(tree, action)
    # Without the socket it can do nothing.
    with page_of(tree, tokens, before=NOBODY) as (_, address):
        assert refusal(address, secret) >= 500


def test_an_end_that_finds_the_disk_full_is_recorded_when_there_is_room(tmp_path: Path) -> None:
    folder, tokens = tmp_path / "small", tmp_path / "tokens.json"
    folder.mkdir()
    run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder])
    try:
        tree, large = make_tree(folder / "tree"), folder / "large"
        secret, journal = add_token(tokens, "ada", Role.POWER), tree.actions
        act_client = ActClient(tree, tokens)

        def begin(script: str) -> str:
            plant_plug(tree, script)
            return act_client.ask(secret, "10.0.0.9", {"verb": "up", "nodes": ["n1"]}).id

        first = begin("exit 1")
        await_end(tree, first)
        whole, begun = journal.stat().st_size, len(journal.read_bytes().split(b"\n")[0]) + 1
        # The end of the second action begins on the last bytes of a page, and needs another one.
        with journal.open("a") as stream:
            stream.write("#" * (4096 - whole - begun - 41) + "\n")
        second = begin(f"head -c 16M /dev/zero > {large}\nexit 1")
        wait_until(lambda: journal.stat().st_size == 4096, "its end was not tried")
        assert b"ended" in journal.read_bytes()[-40:]
        assert state_of(tree, second) is ActionState.RUNNING
        large.unlink()
        ended = await_end(tree, second).ended
        assert ended
        assert (ended.status, state_of(tree, first)) == (1, ActionState.FAILED)
        assert len(read_actions(tree)) == 2
    finally:
        run(["umount", "--lazy", folder])
