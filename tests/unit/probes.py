# SPDX-License-Identifier: Apache-2.0
"""Programs of overlays that run on nodes: loaded to be asked by value, and run beside a server."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType


def load_program(path: Path) -> ModuleType:
    """A program and the modules beside it, with nothing written beside them."""
    kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(path.parent))
    try:
        return importlib.import_module(path.stem)
    finally:
        sys.path.remove(str(path.parent))
        sys.dont_write_bytecode = kept


@contextmanager
def server(answers: Mapping[str, object]) -> Iterator[int]:
    """A server that answers each path with this JSON, and any other with 404; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path)
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(404 if found is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as serving:
        thread = Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield serving.server_port
        serving.shutdown()
        thread.join()
