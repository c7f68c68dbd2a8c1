# SPDX-License-Identifier: Apache-2.0
"""Simulated nodes behind a program named ssh, for roll-outs: everything else is the real code.

A node boots what its own script in the netboot tree leads to, as a real one would.  Its files:
boot_id, release, boots (one line for each), and `fault`: what happens to it with the new release.
"""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from imagebuilder.fleet.drain import choose_drainer
from imagebuilder.fleet.health import FILE
from imagebuilder.fleet.rollout.journal import rolling_out, save_rollout
from imagebuilder.fleet.rollout.run import POLL, RolloutRun
from imagebuilder.fleet.rollout.start import RolloutOrder, make_rollout
from imagebuilder.fleet.rollout.types import Rollout, RolloutTerms
from imagebuilder.nodes.evidence.seen import Seen, write_seen
from imagebuilder.nodes.files import update_nodes
from imagebuilder.publish.channel.move import promote
from imagebuilder.tree import Tree, make_tree
from imagebuilder.ui import Ui
from tests.unit.test_publish_channel import make_release

OLD, NEW, OTHER = "20260101-aa", "20260102-ab", "20260103-ba"
LONG_AGO = "2026-01-01T00:00:00+00:00"
UNTESTED = "the gate is the affair of another test"

# The shell reads small files itself: each program that it starts takes as long as all of these.
# The last two arguments are the node and what it is told.
SSH = """\
#!/bin/sh
while [ $# -gt 2 ]; do shift; done
exec "{sim}/node" "$1" "$2"
"""
NODE = """\
#!/bin/sh
export SIM={sim} NODE=$1 PATH="{sim}/bin:$PATH"
cd "$SIM/nodes/$1" || exit 255
read -r release < release
read -r power < power
[ "$release" = {new} ] && read -r fault < fault || fault=
[ "$power" = on ] || {{ echo "ssh: connect to host $1: No route to host" >&2; exit 255; }}
case $fault in
panics | hangs | "no network") echo "ssh: connect to host $1: No route to host" >&2; exit 255 ;;
"ssh is dead") echo "$1: Permission denied (publickey)." >&2; exit 255 ;;
"reboots by itself")
    looks=$(wc -l < looks)
    echo >> looks
    [ "$looks" != 1 ] || cat /proc/sys/kernel/random/uuid > boot_id ;;
esac
exec sh -c "$2"
"""
# What a node's own files are instead of this host's.
CAT = """\
#!/bin/sh
for path; do
    case $path in
    /proc/sys/kernel/random/boot_id) read -r id < "$SIM/nodes/$NODE/boot_id"; echo "$id" ;;
    /proc/uptime) echo "100.00 100.00" ;;
    /etc/os-release) read -r release < "$SIM/nodes/$NODE/release"
        printf 'ID=debian\\nIMAGE_ID=demo\\nIMAGE_VERSION=%s\\n' "$release" ;;
    {file}) "$SIM/health" || exit 1 ;;
    *) exec /bin/cat "$@" ;;
    esac
done
"""
HEALTH = """\
#!/bin/sh
cd "$SIM/nodes/$NODE"
read -r release < release
read -r boot_id < boot_id
[ "$release" = {new} ] && read -r fault < fault || fault=
verdict=ok words="all is well"
case $fault in
"computes wrong numbers") verdict="wrong results" words="MUL_MAT differs from the processor" ;;
"has no card") verdict="missing device" words="0 of 1 card" ;;
"serves on the processor") verdict=degraded words="0 of 33 layers on the card" ;;
"never says how it is") echo "cat: {file}: No such file or directory" >&2
    exit 1 ;;
esac
printf '{{"schema": 1, "verdict": "%s", "words": "%s", ' "$verdict" "$words"
printf '"release": "demo@%s", "boot-id": "%s", "uptime": 90.0}}\\n' \\
    "$release" "$boot_id"
"""
# sudo -n systemctl reboot
SUDO = """\
#!/bin/sh
cd "$SIM/nodes/$NODE"
case $(/bin/cat fault) in
"may not reboot") echo "sudo: a password is required" >&2; exit 1 ;;
esac
exec "$SIM/boot"
"""
# The node's script says what it boots: a release, or what a channel points to.
BOOT = """\
#!/bin/sh
cd "$SIM/nodes/$NODE"
mac=$(/bin/cat mac)
what=$(sed -n 's#^chain .*/\\(channels\\|releases\\)/demo/\\([^/]*\\)/boot.ipxe.*#\\1 \\2#p' \\
    "{tree}/http/nodes/$mac/boot.ipxe")
version=${{what#* }}
[ "${{what% *}}" = releases ] || version=$(basename "$(readlink "{tree}/channels/demo/$version")")
[ "$(/bin/cat fault)" != "boots something else" ] || [ "$version" != {new} ] || version={other}
: > looks
/bin/cat /proc/sys/kernel/random/uuid > boot_id
echo "$version" > release
echo on > power
echo "$version" >> boots
"""
POWER = """\
#!/bin/sh
export SIM={sim} NODE=$2
cd "$SIM/nodes/$2"
case $1 in
on) "$SIM/boot" ;;
off) echo off > power; echo "$2" >> "$SIM/cuts" ;;
esac
"""
# A scheduler: jobs are lines of `jobs`, of which one ends at each look; `idle` says that none runs.
SCHEDULER = """\
#!/bin/sh
cd {sim}/nodes/$2 || exit 1
case $1 in
drain) touch drained
    [ -e idle ] || [ ! -s jobs ] || {{ sed -i 1d jobs; echo "a job runs on $2" >&2; exit 1; }} ;;
resume) [ ! -e silent ] || {{ rm silent; echo "the scheduler is silent" >&2; exit 1; }}
    rm drained; echo "$2" >> {sim}/resumed ;;
esac
"""


class Ahead:
    """A clock that is ahead by the time that was not slept: nodes here do at once what they do."""

    def __init__(self) -> None:
        self.by = timedelta()

    def wait(self, seconds: float) -> None:
        self.by += timedelta(seconds=seconds)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.by

    def steady(self) -> float:
        return self.now().timestamp()


@dataclass(frozen=True)
class RolloutWorld:
    """A tree with OLD stable and NEW candidate of `demo`, and nodes that run OLD."""

    top: Path
    tree: Tree
    env: Mapping[str, str]
    drain: str = ""  # the program beside the nodes, unless another scheduler is named

    @property
    def sim(self) -> Path:
        return self.top / "sim"

    def told(self, name: str, file: str) -> str:
        path = self.sim / "nodes" / name / file
        return path.read_text().strip() if path.exists() else ""

    def boots(self, name: str) -> list[str]:
        """What a node booted since it came up."""
        return self.told(name, "boots").splitlines()

    def plant(self, name: str, fault: str) -> None:
        (self.sim / "nodes" / name / "fault").write_text(f"{fault}\n")

    def run(self, ui: Ui | None = None) -> RolloutRun:
        drainer = choose_drainer(self.drainer)
        made = RolloutRun(self.tree, ui or Ui(io.StringIO()), drainer, self.env, poll=0.0)
        if self.drain:
            return made  # a real scheduler needs time
        ahead = Ahead()
        return replace(made, poll=POLL, wait=ahead.wait, clock=ahead.now, steady=ahead.steady)

    @property
    def drainer(self) -> str:
        return self.drain or os.fspath(self.sim / "scheduler")

    def start(self, order: RolloutOrder) -> Rollout:
        """Make a roll-out and write it down, as the command does."""
        order = replace(order, terms=replace(order.terms, drain=self.drainer))
        with rolling_out(self.tree, "demo"):
            rollout = make_rollout(self.tree, order, self.env, Ui(io.StringIO()))
            save_rollout(self.tree, rollout)
            return rollout


def order(name: str = "demo", *, timeout: float = 20, canary: str = "", batch: str = "25%",
          **terms: object) -> RolloutOrder:  # fmt: skip
    made = RolloutTerms(timeout=timeout, untested=UNTESTED, **terms)  # type: ignore[arg-type]
    return RolloutOrder(name, made, canary, batch)


def make_world(top: Path, names: Sequence[str], extra: str = "") -> RolloutWorld:
    """The world; the caller puts `sim/path` before PATH.  `extra` stands in nodes.yaml."""
    tree = make_tree(top / "tree")
    for version in (OLD, NEW, OTHER):
        make_release(tree, version)
    quiet = Ui(io.StringIO())
    promote(tree, f"demo@{OLD}", quiet, untested=UNTESTED)
    link = tree.channel("demo", "candidate")
    link.symlink_to(f"../../http/releases/demo/{NEW}")
    sim = top / "sim"
    values = {"sim": sim, "tree": tree.path, "new": NEW, "other": OTHER, "file": FILE}
    for file, text in {
        "path/ssh": SSH, "node": NODE, "bin/cat": CAT, "health": HEALTH, "bin/sudo": SUDO,
        "boot": BOOT, "switch": POWER, "scheduler": SCHEDULER,
    }.items():  # fmt: skip
        place = sim / file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text.format(**values))
        place.chmod(0o755)
    lines = [f"defaults:\n  power: {{driver: exec, on: [{sim}/switch, 'on', '{{node}}'],\n"
             f"          off: [{sim}/switch, 'off', '{{node}}']}}\n{extra}nodes:\n"]  # fmt: skip
    for number, name in enumerate(names):
        mac = f"52:54:00:77:{number // 256:02x}:{number % 256:02x}"
        address = f"127.77.{number // 256}.{number % 256}"  # nobody answers there
        lines.append(f"  {name}: {{macs: ['{mac}'], profile: demo}}\n")
        told = Seen(mac, name, "demo", OLD, address, "switch-root", "nfs", LONG_AGO, LONG_AGO)
        write_seen(tree, told)
        folder = sim / "nodes" / name
        folder.mkdir(parents=True)
        for file, text in {
            "boot_id": str(uuid.uuid4()), "release": OLD, "fault": "", "power": "on",
            "mac": mac.replace(":", "-"), "boots": "",
        }.items():  # fmt: skip
            (folder / file).write_text(f"{text}\n" if text else "")
    tree.nodes_file.write_text("".join(lines))
    update_nodes(tree)
    return RolloutWorld(top, tree, {"HOME": os.fspath(top), "USER": "ada"})
