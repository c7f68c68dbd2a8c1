# SPDX-License-Identifier: Apache-2.0
"""iPXE scripts as texts: every way on has a way back, and no name becomes a command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from imagebuilder.nodes.scripts import (
    node_words,
    render_entry,
    render_menu,
    render_node_script,
)
from imagebuilder.nodes.types import Menu, Node

MAC = "52:54:00:77:00:01"
ID = "0123456789abcdef0123456789abcdef"
GIVEN = "0123456789abcdef"
NODE = Node("node1", (MAC, "52:54:00:77:00:02"), "generic", cmdline=("quiet",))
STATIC = Node("node1", (MAC,), "rx", version="v1", address="10.0.0.1", static=True, root="http")
PROFILES = (("generic", "stable"), ("rx", "candidate"))
SCRIPTS = {
    "entry": render_entry("10.0.0.1", 80, Path("/srv/netboot/roots")),
    "entry on another port": render_entry("10.0.0.1", 8080, Path("/srv/netboot/roots")),
    "node": render_node_script(NODE, MAC, ID, GIVEN),
    "static node": render_node_script(STATIC, MAC, ID, GIVEN),
    "menu": render_menu(Menu("generic", 5), PROFILES, ("ubuntu-24.04",)),
    "empty menu": render_menu(Menu("gone", 0), (), ()),
}
# What cannot go wrong, or ends the script.
SAFE = ("set ", "echo ", "item ", "menu ", "goto ", "sleep ", "exit", ":")


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_a_script_is_one(script: str) -> None:
    lines = script.splitlines()
    assert lines[0] == "#!ipxe"
    assert script.endswith("\n")
    assert not re.search(r"\{[{%#]|[%}]\}|\t| $", script, re.MULTILINE)
    assert not re.search(r"(?<!:)//", "".join(line for line in lines if not line.startswith("#")))


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_whatever_can_fail_says_what_then(script: str) -> None:
    for line in script.splitlines():
        if line and not line.startswith(("#", *SAFE)):
            assert "||" in line, line


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_every_goto_leads_somewhere(script: str) -> None:
    labels = re.findall(r"^:(\S+)$", script, re.MULTILINE)
    assert len(labels) == len(set(labels))
    items = re.findall(r"^item (?:--key . )?([^-\s]\S*) ", script, re.MULTILINE)
    nexts = re.findall(r"^set next (\S+)$", script, re.MULTILINE)
    gotos = [to for to in re.findall(r"goto (\S+)", script) if not to.startswith("${")]
    defaults = re.findall(r"--default (\S+)", script)
    assert {*items, *nexts, *gotos, *defaults} <= set(labels)


def test_the_entry_has_a_way_out_of_every_failure() -> None:
    script = SCRIPTS["entry"]
    for number in range(4):
        assert f"nodes/${{net{number}/mac:hexhyp}}/boot.ipxe" in script
        assert f"ifconf --configurator dhcp net{number} || goto nic{number + 1}" in script
    for key in "rslx":
        assert f"item --key {key} " in script
    assert "choose --default restart --timeout 60000" in script
    failed = script[script.index(":failed") :]
    assert all(each in failed for each in ("${stage}", "${server}", "${netX/mac}"))
    assert "set http http://10.0.0.1\n" in script
    assert "set http http://10.0.0.1:8080\n" in SCRIPTS["entry on another port"]


def test_the_local_disk_is_reached_as_the_firmware_wants_it() -> None:
    for script in (SCRIPTS["entry"], SCRIPTS["menu"]):
        local = script[script.index("\n:local\n") :].split("\n\n")[0]
        assert local.index("iseq ${platform} efi && exit") < local.index("sanboot")
        assert "sanboot --no-describe --drive 0x80" in local


def test_a_node_follows_its_channel_or_is_pinned() -> None:
    assert "chain --autofree ${http}/channels/generic/stable/boot.ipxe" in SCRIPTS["node"]
    assert "clear node-root ||\n" in SCRIPTS["node"]
    assert "chain --autofree ${http}/releases/rx/v1/boot.ipxe" in SCRIPTS["static node"]
    assert "set node-root http\n" in SCRIPTS["static node"]
    files = "set node-files ${http}/nodes/52-54-00-77-00-01/node.img\n"
    assert files in SCRIPTS["node"]


def test_a_node_reports_what_it_was_given_and_a_stranger_does_not() -> None:
    assert f"set report ${{http}}/report/ticket/{GIVEN}\n" in SCRIPTS["node"]
    assert "set report ${http}/report\n" in SCRIPTS["menu"]


def test_the_words_of_a_node() -> None:
    assert node_words(NODE, ID) == (
        "console=tty0", "console=ttyS0,115200", "systemd.hostname=node1",
        f"systemd.machine_id={ID}", "quiet",
    )  # fmt: skip
    assert node_words(STATIC, ID)[4:] == (
        f"ifname=boot0:{MAC}",
        "ip=10.0.0.1::${netX/gateway}:${netX/netmask}:node1:boot0:off",
        "${node-dns}",
    )


def test_the_menu_offers_what_there_is() -> None:
    menu = SCRIPTS["menu"]
    assert "choose --default profile-generic --timeout 5000 choice" in menu
    assert "chain --autofree ${http}/channels/rx/candidate/boot.ipxe" in menu
    assert "chain --autofree ${http}/live/ubuntu-24.04/boot.ipxe" in menu
    live = render_menu(Menu("live/ubuntu-24.04", 5), (), ("ubuntu-24.04",))
    assert "choose --default live-ubuntu-24.04 --timeout 5000" in live


def test_a_default_that_is_gone_is_the_local_disk_and_no_timeout_waits() -> None:
    assert "choose --default local choice" in SCRIPTS["empty menu"]


def test_strangers_get_nothing_of_a_node_before() -> None:
    menu = SCRIPTS["menu"]
    assert all(f"clear {name} ||" in menu for name in ("node-args", "node-root", "node-files"))
