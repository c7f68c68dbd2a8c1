# SPDX-License-Identifier: Apache-2.0
"""A wire of two ends, each in a network of its own, to serve on and to ask from.

    server end: wire0, 10.77.0.1/24 -------- client end: wire1, 10.77.0.50/24

The host's network, mounts and /run are not touched; all of it ends with its first processes.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imagebuilder.process import Completed, Word, run
from imagebuilder.program import Program, program
from imagebuilder.tree import Tree, make_tree
from tests.integration.started import PATIENCE, wait_until

CHECKOUT = Path(__file__).parent.parent.parent
COMMAND = (sys.executable, "-m", "imagebuilder.cli.main", "--project", CHECKOUT)
SERVER, CLIENT, ROUTER = "10.77.0.1", "10.77.0.50", "10.77.0.254"
MAC = "52:54:00:77:00:01"
TRY_SECONDS = 120.0  # one that serves, though it must not, would do so for ever
TICKET = re.compile(r"^set report \S+/report/(\S+)$", re.MULTILINE)
SET_UP = """\
mount -t tmpfs tmpfs /run
mkdir /run/ganesha /run/rpcbind
ip link set lo up
echo "ready $$"
exec sleep infinity
"""


@dataclass(frozen=True)
class Room:
    """Both ends, by the process that holds each; `tree` is open to the daemons' users."""

    server: int
    client: int
    tree: Tree
    work: Path

    def at(self, holder: int, argv: Sequence[Word]) -> list[Word]:
        """The command that runs `argv` at one end."""
        enter = ["nsenter", "--target", str(holder), "--net", "--mount", f"--wdns={CHECKOUT}"]
        return [*enter, "--", *argv]

    def at_server(self, *argv: Word) -> Completed:
        return run(self.at(self.server, argv), check=False)

    def at_client(self, *argv: Word) -> Completed:
        return run(self.at(self.client, argv), check=False)

    def command(self, *options: Word, interface: str = "wire0") -> list[Word]:
        """`imagebuilder serve` at the server's end."""
        words = ["serve", "--interface", interface, "--tree", self.tree.path, *options]
        # A program that a shell started beside itself does not know Ctrl-C otherwise.
        return self.at(self.server, ["env", "--default-signal=INT", *COMMAND, *words])

    def try_serve(self, *options: Word, interface: str = "wire0") -> Completed:
        """`imagebuilder serve` that is expected to end by itself."""
        return run(self.command(*options, interface=interface), check=False, seconds=TRY_SECONDS)

    @contextlib.contextmanager
    def serving(self, *options: Word, verbose: bool = True) -> Iterator[Program]:
        """`imagebuilder serve`, ready."""
        argv = self.command(*options)
        if verbose:
            argv.insert(argv.index("serve"), "--verbose")
        with program("serve", argv, self.work / "serve.log", dies_by="TERM") as started:
            started.wait_for("^Serving ", 60)
            yield started

    @contextlib.contextmanager
    def beside(self, name: str, holder: int, *argv: Word) -> Iterator[Program]:
        """Another program at one of the ends."""
        with program(name, self.at(holder, argv), self.work / f"{name}.log") as started:
            yield started

    def ask(self, architecture: int, *more: str, mac: str = MAC) -> list[dict[str, Any]]:
        """What a firmware is offered."""
        argv = ["-m", "tests.integration.dhcp_client", "wire1", mac, str(architecture), *more]
        done = run(self.at(self.client, [sys.executable, *argv]), cwd=CHECKOUT)
        answers: list[dict[str, Any]] = json.loads(done.stdout)
        return answers

    def fetch(self, path: str, *options: str) -> Completed:
        """What the web server says: the status and the headers, then the body."""
        argv = ["curl", "--silent", "--include", "--path-as-is", *options]
        return self.at_client(*argv, f"http://{SERVER}{path}")

    def fetch_script(self, *options: str, mac: str = MAC) -> str:
        """The script that the web server sends for a NIC, with its headers, once that is noted.

        Each worker of the web server writes of a request after it has answered it: a report whose
        line is before that of its ticket is a stranger's.
        """
        script = self.fetch(f"/nodes/{mac.replace(':', '-')}/boot.ipxe", *options).stdout
        for ticket in TICKET.findall(script):
            secret = ticket.partition("/")[0]
            wait_until(lambda secret=secret: self.has_noted(secret), "the ticket is not noted")  # type: ignore[misc]
        return script

    def has_noted(self, secret: str) -> bool:
        """Whether the log of reports has a line with this; it may have been rotated meanwhile."""
        log = self.tree.reports_log
        files = (log, log.with_name(f"{log.name}.1"))
        return any(secret in file.read_text() for file in files if file.exists())


@contextlib.contextmanager
def holder(name: str, work: Path) -> Iterator[int]:
    """An empty network and mount namespace, by the process that holds it."""
    argv = ["unshare", "--net", "--mount", "--propagation", "private", "--", "sh", "-euc", SET_UP]
    with program(name, argv, work / f"{name}.log") as started:
        yield int(started.wait_for(r"^ready (\d+)$", PATIENCE)[1])


@contextlib.contextmanager
def open_tree() -> Iterator[Tree]:
    """A tree that every user may enter, which those of pytest's folders are not."""
    place = Path(tempfile.mkdtemp(prefix="imagebuilder-serve-"))
    place.chmod(0o755)
    try:
        yield make_tree(place / "tree")
    finally:
        shutil.rmtree(place)


@contextlib.contextmanager
def wire_room(work: Path) -> Iterator[Room]:
    """The wire, up at both ends."""
    with holder("server", work) as server, holder("client", work) as client, open_tree() as tree:
        room = Room(server, client, tree, work)
        for line in (
            f"ip link add wire0 type veth peer name wire1 netns {client}",
            f"ip address add {SERVER}/24 dev wire0",
            "ip link set wire0 up",
        ):
            done = room.at_server(*line.split())
            assert done.status == 0, done.stderr
        for line in (f"ip address add {CLIENT}/24 dev wire1", "ip link set wire1 up"):
            done = room.at_client(*line.split())
            assert done.status == 0, done.stderr
        yield room
