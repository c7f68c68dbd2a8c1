# SPDX-License-Identifier: Apache-2.0
"""Commands on many nodes at once, over ssh with the host keys that the tree knows.

ClusterShell runs ssh(1) for as many nodes at a time as it may.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from typing import TYPE_CHECKING

from ClusterShell.NodeSet import NodeSet
from ClusterShell.Task import task_self
from ClusterShell.Worker.EngineClient import EngineClientEOF
from ClusterShell.Worker.Ssh import SshClient, WorkerSsh

from imagebuilder.fleet.addresses import find_addresses
from imagebuilder.nodes.types import Node
from imagebuilder.ssh import (
    NODE_OPTIONS,
    NOT_SHARED,
    PLAIN,
    SSH_FAILED,
    quoted_path,
    render_options,
)
from imagebuilder.tree import Tree
from imagebuilder.untrusted import MOST_REQUEST, clean

if TYPE_CHECKING:
    from collections.abc import Iterator

FAN_OUT = 64
CONNECT_SECONDS = 10
END_S = 5.0  # that an ssh has to end after it has closed its streams
MOST = 1 << 20  # bytes of an answer that we ask for ourselves
MOST_TYPED = 64 << 20  # of the output of a person's command
MOST_TOGETHER = 1 << 30  # of all nodes
LINE = 64  # bytes that may be sent for each line: a line costs far more than its bytes
CUT_OFF = 137  # the exit status of a program that was killed, as a shell tells it
# random(4); a node's shell may print anything before what was asked.
BOOT_ID = re.compile(r"^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$", re.MULTILINE)
NO_ADDRESS = "its address is not known: set `address` in nodes.yaml, or boot it once"


@dataclass
class Heard:
    """What nodes have sent: by their name and the stream; `cut` says of whom it was too much.

    Each may send `most` bytes, and all together MOST_TOGETHER; lines are limited likewise.
    """

    most: int
    streams: dict[tuple[str, str], bytearray] = field(default_factory=dict)
    cut: dict[str, str] = field(default_factory=dict)
    received: Counter[str] = field(default_factory=Counter)
    lines: Counter[str] = field(default_factory=Counter)

    def take(self, node: str, stream: str, data: bytes) -> bool:
        """Keep what came; returns whether more may come."""
        kept = self.streams.setdefault((node, stream), bytearray())
        kept += data
        for counter, amount, most, together, unit in (
            (self.received, len(data), self.most, MOST_TOGETHER, "bytes"),
            (self.lines, data.count(b"\n"), self.most // LINE, MOST_TOGETHER // LINE, "lines"),
        ):
            counter[node] += amount
            if counter[node] > most:
                self.cut[node] = f"more than {most} {unit}: cut off"
            elif counter.total() > together:
                self.cut[node] = f"more than {together} {unit} of all nodes together: cut off"
        return node not in self.cut

    def text(self, node: str, stream: str) -> str:
        """With ends of lines as they are here, and without the last one."""
        found = self.streams.get((node, stream), b"").decode(errors="replace")
        return found.replace("\r\n", "\n").removesuffix("\n")


class LimitedClient(SshClient):  # type: ignore[misc]  # it has no types
    """One ssh, which is ended when its node sends too much.

    ClusterShell keeps an object for each line, hundreds of bytes for one; whose node it is may send
    lines without end.
    """

    def _handle_read(self, sname: str) -> None:
        heard: Heard = self.worker.task.info("heard")
        if not heard.take(str(self.key), sname, self._read(sname)):
            self.popen.kill()
            raise EngineClientEOF

    def _close(self, abort: bool, timeout: bool) -> None:  # noqa: FBT001 - it is called so
        """ClusterShell waits for the program, even one that has closed its streams and goes on."""
        timer = Timer(END_S, self.popen.kill)
        if self.popen.poll() is None:
            timer.start()
        try:
            super()._close(abort, timeout)
        finally:
            timer.cancel()


class LimitedSsh(WorkerSsh):  # type: ignore[misc]
    """ClusterShell's worker, of LimitedClient."""

    SHELL_CLASS = LimitedClient


@dataclass(frozen=True)
class Said:
    """What a command said on one node; `status` None means that the time ran out.

    `errors` is its stderr, empty where that is in `output`.
    """

    node: str
    status: int | None
    output: str = ""
    errors: str = ""

    @property
    def succeeded(self) -> bool:
        return self.status == 0

    @property
    def last_words(self) -> str:
        """Why it failed: the last line of its stderr.  What it said on stdout is no reason."""
        return last_line(self.errors) or f"exit status {self.status}"

    @property
    def from_boot_id(self) -> str:
        """The output from the first line that is a boot id; empty without one."""
        found = BOOT_ID.search(self.output)
        return self.output[found.start() :] if found else ""


def last_line(text: str) -> str:
    """The last line with something printable, cleaned; empty if the end of the text has none."""
    lines = (clean(line) for line in reversed(text.rstrip()[-MOST_REQUEST:].splitlines()))
    return next((line for line in lines if line.strip()), "")


def run_on(
    tree: Tree,
    nodes: Sequence[Node],
    command: Sequence[str],
    seconds: float | None = None,
    *,
    most: int = MOST,
    merged: bool = False,
) -> list[Said]:
    """Run a command on each node, in the order of `nodes`.

    Each has `seconds` and may say `most` bytes; one that says more is cut off, and fails.  `merged`
    puts stderr into the output, for people; there it may stand in the middle of a line.

    A node whose address is not known, and one that ssh cannot reach, has ssh's status 255.
    """
    addresses = find_addresses(tree, nodes)
    reachable = [node for node in nodes if node.name in addresses]
    why = {"output" if merged else "errors": NO_ADDRESS}
    found = {
        node.name: Said(node.name, SSH_FAILED, **why)
        for node in nodes
        if node.name not in addresses
    }
    if reachable:
        with ssh_config(tree, reachable, addresses) as config:
            names = [node.name for node in reachable]
            found |= run_task(config, names, command, seconds, most, merged=merged)
    return [found[node.name] for node in nodes]


def run_task(
    config: Path,
    names: Sequence[str],
    command: Sequence[str],
    seconds: float | None,
    most: int,
    *,
    merged: bool,
) -> dict[str, Said]:
    """What ClusterShell's task gathered, by node."""
    task = task_self()
    task.set_info("ssh_options", f"-F {config} -o LogLevel=ERROR")
    task.set_info("fanout", FAN_OUT)
    heard = Heard(most)
    task.set_info("heard", heard)
    task.set_default("distant_worker", LimitedSsh)
    task.set_default("stderr", not merged)
    nodes = NodeSet.fromlist(list(names))
    task.run(shlex.join(command), nodes=nodes, timeout=seconds, stdin=False)
    status: dict[str, int | None] = {
        str(name): code for code, keys in task.iter_retcodes() for name in keys
    }
    late = {str(name) for name in task.iter_keys_timeout()}
    found = {}
    for name in names:
        output, errors = heard.text(name, "stdout"), heard.text(name, "stderr")
        if why := heard.cut.get(name):
            why = f"\n{why}\n"
            output, errors = (output + why, errors) if merged else (output, errors + why)
        code = None if name in late else status.get(name, SSH_FAILED)
        if why and code == 0:  # it had ended before it could be
            code = CUT_OFF
        found[name] = Said(name, code, output, errors)
    return found


@contextmanager
def ssh_config(tree: Tree, nodes: Sequence[Node], addresses: Mapping[str, str]) -> Iterator[Path]:
    """An ssh_config(5) in which each node has its address, user and known host key."""
    with TemporaryDirectory(prefix="imagebuilder-ssh-") as folder:
        path = Path(folder) / "config"
        path.write_text(render_ssh_config(tree.serve / "known_hosts", nodes, addresses))
        yield path


def render_ssh_config(
    known_hosts: Path, nodes: Sequence[Node], addresses: Mapping[str, str]
) -> str:
    hosts = "".join(
        f"Host {node.name}\n"
        f"  HostName {addresses[node.name]}\n"
        f"  HostKeyAlias {node.name}\n"
        f"  User {node.login}\n"
        for node in nodes
    )
    return (
        f"{hosts}Host *\n"
        f"  UserKnownHostsFile {quoted_path(known_hosts)}\n"
        "  BatchMode yes\n"
        f"  ConnectTimeout {CONNECT_SECONDS}\n"
        f"{render_options(NODE_OPTIONS | PLAIN | NOT_SHARED)}"
        "Include ~/.ssh/config\n"
        "Host *\n"
        "  SendEnv -*\n"  # drops what was named before
    )


def group_output(said: Sequence[Said]) -> list[tuple[str, list[Said]]]:
    """Nodes that said the same, together: `node[1-3]`, in the order of the first of each."""
    groups: dict[tuple[int | None, str], list[Said]] = {}
    for each in said:
        groups.setdefault((each.status, each.output), []).append(each)
    return [
        (str(NodeSet.fromlist([each.node for each in group])), group) for group in groups.values()
    ]
