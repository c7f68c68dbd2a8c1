# SPDX-License-Identifier: Apache-2.0
"""Debian's Slurm in a network of its own: a slurmctld, and a slurmd on each node.

A node has a host name and processes of its own.  What Slurm reads and writes is in the
lab's own /etc/slurm and /run.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from imagebuilder.boot.lab import SERVER, Lab, lab
from imagebuilder.process import Word
from imagebuilder.program import Program
from tests.integration.started import PATIENCE, wait_until

# A node whose answer was lost is asked again after a third of SlurmdTimeout, by itself 100 s, which
# must be less than our patience.  One that never answered is DOWN after all of it.
CONF = f"""\
ClusterName=test
SlurmctldHost=control({SERVER})
SlurmUser=root
StateSaveLocation=/run/slurm/state
SlurmdSpoolDir=/run/slurm/%n
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/%n.pid
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
MessageTimeout=2
SlurmdTimeout=150
ReturnToService=1
"""
SET_UP = """\
mkdir -p /run/munge /run/slurm/state
head -c 128 /dev/urandom > /run/slurm/key
chmod 400 /run/slurm/key
mount -t tmpfs tmpfs /etc/slurm
cat > /etc/slurm/slurm.conf
"""
MUNGED = """\
exec munged --foreground --key-file=/run/slurm/key --pid-file=/run/slurm/munged.pid \
    --seed-file=/run/slurm/seed --socket=/run/munge/munge.socket.2
"""
# Runs $2 on the machine $1, and again as often as its power is cut (USR1).
MACHINE = """\
name=$1
shift
trap 'kill -s KILL $machine' USR1
trap 'kill -s KILL $machine; exit' TERM
echo "machine $$"
while :; do
    unshare --uts --pid --fork --kill-child --mount-proc -- \
        sh -c 'hostname "$0"; exec "$@"' "$name" "$@" &
    machine=$!
    wait $machine || :
    [ "$1" != slurmd ] || set -- slurmd -D -b  # it says that the node was rebooted
done
"""
FIELD = re.compile(r"(\w+)=(.*?)(?= \w+=|$)")


@dataclass
class SlurmRoom:
    """What runs in the lab; `pids` are what to send signals to for each machine."""

    lab: Lab
    pids: dict[str, int] = field(default_factory=dict)

    def __call__(self, *words: Word, check: bool = True) -> str:
        """What one of Slurm's programs prints, run by root."""
        return self.lab.run(words, check=check).stdout

    def wrapper(self, name: str) -> str:
        """A program that runs another in here, for those who look for it on PATH."""
        argv = self.lab.words([find_program(name)])
        return f'#!/bin/sh\nexec {shlex.join(map(str, argv))} "$@"\n'

    @contextlib.contextmanager
    def machine(self, name: str, *argv: Word) -> Iterator[Program]:
        words = ["sh", "-c", MACHINE, "sh", name, *argv]
        with self.lab.program(name, words, dies_by="TERM") as started:
            self.pids[name] = int(started.wait_for(r"^machine (\d+)$", PATIENCE)[1])
            yield started

    def power_off(self, name: str) -> None:
        os.kill(self.pids[name], signal.SIGTERM)

    def is_idle(self, node: str) -> bool:
        return self("sinfo", "-h", "-o", "%T", "-n", node, check=False).strip() == "idle"

    def state(self, node: str) -> str:
        """State and reason of a node, without who gave it."""
        said = fields(self("scontrol", "--oneliner", "show", "node", node))
        state = said["State"].replace("+NOT_RESPONDING", "")  # until it is asked again
        return f"{state} {said.get('Reason', '').partition(' [')[0]}".strip()

    def submit(self, node: str, script: str) -> str:
        """A job of one processor on a node, once it runs; its number."""
        words = ["sbatch", "--parsable", "--output=/dev/null", "-n1", "-w", node, "--wrap", script]
        job = self(*words).strip()
        wait_until(lambda: self.job(job) == "RUNNING", f"job {job} does not run")
        return job

    def job(self, job: str) -> str:
        """The state of a job."""
        return fields(self("scontrol", "--oneliner", "show", "job", job))["JobState"]


def find_program(name: str) -> str:
    """Its whole path, or the one beside it on PATH would call itself."""
    found = shutil.which(name)
    assert found
    return found


def fields(line: str) -> dict[str, str]:
    return dict(FIELD.findall(line.strip()))


@contextlib.contextmanager
def slurm_room(work: Path, nodes: Sequence[str], *more: str) -> Iterator[SlurmRoom]:
    """Slurm with these nodes, all idle, in the partition `all`; `more` are lines of slurm.conf."""
    work.mkdir(exist_ok=True)
    addresses = [
        f"NodeName={name} NodeAddr={SERVER} Port={7001 + number} CPUs=2"
        for number, name in enumerate(nodes)
    ]
    partition = f"PartitionName=all Nodes={','.join(nodes)} Default=YES State=UP"
    with lab(work, []) as empty, contextlib.ExitStack() as stack:
        room = SlurmRoom(empty)
        conf = CONF + "".join(f"{line}\n" for line in (*addresses, partition, *more))
        empty.run(["sh", "-euc", SET_UP], stdin=conf.encode())
        munged = stack.enter_context(empty.program("munged", ["sh", "-c", MUNGED]))
        munged.wait_for("Created .* work threads", PATIENCE)
        stack.enter_context(room.machine("control", "slurmctld", "-D"))
        for name in nodes:
            stack.enter_context(room.machine(name, "slurmd", "-D"))
        for name in nodes:
            wait_until(lambda name=name: room.is_idle(name), f"{name} is not idle")  # type: ignore[misc]
        yield room
