# SPDX-License-Identifier: Apache-2.0
"""A control node without nodes: what `serve --install` installs, under a real systemd."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from imagebuilder.publish.channel.move import promote
from imagebuilder.publish.publish import publish
from imagebuilder.store.repository import make_store
from imagebuilder.tree import CANDIDATE, make_tree
from tests.control.installed import Installed
from tests.control.inventory import await_inventory, inventory
from tests.control.page import Page
from tests.control.serving import install_web_page, look_healthy, start_serving, type_blocks
from tests.control.web_page import ACT, PAGE, SOCKET, WEB, WebPage, await_that
from tests.control.world import ADDRESS, PERSON, SERVER, Builder, Nuc, control_node, wires
from tests.integration.published import PROFILE, make_image, quiet
from tests.unit.planted_reports import make_report, plant
from tests.workshop import CHECKOUT

TREE = "/srv/netboot"
# A node whose power a program switches; it is on until a file says otherwise.
NODES = f"""\
nodes:
  n1:
    macs: ['52:54:00:77:00:09']
    profile: {PROFILE}
    power: {{driver: exec, off: ['true'], state: [/usr/local/bin/plug, '{{node}}']}}
"""
PLUG = "#!/bin/sh\nid -u > /run/plug.uid\n[ -e /run/go-on ] && echo off || echo on\n"
LEFT = "/run/imagebuilder* /run/credentials/imagebuilder* /etc/systemd/system/imagebuilder-web*"
ASK = "import socket; socket.socket(socket.AF_UNIX).connect('/run/imagebuilder-act.socket')"


@dataclass(frozen=True)
class Serving:
    """A control node that serves, with the web page; what it had before."""

    builder: Builder
    nuc: Nuc
    before: dict[str, list[str]]
    web: WebPage


@pytest.fixture(scope="module")
def serving(
    installed: Installed, page: Page, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    work = tmp_path_factory.mktemp("serving")
    with wires(work, installed.disk) as room, control_node(room, installed.disk) as nuc:
        builder = Builder(room, None, CHECKOUT)
        type_blocks(page, "Set up the nodes' interface", builder, nuc)
        before = inventory(nuc)
        start_serving(page, nuc)
        look_healthy(nuc)
        send_releases(builder, nuc, work)
        web = WebPage(builder, nuc, *install_web_page(page, nuc))
        started = time.monotonic()
        web.await_answer()
        print(f"the page answers {time.monotonic() - started:.0f} s after it was enabled")
        yield Serving(builder, nuc, before, web)


def send_releases(builder: Builder, nuc: Nuc, work: Path) -> None:
    """Give the control node two small releases, the first of which is stable, and a node."""
    store, tree = make_store(work / "store"), make_tree(work / "tree")
    for number in (1, 2):
        image = make_image(store, work, number)
        publish(store, image, tree, quiet(), channel=CANDIDATE)
        plant(tree, make_report(tree, image.name, number))
        if number == 1:
            promote(tree, PROFILE, quiet())
    send = f"tar -C {tree.path} -c . | ssh admin@nuc 'cat > tree.tar'"
    builder.type(send)
    nuc.type(
        f"sudo tar -C {TREE} -x --no-overwrite-dir -f tree.tar\n"
        f"sudo tee {TREE}/nodes.yaml > /dev/null << 'END'\n{NODES}END\n"
        f"sudo tee /usr/local/bin/plug > /dev/null << 'END'\n{PLUG}END\n"
        "sudo chmod 755 /usr/local/bin/plug"
    )


def test_systemd_finds_nothing_wrong_with_the_units_of_the_page(serving: Serving) -> None:
    nuc = serving.nuc
    units = f"{WEB} {SOCKET} {ACT}x.service"
    checked = nuc.type(f"systemd-analyze verify {units} 2>&1").stdout
    assert "imagebuilder" not in checked, checked
    said = nuc.type(f"systemd-analyze security --no-pager {WEB}").stdout
    exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", said)
    assert exposure
    assert float(exposure[1]) < 2.5, said
    for unit in (WEB, SOCKET):
        shown = nuc.type(f"systemctl is-active {unit}; systemctl is-enabled {unit}").stdout
        assert shown.split() == ["active", "enabled"]
    assert "imagebuilder" not in nuc.type("systemctl --failed --no-legend --plain").stdout
    owner = nuc.type("stat -c '%U %a' /run/imagebuilder-act.socket").stdout
    assert owner == "imagebuilder-web 600\n"
    user = nuc.type(f"ps -o user:32= -p $(systemctl show -P MainPID {WEB})").stdout
    assert user.strip() == "imagebuilder-web"


def test_the_page_answers_people_and_no_nodes(serving: Serving) -> None:
    web = serving.web
    status, text = web.ask("/")
    assert (status, "n1" in text) == (200, True)
    assert web.nodes() == ["n1"]
    assert web.ask("/metrics")[0] == 200
    heard = serving.nuc.type("sudo ss -Hltn 'sport = 8470' | awk '{ print $4 }'").stdout
    assert heard == f"{ADDRESS}:8470\n"
    assert web.ask("/", page=f"http://{SERVER}:8470") == (0, "")
    assert web.ask("/", "--interface", PERSON)[0] == 403
    with web.builder.room.program("tunnel", web.builder.words(web.tunnel)) as tunnel:
        await_that(
            lambda: web.ask("/", page="http://localhost:8470")[0] == 200 or bool(tunnel.status),
            "nothing comes through the tunnel",
        )
        assert tunnel.status is None, tunnel.lines


def test_events_come_when_something_changes(serving: Serving) -> None:
    words = ["curl", "-sSN", f"{PAGE}/api/v1/events"]
    with serving.builder.room.program("events", words) as events:
        serving.nuc.type(
            f"imagebuilder nodes add n2 --mac 52:54:00:77:00:10 --profile {PROFILE} "
            "--address 192.168.77.20"
        )
        events.wait_for(r'^data: \{"node":"n2"', 60)
        serving.nuc.type("imagebuilder nodes remove n2")
        events.wait_for("^event: node-removed", 60)


def test_who_has_a_token_moves_a_release(serving: Serving) -> None:
    web, nuc = serving.web, serving.nuc
    stable = f"readlink {TREE}/channels/{PROFILE}/stable"
    before = nuc.type(stable).stdout
    started = time.monotonic()
    done = web.await_end(web.begin({"verb": "promote", "release": PROFILE}))
    print(f"promoted after {time.monotonic() - started:.0f} s: {done}")
    assert (done["state"], done["by"], done["from"]) == ("done", "ada", "10.77.0.1"), done
    assert nuc.type(stable).stdout != before
    done = web.await_end(web.begin({"verb": "rollback", "profile": PROFILE}))
    assert done["state"] == "done", done
    assert nuc.type(stable).stdout == before
    lines = nuc.type(f"tail -n 2 {TREE}/journal.jsonl").stdout.splitlines()
    assert [json.loads(line)["by"] for line in lines] == ["ada (web)"] * 2
    lines = nuc.type(f"tail -n 1 {TREE}/actions.jsonl").stdout.splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["ended"]
    # Each was a service of its own, which systemd forgot when it had ended.
    await_that(
        lambda: not nuc.type(f"systemctl list-units -q --all '{ACT}*'").stdout.strip(),
        "units of actions are left",
    )


def test_a_wrong_token_is_refused(serving: Serving) -> None:
    web, nuc = serving.web, serving.nuc
    stable = f"readlink {TREE}/channels/{PROFILE}/stable; wc -l < {TREE}/actions.jsonl"
    before = nuc.type(stable).stdout
    assert web.order({"verb": "promote", "release": PROFILE}, "ibt_wrong")[0] == 401
    assert web.ask("/api/v1/actions", "--json", '{"verb": "up", "nodes": ["n1"]}')[0] == 401
    assert nuc.type(stable).stdout == before
    said = nuc.type(f"sudo journalctl -q -o cat -u '{ACT}*'").stdout
    assert "unknown token, from 10.77.0.1" in said


def test_an_action_goes_on_whatever_becomes_of_the_page(serving: Serving) -> None:
    web, nuc = serving.web, serving.nuc
    action = web.begin({"verb": "down", "nodes": ["n1"]})
    await_that(
        lambda: nuc.type("cat /run/plug.uid", check=False).stdout == "0\n", "no plug is asked"
    )
    known = web.nodes()
    started = time.monotonic()
    nuc.type(f"sudo systemctl restart {WEB} {SOCKET}")
    web.await_answer()
    print(f"restarted in {time.monotonic() - started:.0f} s")
    assert web.nodes() == known
    assert web.action(action)["state"] == "running"
    main = nuc.type(f"systemctl show -P MainPID {WEB}").stdout
    nuc.type(f"sudo kill -9 {main}")
    started = time.monotonic()
    web.await_answer()
    print(f"back {time.monotonic() - started:.0f} s after kill -9")
    assert nuc.type(f"systemctl show -P NRestarts {WEB}").stdout == "1\n"
    assert nuc.type(f"systemctl show -P MainPID {WEB}").stdout != main
    assert web.action(action)["state"] == "running"
    nuc.type("sudo touch /run/go-on")
    done = web.await_end(action)
    assert (done["state"], done["by"]) == ("done", "ada"), done


@pytest.mark.parametrize("user", ["admin", "nobody", "imagebuilder-web"])
def test_others_can_neither_act_nor_read_tokens(serving: Serving, user: str) -> None:
    """The page itself cannot read the tokens or change the tree, but may ask for actions."""
    become = "" if user == "admin" else f"sudo -u {user}"
    forbidden = [
        "cat /etc/imagebuilder/tokens.json",
        f"touch {TREE}/x", f"touch {TREE}/channels/{PROFILE}/x", f"tee -a {TREE}/actions.jsonl",
    ]  # fmt: skip
    if user != "imagebuilder-web":
        forbidden += [f'python3 -c "{ASK}"', "ls /var/lib/imagebuilder-web"]
    for command in forbidden:
        done = serving.nuc.type(f"{become} {command} < /dev/null", check=False)
        assert done.status != 0, command
        assert "Permission denied" in done.stderr, (command, done.stderr)


def test_the_page_is_removed_by_installing_without_it(serving: Serving, page: Page) -> None:
    nuc = serving.nuc
    nuc.type("imagebuilder serve --interface enp3s0 --install")
    assert nuc.type(f"ls {LEFT}", check=False).stdout == ""
    assert nuc.type("systemctl is-active imagebuilder-nginx.service").stdout == "active\n"
    assert serving.web.ask("/") == (0, "")
    install, start, _ = page.take("Install the web page")
    nuc.type(install.script.splitlines()[-1])
    nuc.type(start.script)
    serving.web.await_answer()


def test_what_serve_installs_can_be_removed(serving: Serving, page: Page) -> None:
    type_blocks(page, "Stop serving", serving.builder, serving.nuc)
    assert await_inventory(serving.nuc, serving.before) == []
    assert serving.nuc.type(f"ls {LEFT}", check=False).stdout == ""
