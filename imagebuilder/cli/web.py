# SPDX-License-Identifier: Apache-2.0
"""The web server for people and programs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from imagebuilder.cli.context import Call, option, path_option
from imagebuilder.cli.names import TreeOption
from imagebuilder.settings import DEFAULT_LISTEN
from imagebuilder.tree import DEFAULT_TREE

Listen = Annotated[
    str,
    option(
        "Where to listen. Addresses on the nodes' network are refused.",
        envvar="IMAGEBUILDER_LISTEN",
        metavar="ADDRESS:PORT",
    ),
]
Hosts = Annotated[
    list[str] | None,
    option(
        "Also answer to this name, such as that of a proxy. Repeatable.",
        envvar="IMAGEBUILDER_WEB_HOSTS",
        metavar="NAME",
    ),
]
Ask = Annotated[
    float,
    option(
        "Interval at which to ask whether the nodes' ssh servers answer; 0: never.",
        min=0,
        metavar="SECONDS",
    ),
]
Nights = Annotated[
    Path | None,
    path_option(
        "Folder of nightly reports. [default: nightly/ in the state folder]",
        envvar="IMAGEBUILDER_REPORT",
        metavar="DIR",
    ),
]


Act = Annotated[
    Path | None,
    path_option(
        "systemd socket that runs actions. [default: start imagebuilder act]",
        envvar="IMAGEBUILDER_ACT",
        metavar="SOCKET",
    ),
]

Read = Annotated[
    Path | None,
    path_option(
        "systemd socket that reads what only root can read.",
        envvar="IMAGEBUILDER_READ",
        metavar="SOCKET",
    ),
]


def web(
    context: Call,
    tree: TreeOption = DEFAULT_TREE,
    listen: Listen = DEFAULT_LISTEN,
    host: Hosts = None,
    ask: Ask = 60,
    nights: Nights = None,
    act: Act = None,
    read: Read = None,
) -> None:
    """Show nodes, releases and roll-outs on web pages, as JSON, events and metrics, until Ctrl-C.

    Everybody who can reach the address may read. Changes need a token (imagebuilder token).

    Example: imagebuilder web --listen 10.0.0.5
    """
    from imagebuilder.errors import HostError
    from imagebuilder.nightly.site import find_report_folder, load_nightly
    from imagebuilder.notify.receivers import load_notify
    from imagebuilder.publish.find import find_tree
    from imagebuilder.recipe.cards import load_cards
    from imagebuilder.web.tokens import find_token_file

    try:
        from imagebuilder.web.run import WebOptions, serve_web
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "imagebuilder":
            raise
        raise HostError(
            f"the web server needs {package}, which is not installed",
            hint="run pip install 'imagebuilder[web]' in imagebuilder's environment",
        ) from error
    settings = context.obj.settings
    folder = nights or find_report_folder(load_nightly(settings, os.environ), settings, os.environ)
    options = WebOptions(
        listen, tuple(host or ()), ask, folder, load_cards(settings), settings.state,
        load_notify(settings, os.environ), find_token_file(settings, os.environ), act, read,
    )  # fmt: skip
    serve_web(find_tree(tree), options, context.obj.ui)
