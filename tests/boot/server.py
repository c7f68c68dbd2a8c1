# SPDX-License-Identifier: Apache-2.0
"""The boot server as its user has it: `imagebuilder serve` in a room, and commands beside it."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

from imagebuilder.boot.acceleration import CHEAP
from imagebuilder.boot.lab import Lab
from imagebuilder.boot.machine import Machine
from imagebuilder.process import Completed, Word, run
from imagebuilder.program import Program
from imagebuilder.tree import DEFAULT_TREE
from tests.workshop import Workshop

# A boot under TCG takes one to two minutes on a quiet machine, several on a busy one.
BOOT_SECONDS = 600
START_SECONDS = 90
LOOK_EVERY = 0.5
# Words of nodes.yaml to the same end.
CHEAP_NODE = f"[{', '.join(CHEAP)}, systemd.mask=llama-server.service]"
# What a console says when no waiting helps.
HOPELESS = r"BOOT FAILED|Kernel panic|Attempted to kill init|No bootable device|emergency mode"
# The tree lies in a folder that only we may enter, which is no place for a web server's files.
PLACE_TREE = f"""\
mount -t tmpfs -o mode=755 tmpfs {DEFAULT_TREE.parent}
mkdir {DEFAULT_TREE}
mount --bind "$1" {DEFAULT_TREE}
"""

Found = TypeVar("Found")


@dataclass(frozen=True)
class Published:
    """A netboot tree with two versions of `generic`: `old` is stable, `new` is candidate."""

    tree: Path
    old: str
    new: str


@dataclass(frozen=True)
class Report:
    """A stage that a node's initrd has told, with the release and the node's address and MAC."""

    address: str
    profile: str
    version: str
    stage: str
    mac: str


@dataclass(frozen=True)
class Server:
    """`imagebuilder serve` on a tree of its own; `tree` is where we see that tree."""

    room: Lab
    workshop: Workshop
    tree: Path
    program: Program

    def __call__(self, *words: str, check: bool = True) -> Completed:
        """Run `imagebuilder WORDS` beside it, on the same tree."""
        return self.room.run(command(self.workshop, *words), check=check)

    def reports(self, stage: str = "") -> list[Report]:
        """The stages that nodes have reported so far, in order: all or one."""
        log = self.tree / "serve/reports.log"
        lines = log.read_text().splitlines() if log.exists() else []
        uris = [json.loads(line).get("uri", "") for line in lines]
        stages = [line for line, uri in zip(lines, uris, strict=True) if "stage=" in uri]
        found = [parse_report(line) for line in stages]
        return [report for report in found if stage in ("", report.stage)]

    def requests(self) -> list[str]:
        """What the web server was asked for so far, each as `STATUS PATH`."""
        lines = (self.tree / "serve/logs/nginx.log").read_text().splitlines()
        found = (re.match(r"[\d.]+ (\d{3}) \d+ [\d.]+ (\S+)$", line) for line in lines)
        return [f"{match[1]} {match[2]}" for match in found if match]

    def await_request(self, node: Machine, wanted: str, *, after: int = 0) -> int:
        """Wait until `wanted` (`STATUS PATH`) was asked for; how many requests there were then.

        The first `after` requests do not count.
        """

        def find() -> int:
            asked = self.requests()
            return asked.index(wanted, after) + 1 if wanted in asked[after:] else 0

        return self.awaited(node, find, wanted)

    def await_stage(self, node: Machine, stage: str, *, after: int = 0) -> Report:
        """The first report of that stage, the first `after` such reports excepted."""
        found = self.awaited(node, lambda: self.reports(stage)[after:], f"stage {stage}")
        return found[0]

    def awaited(self, node: Machine, find: Callable[[], Found], what: str) -> Found:
        """What `find` returns as soon as that is something.

        Raises WorkError with the last lines of whoever is to blame: after BOOT_SECONDS, and at
        once when the machine or the server has ended, or the console says that all is lost.
        """
        deadline = time.monotonic() + BOOT_SECONDS
        while not (found := find()):
            if self.program.status is not None:
                raise self.program.complaint(f"ended before {what}")
            if node.process.status is not None or node.console.said(HOPELESS):
                raise node.process.complaint(f"has failed before {what}")
            if time.monotonic() > deadline:
                said = "\n    ".join(self.requests()[-10:])
                raise node.process.complaint(f"took too long for {what}; was sent\n    {said}\n")
            time.sleep(LOOK_EVERY)
        return found


def parse_report(line: str) -> Report:
    """A line of reports.log."""
    value = json.loads(line)
    address = urlsplit(value["uri"])
    *_, profile, version = address.path.strip("/").split("/")
    words = parse_qs(address.query)
    return Report(value["address"], profile, version, words["stage"][0], words["node"][0])


def command(workshop: Workshop, *words: str) -> list[Word]:
    """`imagebuilder WORDS` with the workshop's settings, for another room."""
    settings = (f"{name}={value}" for name, value in workshop.env().items())
    return ["env", f"--chdir={workshop.project}", *settings, *workshop.argv(*words)]


def copy_tree(published: Published, target: Path) -> Path:
    """A tree of one's own, by hard links: what has a name in a tree is never changed in place.

    The journal is, and what others than releases have left does not come along.
    """
    run(["cp", "--archive", "--link", published.tree, target])
    journal = target / "journal.jsonl"
    content = journal.read_bytes()
    journal.unlink()
    journal.write_bytes(content)
    for name in ("serve", "seen", "nodes"):
        shutil.rmtree(target / name, ignore_errors=True)
        (target / name).mkdir(mode=0o700 if name == "nodes" else 0o755)
    return target


@contextlib.contextmanager
def boot_server(
    room: Lab, workshop: Workshop, published: Published, nodes: str, options: Sequence[str] = ()
) -> Iterator[Server]:
    """Serve a copy of the published tree with `nodes` as its nodes.yaml."""
    tree = copy_tree(published, room.work / "tree")
    (tree / "nodes.yaml").write_text(nodes)
    room.run(["sh", "-euc", PLACE_TREE, "sh", tree])
    words = command(workshop, "serve", "--interface", "br0", *options)
    with room.program("serve", words, dies_by="TERM") as serving:
        serving.wait_for(r"^Serving ", START_SECONDS)
        yield Server(room, workshop, tree, serving)
    assert serving.status in (0, 130), serving.complaint("ended badly")


@dataclass(frozen=True)
class Login:
    """A person's ssh to a node, who trusts that node's own host key and no other."""

    server: Server
    address: str
    known: Path

    def __call__(self, script: str) -> Completed:
        """Run a shell script on the node as root."""
        options = (
            "BatchMode=yes", "StrictHostKeyChecking=yes", f"UserKnownHostsFile={self.known}",
            "GlobalKnownHostsFile=/dev/null", "ConnectTimeout=120",
        )  # fmt: skip
        return self.server.room.run(
            [
                "ssh", "-F", "none", "-i", self.server.workshop.site.parent / "key",
                *(word for option in options for word in ("-o", option)),
                f"root@{self.address}", script,
            ],
        )  # fmt: skip


def log_in(server: Server, node: Machine, name: str, address: str) -> Login:
    """Wait until `serve` says that node `name` answers to ssh; trust the key that it keeps.

    Nobody else may try before: every connection costs an emulated node seconds.
    """
    server.awaited(node, lambda: server.program.said(rf"^{name} +ssh "), f"ssh on {address}")
    kept = (server.tree / "nodes" / name / "ssh_host_ed25519_key.pub").read_text().split()[:2]
    known = server.room.work / "known_hosts"
    known.write_text(f"{address} {' '.join(kept)}\n")
    return Login(server, address, known)
