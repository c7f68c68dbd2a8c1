# SPDX-License-Identifier: Apache-2.0
"""The scripts as iPXE itself runs them: Debian's build under QEMU, with a web server in here."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from imagebuilder.nodes.config import read_served
from imagebuilder.nodes.edit import NodeEdit, add_node
from imagebuilder.nodes.files import make_entry, update_nodes
from imagebuilder.process import Word
from imagebuilder.program import Program, program
from imagebuilder.tree import ReleaseName, Tree
from tests.unit.nodes_world import MAC1, MAC2, node_tree

pytestmark = pytest.mark.root

IPXE = Path("/usr/lib/ipxe/ipxe.lkrn")
SERVER = "10.0.2.2"  # how a guest of QEMU's user network reaches this host
SECONDS = 90
# What publish makes boots; this says what it was given.
RELEASE = """\
#!ipxe
imgfree
echo GOT node=${node} root=${node-root} roots=${roots} report=${report}
echo ARGS ${node-args}
echo FILES ${node-files}
sleep 1
reboot
"""


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    """A tree that is served, its channels as nginx shows them."""
    tree = node_tree(tmp_path)
    (tree.http / "channels").symlink_to(tree.path / "channels")
    (tree.release(ReleaseName("generic", "v1")) / "boot.ipxe").write_text(RELEASE)
    with serving(tree.http) as port:
        make_entry(tree, SERVER, port)
        update_nodes(tree)
        yield tree


@contextmanager
def serving(folder: Path) -> Iterator[int]:
    """A web server for `folder`; its port."""
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def ipxe(tree: Tree, *macs: str, wired: bool = True) -> Iterator[Program]:
    """A machine with NICs of these addresses in iPXE; only the last has a cable, if `wired`."""
    nics: list[str] = []
    for number, mac in enumerate(macs):
        wire = "user" if wired and number == len(macs) - 1 else "hubport,hubid=0"
        nics += ["-netdev", f"{wire},id=n{number}"]
        nics += ["-device", f"virtio-net-pci,netdev=n{number},mac={mac},romfile="]
    argv: list[Word] = [
        "qemu-system-x86_64", "-accel", "tcg", "-m", "128", "-nographic", "-no-reboot",
        "-kernel", IPXE, "-initrd", tree.http / "boot.ipxe", *nics,
    ]  # fmt: skip
    with program("ipxe", argv, tree.path / "ipxe.log") as started:
        yield started


def said(machine: Program) -> str:
    """Everything on its console; a terminal of 80 columns breaks lines."""
    return "".join(machine.lines)


def test_a_node_is_given_what_is_its_own(tree: Tree) -> None:
    keys: dict[str, bool | str | list[str]] = {
        "macs": [MAC1], "profile": "generic", "address": "10.0.2.15", "static": True,
        "root": "http", "cmdline": ["memmap=4K$0x100"],
    }  # fmt: skip
    add_node(tree, "node1", NodeEdit(keys))
    with ipxe(tree, MAC1) as machine:
        assert machine.wait(SECONDS) == 0
    text = said(machine)
    assert "node1 boots generic/stable" in text
    assert f"GOT node=node1 root=http roots={tree.roots} report=http://{SERVER}:" in text
    served = read_served(tree, MAC1)
    assert served
    assert f"/report/ticket/{served.config}" in text.replace("\n", "")
    assert "systemd.hostname=node1 systemd.machine_id=" in text
    assert f"ifname=boot0:{MAC1} ip=10.0.2.15::10.0.2.2:255.255.255.0:node1:boot0:off" in text
    assert "nameserver=10.0.2.3 memmap=4K$0x100" in text
    assert "/nodes/52-54-00-77-00-01/node.img" in text


def test_a_stranger_gets_the_menu_and_after_a_while_its_default(tree: Tree) -> None:
    tree.nodes_file.write_text("menu: {default: generic, timeout: 2}\n")
    update_nodes(tree)
    with ipxe(tree, MAC2) as machine:
        assert machine.wait(SECONDS) == 0
    text = said(machine)
    assert "generic (stable)" in text
    assert "GOT node= root= roots=" in text


def test_a_nic_without_a_cable_is_passed_over(tree: Tree) -> None:
    add_node(tree, "node1", NodeEdit({"macs": [MAC1], "profile": "generic"}))
    with ipxe(tree, MAC1, MAC2) as machine:
        assert machine.wait(SECONDS) == 0
    text = said(machine)
    assert "Trying net1" in text
    # The machine is known by its other NIC as well.
    assert "GOT node=node1 " in text


def test_a_channel_that_is_gone_is_named_on_the_failure_screen(tree: Tree) -> None:
    add_node(tree, "node1", NodeEdit({"macs": [MAC1], "profile": "generic"}))
    tree.channel("generic", "stable").unlink()
    with ipxe(tree, MAC1) as machine:
        machine.wait_for(r"BOOT FAILED in stage release: no generic/stable that boots", SECONDS)
        machine.wait_for(rf"server 10\.0\.2\.2, this machine {MAC1} 10\.0\.2\.15", SECONDS)
        machine.wait_for(r"r tries again, s opens a shell", SECONDS)


def test_a_server_that_is_away_is_named_too(tree: Tree) -> None:
    make_entry(tree, SERVER, 1)
    with ipxe(tree, MAC1) as machine:
        machine.wait_for(r"BOOT FAILED in stage scripts: no answer from http://10", SECONDS)


def test_a_wire_without_a_dhcp_server_is_named_too(tree: Tree) -> None:
    with ipxe(tree, MAC1, wired=False) as machine:
        machine.wait_for(r"BOOT FAILED in stage dhcp: no NIC got an address", SECONDS)
