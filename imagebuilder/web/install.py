# SPDX-License-Identifier: Apache-2.0
"""`serve --install --web`: the page as a unit without rights, and sockets to who may more."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.environment import OWN_MODULE
from imagebuilder.nightly.install import credential_line
from imagebuilder.nodes.scripts import render_template
from imagebuilder.notify.receivers import Credential
from imagebuilder.serve.config import ServeConfig
from imagebuilder.serve.install import SYSUSERS
from imagebuilder.serve.interface import find_networks
from imagebuilder.serve.units import UNITS, UnitFile, environment_line, exec_line
from imagebuilder.web.listen import parse_listen

PLACE = Path("/run/imagebuilder-act.socket")
READ_PLACE = Path("/run/imagebuilder-read.socket")
# The page has two connections for reading, and one for each action.
SOCKETS = (
    ("act", PLACE, 64, "where the web page asks for actions"),
    ("read", READ_PLACE, 8, "where the web page has what only root may read be read"),
)
STATE = Path("/var/lib/imagebuilder-web")
CREDENTIALS = Path("/run/credentials/imagebuilder-web.service")
PAGE = "web.service.j2"


@dataclass(frozen=True)
class WebUnits:
    """Where the page listens, its nightly reports and tokens, and files that only root may read.

    The `site` file is one of these; None if there is none.
    """

    listen: str
    reports: Path
    tokens: Path
    site: Path | None = None
    credentials: tuple[Credential, ...] = ()

    def make(self, config: ServeConfig) -> tuple[UnitFile, ...]:
        """The files of a tree that is served on one interface.  Raises InputError."""
        networks = (config.interface.network, *find_networks({config.interface.name}))
        address, port = parse_listen(self.listen, networks, option="--web")
        shown = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        program = [sys.executable, *OWN_MODULE]
        tree = ["--tree", os.fspath(config.tree.path)]
        reports = ["--nights", os.fspath(self.reports)]
        page = [*program, "web", *tree, "--listen", shown, *reports]
        page += ["--act", os.fspath(PLACE), "--read", os.fspath(READ_PLACE)]
        shared = {"IMAGEBUILDER_TOKENS": self.tokens}
        page_only = {**shared, "IMAGEBUILDER_STATE": STATE}
        secret = [*self.credentials]
        if self.site:
            secret.append(Credential("site.yaml", self.site))
            page_only["IMAGEBUILDER_SITE"] = CREDENTIALS / "site.yaml"
        files = (
            (SYSUSERS, "web.sysusers.j2", "", "the user of the web page"),
            (UNITS / "imagebuilder-web.service", PAGE, exec_line(page), "the web page"),
            (
                UNITS / "imagebuilder-act@.service", "act.service.j2",
                exec_line([*program, "act", *tree]), "started for each action, as root",
            ),
            (
                UNITS / "imagebuilder-read@.service", "read.service.j2",
                exec_line([*program, "read", *tree]), "reads for the web page, as root",
            ),
        )  # fmt: skip
        return tuple(
            UnitFile(
                path,
                render_template(
                    name,
                    command=command,
                    environment=[
                        environment_line(key, os.fspath(value))
                        for key, value in (page_only if name == PAGE else shared).items()
                    ],
                    credentials=[credential_line(each) for each in secret],
                ),
                why,
                starts=name == PAGE,
            )
            for path, name, command, why in files
        ) + tuple(map(socket_unit, SOCKETS))


def socket_unit(socket: tuple[str, Path, int, str]) -> UnitFile:
    name, place, most, what = socket
    text = render_template("web.socket.j2", place=place, most=most, what=what)
    return UnitFile(UNITS / f"imagebuilder-{name}.socket", text, what)
