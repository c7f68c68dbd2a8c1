# SPDX-License-Identifier: Apache-2.0
"""docs/control-node.md, typed word for word: `make control-node`."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

from imagebuilder.boot.console import Console
from imagebuilder.boot.login import Login, login
from imagebuilder.boot.machine import Firmware, Machine, Nic, Shape
from imagebuilder.boot.machine import netbooting as switched_on
from imagebuilder.errors import WorkError
from tests.boot.machine import ACCELERATION
from tests.control.disk import PYTHON
from tests.control.installed import Installed
from tests.control.inventory import await_inventory, inventory
from tests.control.page import Page
from tests.control.serving import (
    install_web_page,
    look_healthy,
    start_serving,
    type_blocks,
)
from tests.control.web_page import WebPage
from tests.control.world import NODE_TAPS, SERVER, Builder, Nuc, control_node
from tests.workshop import Workshop

NODE_MIB = 1536
BOOT_SECONDS = 900
REBOOT_SECONDS = 400
# As docs/control-node.md adds them.
NODES = {
    "node0": (Firmware.UEFI, "52:54:00:77:00:01", "192.168.77.11"),
    "node1": (Firmware.BIOS, "52:54:00:77:00:02", "192.168.77.12"),
}
TOOL = f"/opt/imagebuilder/lib/python{PYTHON}/site-packages/imagebuilder"
# Both in bash alone: NFS asks its server whenever a program is opened.
COUNT = r"""
mkfifo /run/tick
exec 3<> /run/tick
while :; do read -t 1 -u 3; printf "%(%s)T\n" -1; done > /run/count
"""
# Reads the root as soon as its server (port 2049, 0x801) is away; ends when it is back.
READ = r"""
mkfifo /run/tock
exec 3<> /run/tock
connected() {
    while read -r _ _ remote state _; do [[ $remote = *:0801 && $state = 01 ]] && return; done
    return 1
}
while connected < /proc/net/tcp; do read -t 1 -u 3; done
printf "%(%s)T\n" -1 > /run/away
find /usr/bin /usr/lib/systemd -type f | sed 200q | xargs cat | wc -c > /run/reading
mv /run/reading /run/read
"""


def test_page_installs_the_tool(installed: Installed) -> None:
    # The machine's apt has nothing but what serving needs: more would have been refused.
    assert 0 < installed.figures["packages"] < 150
    assert 0 < installed.figures["tool_mb"] < 250


def test_page_makes_a_release(released: Workshop) -> None:
    assert (released.state.parent / "tree/reports/minimal").is_dir()


def test_page_serves_nodes_for_real(
    builder: Builder, installed: Installed, page: Page, kept: Path
) -> None:
    figures = dict(installed.figures)
    with control_node(builder.room, installed.disk) as nuc:
        type_blocks(page, "Set up the nodes' interface", builder, nuc)
        before = inventory(nuc)
        start_serving(page, nuc)
        look_healthy(nuc)
        type_blocks(page, "Let the builder publish", builder, nuc)
        type_blocks(page, "Publish to the control node", builder, nuc)
        web = WebPage(builder, nuc, *install_web_page(page, nuc))
        web.await_answer()
        assert web.nodes() == [*NODES]
        with nodes(builder, nuc) as (machines, logins, seconds):
            figures |= {f"{name}_ssh": value for name, value in seconds.items()}
            figures |= reboot(page, builder, nuc, logins)
            figures["node1_ssh_after"] = boot_again(builder, nuc, machines["node1"])
            web.await_answer()
            figures["update"] = update(page, builder, nuc)
            web.await_answer()
        type_blocks(page, "Stop serving", builder, nuc)
        assert await_inventory(nuc, before) == []
        assert nuc.type("ls /srv/netboot/http/releases/minimal").stdout.split()
    assert page.untyped == set()
    (kept / "figures.json").write_text(json.dumps(figures, indent=2))
    print(json.dumps(figures, indent=2))


@contextlib.contextmanager
def nodes(
    builder: Builder, nuc: Nuc
) -> Iterator[tuple[dict[str, Machine], dict[str, Login], dict[str, int]]]:
    """Both nodes, booted: the machines, a login to each, and the seconds that ssh took."""
    room = builder.room
    with contextlib.ExitStack() as stack:
        started = time.monotonic()
        machines = {
            name: stack.enter_context(
                switched_on(room, name, firmware, [Nic(tap, mac)], ACCELERATION,
                            Console(room.work / f"{name}.console"), shape=Shape(NODE_MIB))
            )
            for tap, (name, (firmware, mac, _)) in zip(NODE_TAPS, NODES.items(), strict=True)
        }  # fmt: skip
        waiting, seconds = set(machines), {}
        while waiting:
            for name in sorted(waiting):
                if answers(builder, nuc, machines[name], since=started):
                    seconds[name] = round(time.monotonic() - started)
                    waiting.discard(name)
            time.sleep(2)
        logins = {name: stack.enter_context(logged_in(builder, nuc, name)) for name in machines}
        yield machines, logins, seconds


def answers(builder: Builder, nuc: Nuc, machine: Machine, since: float) -> bool:
    """Whether the ssh server of a node answers.  Raises WorkError when it takes too long."""
    address = NODES[machine.name][2]
    if machine.process.status is not None or time.monotonic() - since > BOOT_SECONDS:
        journal = nuc.type("sudo journalctl -b -n 40 --no-pager -u 'imagebuilder-*'", check=False)
        raise machine.process.complaint(f"does not answer to ssh\n{journal.stdout}")
    script = f'exec 3<> /dev/tcp/{address}/22 && read -r -t 20 line <&3 && [[ "$line" = SSH-* ]]'
    words = ["timeout", "25", "bash", "-c", script]
    return builder.room.run(words, check=False).status == 0


@contextlib.contextmanager
def logged_in(builder: Builder, nuc: Nuc, name: str, mark: str = "") -> Iterator[Login]:
    """A login that trusts the host key that the control node made for this node.

    `mark` tells it from another login to the same node.
    """
    kept = nuc.type(f"sudo cat /srv/netboot/nodes/{name}/ssh_host_ed25519_key.pub").stdout
    assert builder.workshop
    key = builder.workshop.site.parent / "key"
    with login(builder.room, name + mark, NODES[name][2], kept, key) as opened:
        yield opened


def reboot(page: Page, builder: Builder, nuc: Nuc, logins: dict[str, Login]) -> dict[str, int]:
    """Reboot the control node; both nodes go on, and read what only it has."""
    [block] = page.take("Reboot the control node")
    for log_in in logins.values():
        for script in (COUNT, READ):
            log_in(f"nohup sudo bash -c '{script}' > /dev/null 2>&1 < /dev/null &")
    started = time.monotonic()
    nuc.type(block.script, check=False)
    await_web(builder, served=False, since=started)
    away = time.time()
    await_web(builder, served=True, since=started)
    web = round(time.monotonic() - started)
    back = time.time()
    figures = {"back_web": web}
    for name, log_in in logins.items():
        while not log_in("cat /run/read 2> /dev/null || :").stdout.strip():
            assert time.monotonic() - started < REBOOT_SECONDS, f"{name} cannot read its root"
            time.sleep(1)
        figures[f"{name}_reads"] = round(time.monotonic() - started)
        assert int(log_in("cat /run/away").stdout) < back, f"{name} did not miss its root"
        counted = [int(line) for line in log_in("cat /run/count").stdout.split()]
        assert any(away < second < back for second in counted), f"{name} stood still"
    nuc.await_login()
    return figures


def update(page: Page, builder: Builder, nuc: Nuc) -> int:
    """Replace a tool that claims the same version; the seconds that took."""
    left_over = f"{TOOL}/left_over.py"
    nuc.type(f"sudo touch {left_over}")
    started = time.monotonic()
    type_blocks(page, "Install the tool", builder, nuc)
    type_blocks(page, "Update the tool", builder, nuc)
    assert nuc.type(f"ls {left_over} 2> /dev/null || :").stdout == ""
    return round(time.monotonic() - started)


def await_web(builder: Builder, *, served: bool, since: float) -> None:
    """Wait until the control node's web server answers, or no longer does."""
    words = ["curl", "-fsS", "-m", "5", "-o", "/dev/null", f"http://{SERVER}/boot.ipxe"]
    while (builder.room.run(words, check=False).status == 0) is not served:
        if time.monotonic() - since > REBOOT_SECONDS:
            raise WorkError(f"the control node {'does not serve' if served else 'serves'}")
        time.sleep(0.5)


def boot_again(builder: Builder, nuc: Nuc, machine: Machine) -> int:
    """Switch a node off and on, after its server rebooted; the seconds until it answers to ssh."""
    machine.power_cycle()
    started = time.monotonic()
    while answers(builder, nuc, machine, since=started):
        time.sleep(1)
    while not answers(builder, nuc, machine, since=started):
        time.sleep(2)
    seconds = round(time.monotonic() - started)
    with logged_in(builder, nuc, machine.name, "again") as log_in:
        assert "count" not in log_in("ls /run").stdout.split()
    return seconds
