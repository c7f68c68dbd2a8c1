# SPDX-License-Identifier: Apache-2.0
"""The boot table: machines switched on at once, from power-on to ssh, by kind of root.

A cell is a room of its own (imagebuilder/boot): server, wire and machines, on the published files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from imagebuilder.boot.acceleration import Acceleration
from imagebuilder.boot.gate import check_host, choose_acceleration, read_facts
from imagebuilder.boot.login import login
from imagebuilder.boot.machine import Firmware, Shape
from imagebuilder.boot.server import BootServer, boot_server
from imagebuilder.boot.shape import memory_for
from imagebuilder.boot.start import FailedError, Setting, TrialRun, boot, switch_on
from imagebuilder.errors import ImagebuilderError, WorkError
from imagebuilder.publish.find import find_profile
from imagebuilder.report.types import Stage
from imagebuilder.rootkind import FORMAT_OF
from imagebuilder.store.workplace import remove_tree
from imagebuilder.tree import ReleaseName, Tree
from scripts.benchmark.bed import Bed
from scripts.benchmark.load import Load, http_bytes, load_of, traffic_in
from scripts.benchmark.page_boot import (
    BY_HTTP,
    DAEMONS,
    FROM_NODES,
    NODE_MEMORY,
    STAGES,
    TO_NODES,
    cpu_of,
    memory_of,
)
from scripts.benchmark.record import Recorder

# What ends a stage of the page.
ENDS: Mapping[str, Stage] = dict(
    zip(
        STAGES,
        (Stage.IPXE, Stage.KERNEL, Stage.ROOT, Stage.SWITCH_ROOT, Stage.SSH),
        strict=True,
    )
)
# Seconds to ssh of one machine and for setting a cell up, by acceleration; for the estimate alone.
BOOT_SECONDS: Mapping[str, float] = {"kvm": 25, "tcg": 110}
CELL_SECONDS = 15
SPARE = 1.25
MB = 1e6
KIB = 1024


@dataclass(frozen=True)
class BootAsked:
    """Which cells: kinds of root, numbers of nodes, runs of each."""

    profile: str
    roots: tuple[str, ...]
    nodes: tuple[int, ...]
    runs: int
    firmware: Firmware


def slowdown(nodes: int, acceleration: Acceleration) -> float:
    """How many times longer that many machines take than one on this host."""
    each = 1 if acceleration.kind == "tcg" else 2
    return max(1.0, nodes * each / cores())


def patience(nodes: int, acceleration: Acceleration) -> float:
    """How many times longer than in a test a machine may take here: the host may be busy too."""
    return SPARE * (slowdown(nodes, acceleration) + os.getloadavg()[0] / cores())


def cores() -> int:
    """The cores we may use."""
    return len(os.sched_getaffinity(0))


def estimate(asked: BootAsked, acceleration: Acceleration) -> float:
    """Seconds that the table takes."""
    one = BOOT_SECONDS[acceleration.kind]
    cells = (one * slowdown(nodes, acceleration) + CELL_SECONDS for nodes in asked.nodes)
    return asked.runs * len(asked.roots) * sum(cells)


class Boots:
    """The boot table under way."""

    def __init__(self, bed: Bed, asked: BootAsked, recorder: Recorder) -> None:
        check_host()
        self.bed, self.asked, self.recorder = bed, asked, recorder
        self.tree = Tree(bed.top / "boot/tree")
        self.release = self._publish()
        self.acceleration = choose_acceleration(self.tree, self.release, self._place(), bed.ui)
        found = f"{self.acceleration.kind} ({self.acceleration.why})"
        where = f"{cores()} cores for all machines and the server"
        recorder.remark("acceleration", f"{found}, {where}")

    def _place(self) -> Path:
        """An empty folder to work in."""
        place = self.bed.top / "boot/work"
        remove_tree(place)
        place.mkdir(parents=True)
        return place

    def _publish(self) -> ReleaseName:
        """The release in a tree of its own, in every form that a kind of root asks for."""
        place = self.bed.first(self.asked.profile).place
        remove_tree(self.tree.path)
        formats = dict.fromkeys(FORMAT_OF[root] for root in self.asked.roots if root in FORMAT_OF)
        words = [word for name in formats for word in ("--format", str(name))]
        with self.bed.ui.step(f"publish {self.asked.profile}"):
            place("publish", self.asked.profile, "--tree", os.fspath(self.tree.path), *words)
        return find_profile(self.tree, self.asked.profile)[-1]

    def measure(self) -> None:
        """Every cell as often as asked, less what the recorder has already."""
        for number in range(self.asked.runs):
            for nodes in self.asked.nodes:
                for root in self.asked.roots:
                    if self.recorder.count(root, str(nodes)) > number:
                        continue
                    self._cell(root, nodes)
                    self.recorder.save()

    def _cell(self, root: str, nodes: int) -> None:
        """One boot of that many nodes; what fails is told in the cell."""
        place = self._place()
        logs = self.bed.top / "logs" / f"boot-{root}-{nodes}"
        remove_tree(logs)
        logs.mkdir(parents=True)
        factor = self.acceleration.factor * patience(nodes, self.acceleration)
        setting = Setting(
            self.release, (), read_facts(self.tree, self.release),
            replace(self.acceleration, factor=factor), logs, self.bed.ui,
            shape=Shape(memory_for(self.tree, self.release, root)),
        )  # fmt: skip
        cmdline = self.acceleration.cmdline
        try:
            with boot_server(
                self.tree, self.release, place, root=root, nodes=nodes, cmdline=cmdline
            ) as room:
                parts = measure_boot(room, setting, self.asked.firmware, root)
        except FailedError as failed:
            verdict = failed.verdict
            self.recorder.fault(root, str(nodes), f"stage {verdict.stage}: {verdict.what}")
        except ImagebuilderError as error:
            self.recorder.fault(root, str(nodes), str(error))
        else:
            self.recorder.add(root, str(nodes), parts[str(Stage.SSH)], parts)


def measure_boot(
    room: BootServer, setting: Setting, firmware: Firmware, root: str
) -> dict[str, float]:
    """Switch all guests on and wait for ssh: the parts of a figure.  Raises FailedError."""
    taps = frozenset(guest.nic.tap for guest in room.guests)
    before, wires = load_of(room.lab), traffic_in(room.lab, taps)
    with ExitStack() as stack:
        course = switch_on(room, setting, firmware, root, stack)
        boot(course, f"{len(room.guests)} nodes, booting")
        after, now = load_of(room.lab), traffic_in(room.lab, taps)
        sent = http_bytes(room.log("nginx").read_text())
        return {
            **times_of(course),
            TO_NODES: (now.to_nodes - wires.to_nodes) / MB,
            FROM_NODES: (now.from_nodes - wires.from_nodes) / MB,
            BY_HTTP: sent / MB,
            **load_parts(before, after),
            **memory_parts(room),
        }


def times_of(course: TrialRun) -> dict[str, float]:
    """When the last node had each stage behind it."""
    reached = [runner.watch.reached for runner in course.runners]
    return {
        name: max(one[stage] for one in reached)
        for name, stage in ENDS.items()
        if all(stage in one for one in reached)
    }


def load_parts(before: Load, after: Load) -> dict[str, float]:
    """What each daemon took between two looks."""
    seconds = {
        cpu_of(name): after.seconds[name] - before.seconds.get(name, 0.0)
        for name in DAEMONS
        if name in after.seconds
    }
    memory = {memory_of(name): after.memory[name] / MB for name in DAEMONS if name in after.memory}
    return seconds | memory


def memory_parts(room: BootServer) -> dict[str, float]:
    """What a node has in use; nothing where it lets us not in, for the times are good without."""
    try:
        return {NODE_MEMORY: node_memory(room) / MB}
    except WorkError:
        return {}


def node_memory(room: BootServer) -> int:
    """Bytes that the first node has in use and cannot give back."""
    guest = room.guests[0]
    with login(room.lab, guest.name, guest.address, room.host_key(guest), room.key) as enter:
        return used_memory(enter("cat /proc/meminfo").stdout)


def used_memory(meminfo: str) -> int:
    """MemTotal less MemAvailable of /proc/meminfo, in bytes.  Raises WorkError."""
    found = dict(re.findall(r"^(\w+):\s+(\d+) kB", meminfo, re.MULTILINE))
    if not {"MemTotal", "MemAvailable"} <= found.keys():
        raise WorkError("the node does not tell its memory")
    return (int(found["MemTotal"]) - int(found["MemAvailable"])) * KIB
