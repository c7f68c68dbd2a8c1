# SPDX-License-Identifier: Apache-2.0
"""Run the web server until it is asked to stop."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import LOGGING_CONFIG

from imagebuilder.errors import InputError
from imagebuilder.recipe.cards import Cards
from imagebuilder.recipe.model_notify import NotifyModel
from imagebuilder.tree import Tree
from imagebuilder.ui import Ui
from imagebuilder.web.act_client import ActClient
from imagebuilder.web.app import make_app
from imagebuilder.web.connection import AT_ONCE, Connection, Seldom, allow_connections
from imagebuilder.web.listen import open_socket, parse_listen
from imagebuilder.web.node_networks import find_node_networks
from imagebuilder.web.notify import fleet_reporter
from imagebuilder.web.read import RemoteReader
from imagebuilder.web.site import WebSite
from imagebuilder.web.snapshot import SnapshotMaker
from imagebuilder.web.stream import STREAMS, Broker
from imagebuilder.web.tree_reader import TreeReader
from imagebuilder.web.watch import Watcher

CONNECTIONS = STREAMS + 256
NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]*|[0-9a-f.]*(?::[0-9a-f.]*){2,}")


@dataclass(frozen=True)
class WebOptions:
    """What the person asked for.

    `hosts` are more names by which browsers know this server; the ssh servers of nodes are asked
    every `ask_every` seconds (0: never).  `reports` is the folder of nightly reports, `state` where
    is kept what was notified of as `notify` says, `tokens` the file of tokens, `act` the socket at
    which actions are asked for (None: a child does them), `read` that of who reads what this user
    may not (None: nobody).
    """

    listen: str
    hosts: tuple[str, ...]
    ask_every: float
    reports: Path
    cards: Cards
    state: Path
    notify: NotifyModel
    tokens: Path
    act: Path | None = None
    read: Path | None = None


class WebServer(uvicorn.Server):
    """uvicorn, which ends streams when it is asked to stop; it would wait for them otherwise."""

    def __init__(self, config: uvicorn.Config, broker: Broker) -> None:
        super().__init__(config)
        self.broker = broker

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.broker.close()
        super().handle_exit(sig, frame)


def serve_web(tree: Tree, options: WebOptions, ui: Ui) -> None:
    """Serve until SIGINT or SIGTERM.  Raises InputError and HostError."""
    address, port = parse_listen(options.listen, find_node_networks(tree))
    sock = open_socket(address, port)
    with (
        sock,
        fleet_reporter(tree, options.state, options.notify, options.ask_every, ui) as reporter,
    ):
        most = allow_connections(CONNECTIONS)
        broker = Broker(streams=min(STREAMS, most * STREAMS // CONNECTIONS))
        # Two connections: no story of a node delays what is live.
        local, place = TreeReader(tree), options.read
        reader, stories = (
            (RemoteReader(place, local), RemoteReader(place, local)) if place else (local, local)
        )
        maker = SnapshotMaker(tree, options.reports, options.cards, reader)
        watcher = Watcher(maker, broker, ask_every=options.ask_every, reporter=reporter)
        act_client = ActClient(tree, options.tokens, options.act)
        site = WebSite(tree, options.reports, watcher, act_client, stories)
        app = make_app(site, find_hosts(address, options.hosts))
        shown = f"[{address}]" if ":" in address else address
        ui.note(f"listening on http://{shown}:{port}/ until Ctrl-C")
        WebServer(make_config(app, most), broker).run(sockets=[sock])


def make_config(app: ASGIApp, most: int = CONNECTIONS) -> uvicorn.Config:
    """`most` is how many connections there may be."""
    filters = {"seldom": {"()": Seldom}}
    default = LOGGING_CONFIG["handlers"]["default"]
    handlers = LOGGING_CONFIG["handlers"] | {"default": default | {"filters": ["seldom"]}}
    loggers = LOGGING_CONFIG["loggers"] | {"asyncio": {"handlers": ["default"]}}
    log_config = LOGGING_CONFIG | {"filters": filters, "handlers": handlers, "loggers": loggers}
    return uvicorn.Config(
        app,
        http=Connection,
        ws="none",  # where the package websockets is installed, it would take connections over
        log_config=log_config,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=most,
        backlog=AT_ONCE,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=3,
    )


def find_hosts(address: str, more: Sequence[str]) -> tuple[str, ...]:
    """The names that the server answers to.  Raises InputError for what is none."""
    name = socket.gethostname()
    short = name.partition(".")[0]
    return (address, "localhost", "127.0.0.1", "::1", name, short, *map(parse_host, more))


def parse_host(text: str) -> str:
    """A name as Host headers have it; IPv6 addresses with or without brackets.

    Raises InputError: a name with a port or a scheme would never be found in one.
    """
    name = text.removeprefix("[").removesuffix("]").lower()
    if NAME.fullmatch(name):
        return name
    hint = "give the name alone, without a scheme, port or path"
    raise InputError(f"--host {text}: is not the name of a host", hint=hint)
