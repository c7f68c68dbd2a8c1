# SPDX-License-Identifier: Apache-2.0
"""`status` and `run` of simulated nodes: every address of 127.0.0.0/8 answers, in a network of its
own.

Reports are on record as the boot server writes them.  What answers on port 22 says a banner and
nothing else, or nothing at all; for what is asked over ssh it is the real sshd, and all nodes share
this machine's processors with whoever asks.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from imagebuilder.boot.lab import Lab, lab
from imagebuilder.errors import WorkError
from imagebuilder.nodes.evidence.seen import HealthReport, Seen, write_seen
from imagebuilder.process import Word, run
from imagebuilder.tree import Tree, make_tree
from scripts.benchmark.bed import CHECKOUT, Asked, Bed
from scripts.benchmark.figures import Figure
from scripts.benchmark.goals import OURS

NODES, ASKED = 800, 200
FAN_OUT = 64  # as imagebuilder.fleet.ssh
BOOT = "0c1f6a3e-5f9e-4d3c-8b67-5a2f7d1c9e10"
# Answers on every address, or keeps silent: usage: ... says|silent
BANNER = """\
import asyncio, sys
async def met(reader, writer):
    if sys.argv[1] == "says":
        writer.write(b"SSH-2.0-simulated\\r\\n")
    await reader.read()
    writer.close()
async def main():
    async with await asyncio.start_server(met, "0.0.0.0", 22, backlog=4096) as server:
        print("ready", flush=True)
        await server.serve_forever()
asyncio.run(main())
"""
SSHD = """\
HostKey {top}/host
AuthorizedKeysFile {top}/key.pub
StrictModes no
PidFile none
UsePAM no
MaxStartups 1000
"""
ANSWER = "ForceCommand echo {boot}; cat /proc/uptime {top}/verdict\n"
# What clush and pdsh are given: what our own ssh_config says of all nodes.
CLIENT = """\
User root
IdentityFile {top}/key
UserKnownHostsFile {top}/tree/serve/known_hosts
GlobalKnownHostsFile none
StrictHostKeyChecking yes
BatchMode yes
LogLevel ERROR
"""


@dataclass(frozen=True)
class Fleet:
    """The tree of the nodes, and the room in which they answer."""

    room: Lab
    top: Path
    tree: Tree

    @contextmanager
    def answering(self, how: str) -> Iterator[None]:
        """Port 22 of every node `says` a banner, is `silent`, or is sshd: `asked` gives a verdict,
        `login` a shell.
        """
        argv: list[Word] = [sys.executable, "-c", BANNER, how]
        ready = "^ready"
        if how in ("asked", "login"):
            argv, ready = ["/usr/sbin/sshd", "-D", "-e", "-f", self.top / how], "listen"
        with self.room.program(how, argv) as server:
            server.wait_for(ready, 20)
            yield

    def status(self, *words: str) -> tuple[float, float]:
        """Seconds and peak memory in MB of `imagebuilder status WORDS`."""
        out = self.top / "peak.json"
        peak: list[Word] = [sys.executable, CHECKOUT / "scripts/benchmark/peak.py", out]
        env: list[Word] = ["env", f"HOME={self.top}/home", f"PYTHONPATH={CHECKOUT}"]
        start = monotonic()
        said = self.room.run(
            [*env, *peak, "status", "--json", "--tree", self.tree.path, *words], check=False
        )
        seconds = monotonic() - start
        if said.status not in (0, 1) or not said.stdout:
            raise WorkError(f"status {' '.join(words)}: {said.stderr}")
        many = said.stdout.count('"node":')
        healthy = 0 if said.status else many
        if not many or said.stdout.count('"verdict": "ok"') != healthy:
            raise WorkError(f"status of {many} simulated nodes is wrong: {said.stdout[:1000]}")
        return seconds, json.loads(out.read_text())["program"] / 1e6

    def time_run(self, argv: Sequence[Word]) -> float:
        """Seconds that a command takes, which must succeed."""
        env: list[Word] = ["env", f"HOME={self.top}/home", f"PYTHONPATH={CHECKOUT}"]
        pdsh: list[Word] = [f"PDSH_SSH_ARGS_APPEND=-F {self.top}/client"]
        start = monotonic()
        self.room.run([*env, *pdsh, *argv])
        return monotonic() - start


@contextmanager
def simulated_fleet(top: Path, count: int) -> Iterator[Fleet]:
    """So many nodes that booted just now and said that they are healthy."""
    top.mkdir(parents=True)
    tree = make_tree(top / "tree")
    now = datetime.now(UTC).isoformat()
    told = HealthReport("ok", "3 checks passed", BOOT, 1000.0, now)
    lines = ["defaults: {login: root}\nnodes:\n"]
    for number in range(count):
        mac = f"52:54:00:77:{number // 256:02x}:{number % 256:02x}"
        address = f"127.1.{number // 256}.{number % 256}"
        booted = "2026-01-01T00:00:00+00:00"
        write_seen(tree, Seen(mac, f"n{number}", "generic", "1", address, "switch-root", "nfs",
                              booted, booted, health=told))  # fmt: skip
        lines.append(f"  n{number}: {{macs: ['{mac}'], profile: generic}}\n")
    tree.nodes_file.write_text("".join(lines))
    make_keys(top, tree)
    with lab(top, []) as room:
        room.run(["mkdir", "/run/sshd"])
        yield Fleet(room, top, tree)


def make_keys(top: Path, tree: Tree) -> None:
    """A host key for all, a person's key, and what nodes answer over ssh."""
    (top / "home/.ssh").mkdir(parents=True, mode=0o700)
    for name in ("host", "key"):
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", top / name])
    words = (top / "host.pub").read_text().split()[:2]
    tree.serve.mkdir(exist_ok=True)
    (tree.serve / "known_hosts").write_text(f"* {' '.join(words)}\n")
    (top / "home/.ssh/config").write_text(f"IdentityFile {top}/key\n")
    value = {"schema": 1, "verdict": "ok", "words": "3 checks passed", "release": "generic@1",
             "boot-id": BOOT, "uptime": 1e9}  # fmt: skip
    (top / "verdict").write_text(json.dumps(value) + "\n")
    (top / "login").write_text(SSHD.format(top=top))
    (top / "asked").write_text((SSHD + ANSWER).format(top=top, boot=BOOT))
    (top / "client").write_text(CLIENT.format(top=top))


def measure_status(bed: Bed, asked: Asked) -> list[Figure]:
    """Health by report, beside a day on which every node is silent, and beside asking over ssh."""
    with simulated_fleet(bed.top / "states/status", NODES) as fleet:
        with bed.ui.step(f"status of {NODES} nodes"), fleet.answering("says"):
            seconds = tuple(fleet.status()[0] for _ in range(asked.runs))
        with bed.ui.step("the same, all of them silent"), fleet.answering("silent"):
            silent, _ = fleet.status()
        with bed.ui.step(f"{ASKED} of them over ssh"), fleet.answering("asked"):
            over_ssh, _ = fleet.status("--ask", f"n[0-{ASKED - 1}]")
    parts = {"all silent, s": (silent,), f"{ASKED} nodes, asked over ssh, s": (over_ssh,)}
    return [Figure("status", f"{NODES} nodes", seconds, parts=parts)]


def measure_status_memory(bed: Bed, asked: Asked) -> list[Figure]:
    """What the process takes for them at most."""
    with (
        simulated_fleet(bed.top / "states/status-memory", NODES) as fleet,
        bed.ui.step(f"memory for {NODES} nodes"),
        fleet.answering("says"),
    ):
        most = tuple(fleet.status()[1] for _ in range(asked.runs))
    return [Figure("status-memory", f"{NODES} nodes", most)]


def measure_run(bed: Bed, asked: Asked) -> list[Figure]:
    """`true` on many nodes, in turns with clush and pdsh: each round's ratio to the faster."""
    with (
        simulated_fleet(bed.top / "states/run", ASKED) as fleet,
        bed.ui.step(f"true on {ASKED} nodes"),
        fleet.answering("login"),
    ):
        commands = run_commands(fleet)
        rounds = [
            {name: fleet.time_run(argv) for name, argv in commands.items()}
            for _ in range(asked.runs)
        ]
    others = [name for name in commands if name != OURS]
    ratio = tuple(round_[OURS] / min(round_[name] for name in others) for round_ in rounds)
    parts = {f"{name}, s": tuple(round_[name] for round_ in rounds) for name in commands}
    note = "" if "pdsh" in commands else "pdsh is not installed"
    return [Figure("run", f"{ASKED} nodes", ratio, parts=parts, note=note)]


def run_commands(fleet: Fleet) -> dict[str, list[Word]]:
    """How each of the programs that there are is told to do it; all have the same fan-out."""
    ours: list[Word] = [
        sys.executable,
        "-m",
        "imagebuilder.cli.main",
        "run",
        "--tree",
        fleet.tree.path,
    ]
    there, fan_out = f"127.1.0.[0-{ASKED - 1}]", str(FAN_OUT)
    clush = Path(sys.executable).with_name("clush")
    found: dict[str, list[Word]] = {
        OURS: [*ours, "@all", "--", "true"],
        "clush": [clush, "-o", f"-F {fleet.top}/client", "-f", fan_out, "-w", there, "-b", "true"],
    }
    if shutil.which("pdsh"):
        found["pdsh"] = ["pdsh", "-R", "ssh", "-f", fan_out, "-w", there, "true"]
    return found
