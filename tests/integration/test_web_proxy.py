# SPDX-License-Identifier: Apache-2.0
"""Acting through nginx with TLS, with the very lines of docs/web.md."""

from __future__ import annotations

import http.client
import re
import shutil
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from urllib.parse import urlencode

import pytest

from imagebuilder.process import run
from imagebuilder.tree import make_tree
from imagebuilder.web.roles import Role
from imagebuilder.web.tokens import add_token
from tests.acting import await_end, plant_plug
from tests.integration.started import PATIENCE, start, wait_until
from tests.integration.test_web_act import page_of
from tests.ports import free_port

pytestmark = pytest.mark.root
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin") or ""
NAME = "cluster.example.com"
DOCS = Path(__file__).resolve().parents[2] / "docs/web.md"


def read_lines(begin: str) -> str:
    """The lines of docs/web.md that begin with this one, as one would type them."""
    found = re.search(rf"^    {re.escape(begin)}\n(?:    .*\n)+", DOCS.read_text(), re.MULTILINE)
    assert found
    return dedent(found[0])


@contextmanager
def proxy(folder: Path, page: str) -> Iterator[int]:
    """nginx in front of a page; its port."""
    folder.mkdir()
    pem, key, port = folder / "pem", folder / "key", free_port()
    run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         f"/CN={NAME}", "-keyout", key, "-out", pem])  # fmt: skip
    server = read_lines("server {")
    for old, new in (
        ("listen 443", f"listen 127.0.0.1:{port}"), ("/etc/ssl/cluster.pem", str(pem)),
        ("/etc/ssl/cluster.key", str(key)), ("http://127.0.0.1:8470", page),
    ):  # fmt: skip
        assert old in server
        server = server.replace(old, new)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = " ".join(f"{kind}_temp_path {folder};" for kind in kinds)
    config = folder / "nginx.conf"
    config.write_text(
        f"user root; daemon off; error_log stderr; pid {folder}/nginx.pid;\n"
        f"events {{}}\nhttp {{\naccess_log off; {places}\n{server}}}\n"
    )
    nginx = start([NGINX, "-c", str(config), "-e", "stderr"], {}, folder / "said")

    def answers() -> bool:
        assert nginx.find_end() is None, nginx.stderr
        try:
            return ask(port, "/api/v1/nodes")[0] == 200
        except OSError:
            return False

    wait_until(answers, "nginx does not answer")
    try:
        yield port
    finally:
        run(["kill", str(nginx.pid)])
        nginx.wait(PATIENCE)


def connect(port: int) -> http.client.HTTPSConnection:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE, context=context)


def ask(port: int, path: str, fields: str = "", **headers: str) -> tuple[int, str, str, str]:
    """Status, body, cookie and place of an answer; a form if there are fields."""
    given = {"Host": NAME, **{k.capitalize(): v for k, v in headers.items()}}
    if fields:
        given = {"Content-Type": "application/x-www-form-urlencoded", **given}
    connection = connect(port)
    connection.request("POST" if fields else "GET", path, fields or None, given)
    answer = connection.getresponse()
    told = answer.headers.get("set-cookie", ""), answer.headers.get("location", "")
    body = answer.read().decode()
    connection.close()
    return answer.status, body, *told


@pytest.mark.skipif(not NGINX, reason="nginx is not installed")
def test_one_acts_through_a_proxy_with_tls(tmp_path: Path) -> None:
    tree, tokens = make_tree(tmp_path / "tree"), tmp_path / "tokens.json"
    plant_plug(tree, "exit 1")
    form = urlencode({"token": add_token(tokens, "ada", Role.POWER)})
    hosts = re.search(r'IMAGEBUILDER_WEB_HOSTS=([^"]*)"', read_lines("[Service]"))
    assert hosts
    with (
        page_of(tree, tokens, hosts=hosts[1]) as (_, page),
        proxy(tmp_path / "nginx", page) as port,
    ):
        names = {*hosts[1].split(), "evil.example"}
        answered = {name for name in names if ask(port, "/", host=name)[0] == 200}
        assert answered == names - {"evil.example"} == {NAME, "cluster"}
        assert ask(port, "/login", form, origin=f"http://{NAME}")[0] == 403
        assert ask(port, "/login", form, origin="https://evil.example")[0] == 403
        status, _, cookie, _ = ask(port, "/login", form, origin=f"https://{NAME}")
        assert (status, "; secure" in cookie.lower()) == (303, True)
        own = {"origin": f"https://{NAME}", "cookie": cookie.partition(";")[0]}
        text = ask(port, "/act?verb=up&nodes=n1", **own)[1]
        fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', text))
        status, _, _, place = ask(port, "/act", urlencode(fields), **own)
        assert (status, place[:9]) == (303, "/actions/")
        assert await_end(tree, place[9:]).begun.address == "127.0.0.1"
        events = connect(port)
        events.request("GET", "/api/v1/events", headers={"Host": NAME})
        assert b"event:" in events.getresponse().read1(65536)
        events.close()
