# SPDX-License-Identifier: Apache-2.0
"""The boot server on one network interface."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from imagebuilder.cli.context import Call, option, print_text
from imagebuilder.cli.names import TreeOption
from imagebuilder.serve.options import Dhcp, Nfs, Options
from imagebuilder.tree import DEFAULT_TREE

if TYPE_CHECKING:
    from imagebuilder.settings import Settings
    from imagebuilder.web.install import WebUnits


def complete_interface(incomplete: str) -> list[str]:
    """Interfaces of this host with this prefix."""
    names = (path.name for path in Path("/sys/class/net").iterdir())
    return sorted(name for name in names if name.startswith(incomplete) and name != "lo")


InterfaceOption = Annotated[
    str,
    option(
        "The network interface of the nodes.",
        "--interface",
        "-i",
        autocompletion=complete_interface,
        envvar="IMAGEBUILDER_INTERFACE",
    ),
]
Pool = Annotated[
    str,
    option("Addresses to assign. [default: upper half of the network]", "--range", metavar="A,B"),
]
Web = Annotated[
    str,
    option("With --install: also install the web page, listening there.", metavar="ADDRESS:PORT"),
]


def serve(
    context: Call,
    tree: TreeOption = DEFAULT_TREE,
    interface: InterfaceOption = "",
    dhcp: Annotated[
        Dhcp, option("full: assign addresses; proxy: a router assigns them.")
    ] = Dhcp.FULL,
    pool: Pool = "",
    nfs: Annotated[Nfs, option("NFS server.")] = Nfs.AUTO,
    http_port: Annotated[int, option("Port of the web server.", min=1, max=65535)] = 80,
    domain: Annotated[str, option("Domain of the nodes' names.")] = "nodes",
    address: Annotated[str, option("Address of the interface, if it has several.")] = "",
    gateway: Annotated[str, option("Gateway to announce to nodes.")] = "",
    dns: Annotated[bool, option("Resolve the names of nodes.", "--dns/--no-dns")] = True,
    ipxe: Annotated[Path | None, option("Folder with other iPXE binaries.")] = None,
    check: Annotated[bool, option("Only check whether serving would work.", "--check")] = False,
    install: Annotated[
        bool, option("Install systemd units instead of serving.", "--install")
    ] = False,
    uninstall: Annotated[bool, option("Remove the installed units.", "--uninstall")] = False,
    refresh: Annotated[
        bool, option("Rewrite the files of the installed units.", "--refresh")
    ] = False,
    web: Web = "",
    root: Annotated[
        Path, option("Root folder for --install; for packagers.", envvar="DESTDIR")
    ] = Path("/"),
) -> None:
    """Run a boot server on one network interface: DHCP, TFTP, HTTP and NFS, until Ctrl-C.

    It first checks the interface, the ports, and the network for other DHCP servers.

    Example: imagebuilder serve --interface enp3s0
    """
    from imagebuilder.serve.action import ServeAction, act

    options = Options(
        interface, address, dhcp, pool, nfs, http_port, domain, gateway, dns, ipxe
    )  # fmt: skip
    flags = {"check": check, "install": install, "uninstall": uninstall, "refresh": refresh}
    chosen = [ServeAction(name) for name, is_set in flags.items() if is_set]
    if len(chosen) > 1:
        raise typer.BadParameter(f"choose one of {', '.join(f'--{one}' for one in chosen)}")
    if web and not install:
        raise typer.BadParameter("--web needs --install; run imagebuilder web for the page alone")
    action = chosen[0] if chosen else ServeAction.SERVE
    more = web_units(context.obj.settings, web).make if web else None
    said = act(action, options, tree, root, context.obj.ui, more)
    if said:
        print_text(said)


def web_units(settings: Settings, listen: str) -> WebUnits:
    from imagebuilder.nightly.site import find_report_folder, load_nightly
    from imagebuilder.notify.receivers import find_credentials, load_notify
    from imagebuilder.web.install import WebUnits
    from imagebuilder.web.tokens import find_token_file

    reports = find_report_folder(load_nightly(settings, os.environ), settings, os.environ)
    credentials = tuple(find_credentials(load_notify(settings, os.environ), os.environ))
    site = settings.site if settings.site.is_file() else None
    tokens = find_token_file(settings, os.environ)
    return WebUnits(listen, reports, tokens, site, credentials)
