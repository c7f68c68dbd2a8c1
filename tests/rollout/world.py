# SPDX-License-Identifier: Apache-2.0
"""Three machines that boot `minimal` from `imagebuilder serve`, with a power switch each.

node1 is woken by Wake-on-LAN and shuts down over ssh, node2 has a BMC with IPMI, which ipmi_sim
plays, and node3 one with Redfish, which sushy-tools plays.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.boot.acceleration import CHEAP
from imagebuilder.boot.console import Console
from imagebuilder.boot.lab import Lab, lab, plug
from imagebuilder.boot.machine import Firmware, Machine, Nic, Shape
from imagebuilder.boot.machine import netbooting as switched_on
from imagebuilder.process import Completed, Word
from tests.bmc import make_bmc
from tests.boot.machine import ACCELERATION
from tests.boot.server import START_SECONDS, Published, Server, boot_server, command
from tests.rollout.releases import Releases
from tests.workshop import CHECKOUT

NAMES = ("node1", "node2", "node3")
TAPS = {name: f"tap{number}" for number, name in enumerate(NAMES)}
MACS = {name: f"52:54:00:77:00:0{number}" for number, name in enumerate(NAMES, 1)}
SHAPE = Shape(memory=1536)
BOOT_SECONDS = 1200
POLL = 10.0
PASSWORD = "not-in-any-output"
SWITCH = f"""\
#!/bin/sh
PYTHONPATH={CHECKOUT} exec {sys.executable} -m tests.rollout.switch "/run/$1.monitor" "$2"
"""
# ipmi_sim calls it for what is asked of the chassis (ipmi_lan(5)).
CHASSIS = """\
#!/bin/sh
case $1 in
get) [ "$({top}/switch node2 state)" = on ] && echo power:1 || echo power:0 ;;
set) if [ "$3" = 1 ]; then {top}/switch node2 on; else {top}/switch node2 off; fi ;;
esac
"""
NODES = """\
defaults:
  login: root
  console: [ttyS0]
  cmdline: [{cheap}]
groups:
  rack: {{profile: minimal}}
nodes:
  node1: {{macs: ["{node1}"], address: 10.77.0.11, group: rack, power: {{driver: wol}}}}
  node2:
    macs: ["{node2}"]
    address: 10.77.0.12
    group: rack
    power: {{driver: ipmi, address: "127.0.0.1:9623", credentials: bmc}}
  node3:
    macs: ["{node3}"]
    address: 10.77.0.13
    group: rack
    power: {{driver: redfish, address: "http://127.0.0.1:8000", credentials: bmc}}
"""
REDFISH = """\
SUSHY_EMULATOR_STATE_DIR = "{top}"
SUSHY_EMULATOR_FAKE_SYSTEMS = [{{
    "uuid": "27946b59-9e44-4fa7-8e91-f3527a1ef094", "name": "node3",
    "power_state": "On", "nics": [],
}}]
"""


@dataclass(frozen=True)
class World:
    """The nodes, their server, and who types beside it."""

    server: Server
    releases: Releases
    machines: Mapping[str, Machine]

    def type(self, *words: str) -> Completed:
        """Type a command of imagebuilder."""
        argv = command(self.releases.workshop, *words)
        home = f"HOME={self.server.room.work}"
        return self.server.room.run([*argv[:1], home, *argv[1:]], check=False)

    def running(self) -> dict[str, tuple[str, str]]:
        """The version that each node which answers runs, and its boot."""
        told = self.type("status", "--no-health", "--json").stdout
        ready = [each["node"] for each in json.loads(told) if each["condition"] == "ready"]
        script = ". /etc/os-release; echo $IMAGE_VERSION $(cat /proc/sys/kernel/random/boot_id)"
        if not ready:
            return {}
        asked = self.type("run", ",".join(ready), "--json", "--", "sh", "-c", script).stdout
        answers = {each["node"]: each["output"].split() for each in json.loads(asked)}
        return {name: (said[0], said[1]) for name, said in answers.items() if len(said) == 2}

    def versions(self) -> dict[str, str]:
        return {name: version for name, (version, _) in self.running().items()}

    def await_that(self, holds: Callable[[], bool], what: str) -> float:
        """Wait until something holds; the seconds it took."""
        started = time.monotonic()
        while not holds():
            if time.monotonic() - started > BOOT_SECONDS:
                said = self.type("status").stdout
                consoles = "\n".join("\n".join(m.console.tail(30)) for m in self.machines.values())
                raise AssertionError(f"{what}\n{said}\n{consoles}")
            time.sleep(POLL)
        return time.monotonic() - started


@contextlib.contextmanager
def world(top: Path, releases: Releases) -> Iterator[World]:
    """Three nodes that are being booted."""
    published = Published(releases.tree, releases.old, releases.new)
    key = releases.workshop.site.parent / "key"
    make_person(top, key)
    nodes = NODES.format(cheap=", ".join(CHEAP), **MACS)
    with (
        lab(top, tuple(TAPS.values())) as room,
        boot_server(room, releases.workshop, published, nodes) as server,
        contextlib.ExitStack() as stack,
    ):
        plug(room, tuple(TAPS.values()))
        bmc = make_bmc(top, "node2", PASSWORD, f'chassis_control "{top}/chassis"')
        stack.enter_context(room.program("bmc", bmc))
        redfish = stack.enter_context(room.program("redfish", make_redfish(top)))
        wake = words("wake", TAPS["node1"], MACS["node1"], top / "switch", "node1", "on")
        card = stack.enter_context(room.program("card", wake))
        redfish.wait_for("Running on", START_SECONDS)
        card.wait_for("^listening$", START_SECONDS)
        machines = {name: stack.enter_context(machine(room, name)) for name in NAMES}
        yield World(server, releases, machines)


def machine(room: Lab, name: str) -> contextlib.AbstractContextManager[Machine]:
    console = Console(room.work / f"{name}.console")
    nics = [Nic(TAPS[name], MACS[name])]
    # A node that shuts itself down stands still until it is switched on.
    more = ("-action", "shutdown=pause")
    return switched_on(
        room, name, Firmware.UEFI, nics, ACCELERATION, console, shape=SHAPE, more=more
    )


def words(module: str, *arguments: Word) -> list[Word]:
    """The command that runs a module of this folder."""
    return ["env", f"PYTHONPATH={CHECKOUT}", sys.executable, "-m", f"tests.rollout.{module}",
            *arguments]  # fmt: skip


def make_redfish(top: Path) -> list[Word]:
    """The command of node3's BMC."""
    (top / "redfish").write_text(REDFISH.format(top=top))
    return words("redfish", top / "redfish", "8000", "node3", top / "switch")


def make_person(top: Path, key: Path) -> None:
    """A home with an ssh key; the programs that switch machines; a password."""
    place = top / ".config/imagebuilder/credentials"
    place.mkdir(parents=True)
    (place / "bmc").write_text(f"user: admin\npassword: {PASSWORD}\n")
    (place / "bmc").chmod(0o600)
    (top / ".ssh").mkdir(mode=0o700)
    (top / ".ssh/config").write_text(f"IdentityFile {key}\n")
    for name, text in {"switch": SWITCH, "chassis": CHASSIS.format(top=top)}.items():
        (top / name).write_text(text)
        (top / name).chmod(0o755)
