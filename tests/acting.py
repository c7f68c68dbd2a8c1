# SPDX-License-Identifier: Apache-2.0
"""Acting for the web page in tests: what does it as systemd has it, and what is acted on."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from imagebuilder.tree import Tree
from imagebuilder.web.act import ActCaller, act
from imagebuilder.web.act_client import ActClient
from imagebuilder.web.action_journal import ActionRecord, ActionState, read_actions

PATIENCE = 120.0  # seconds


def plant_plug(tree: Tree, script: str) -> None:
    """A node n1 that is switched on by a program, beside the tree."""
    plug = tree.path.with_name("plug")
    plug.write_text(f"#!/bin/sh\n{script}\n")
    plug.chmod(0o755)
    power = f"{{driver: exec, on: [{plug}]}}"
    node = f"{{macs: ['52:54:00:77:00:01'], profile: demo, power: {power}}}"
    tree.nodes_file.write_text(f"nodes:\n  n1: {node}\n")


def await_end(tree: Tree, action: str = "") -> ActionRecord:
    """An action, or the newest one, when it has ended."""
    until = time.monotonic() + PATIENCE
    while True:
        record = next(each for each in read_actions(tree) if action in ("", each.begun.id))
        if record.state is not ActionState.RUNNING:
            return record
        assert time.monotonic() < until, f"after {PATIENCE} s the action has not ended"
        time.sleep(0.05)


@contextmanager
def running_act_client(tree: Tree, tokens: Path) -> Iterator[ActClient]:
    """A way to an `act` that runs in threads of this process; its commands are real ones."""
    # A path of a socket has at most 107 characters, and pytest's folders are longer than that.
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        place = Path(folder, "act.socket")
        listening.bind(str(place))
        listening.listen()
        threads: list[threading.Thread] = []

        def answer(sock: socket.socket) -> None:
            with sock:
                caller = ActCaller(sock.fileno(), sock.fileno())
                act(tree, tokens, caller, {**os.environ, "HOME": folder})

        def serve() -> None:
            while True:
                try:
                    sock, _ = listening.accept()
                except OSError:
                    return
                threads.append(threading.Thread(target=answer, args=(sock,)))
                threads[-1].start()

        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield ActClient(tree, tokens, place)
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            for thread in (serving, *threads):
                thread.join()
