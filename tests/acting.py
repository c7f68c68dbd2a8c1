# SPDX-License-Identifier: Apache-2.0
"""What acts for the web page in tests as systemd has it: a socket, and `act` for a connection."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from imagebuilder.tree import Tree
from imagebuilder.web.act import ActCaller, act
from imagebuilder.web.door import ActDoor


@contextmanager
def act_door(tree: Tree, tokens: Path) -> Iterator[ActDoor]:
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
            yield ActDoor(tree, tokens, place)
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            for thread in (serving, *threads):
                thread.join()
