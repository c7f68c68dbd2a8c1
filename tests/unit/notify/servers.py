# SPDX-License-Identifier: Apache-2.0
"""Real receivers on the loopback: a web server and a mail server, well and in trouble."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKEN = "T0KEN-nobody-may-see"


@dataclass
class Hook:
    """A web server: answers with `statuses` one after the other, the last one for ever."""

    statuses: list[int]
    requests: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    port: int = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks/{TOKEN}"


@contextmanager
def web_server(*statuses: int) -> Iterator[Hook]:
    """A real one on a free port.

    A status of 0 is no answer at all, 1 an answer that is none, 2 one that never ends, a byte at a
    time, 3 a connection that is closed.
    """
    hook = Hook(list(statuses))
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            hook.requests.append((self.path, json.loads(self.rfile.read(length))))
            status = hook.statuses.pop(0) if hook.statuses[1:] else hook.statuses[0]
            if status == 0:
                over.wait(30)
                return
            if status == 1:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nno header at all\r\n\r\n")
                return
            if status == 2:
                with suppress(OSError):
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                    while not over.wait(0.05):
                        self.wfile.write(b"x")
                return
            if status == 3:
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Location", f"http://127.0.0.1:{hook.port}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hook.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield hook
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Post:
    """What a mail server was told."""

    port: int
    commands: list[str] = field(default_factory=list)
    mails: list[bytes] = field(default_factory=list)


@contextmanager
def mail_server(refuse: str = "", *, slow: bool = False) -> Iterator[Post]:
    """A real SMTP server for one mail; it refuses recipients that have `refuse` in them.

    One that is `slow` greets for ever, a byte at a time.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(30)
    post = Post(listener.getsockname()[1])

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rwb", buffering=0) as stream:
            while slow:
                try:
                    stream.write(b"2")
                except OSError:
                    return
                time.sleep(0.05)
            stream.write(b"220 mail.example ESMTP\r\n")
            while line := stream.readline().decode().rstrip():
                post.commands.append(line)
                verb = line.split()[0].upper()
                if verb == "DATA":
                    stream.write(b"354 go on\r\n")
                    lines = iter(stream.readline, b".\r\n")
                    post.mails.append(b"".join(lines))
                    stream.write(b"250 taken\r\n")
                elif verb == "RCPT" and refuse and refuse in line:
                    stream.write(b"550 no such mailbox\r\n")
                else:
                    stream.write(b"221 bye\r\n" if verb == "QUIT" else b"250 fine\r\n")
                if verb == "QUIT":
                    return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield post
    finally:
        listener.close()
        thread.join(5)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)
