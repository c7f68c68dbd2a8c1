# SPDX-License-Identifier: Apache-2.0
"""Serving nodes: the boot server on one wire."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from imagebuilder.cli.context import Context, print_text
from imagebuilder.cli.names import TreeOption
from imagebuilder.serve.config import Dhcp, Nfs, Options
from imagebuilder.tree import DEFAULT_TREE


def complete_interface(incomplete: str) -> list[str]:
    """Interfaces of this host that start so."""
    names = (path.name for path in Path("/sys/class/net").iterdir())
    return sorted(name for name in names if name.startswith(incomplete) and name != "lo")


def serve(
    context: typer.Context,
    tree: TreeOption = DEFAULT_TREE,
    interface: Annotated[
        str,
        typer.Option(
            "--interface",
            "-i",
            autocompletion=complete_interface,
            envvar="IMAGEBUILDER_INTERFACE",
            help="The interface that nodes are on.",
        ),
    ] = "",
    dhcp: Annotated[
        Dhcp, typer.Option(help="full: we give addresses; proxy: a router does.")
    ] = Dhcp.FULL,
    pool: Annotated[
        str, typer.Option("--range", metavar="A,B", help="Addresses to give; default: upper half.")
    ] = "",
    nfs: Annotated[Nfs, typer.Option(help="Which NFS server.")] = Nfs.AUTO,
    http_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the web server.")] = 80,
    domain: Annotated[str, typer.Option(help="Domain of the nodes' names.")] = "nodes",
    address: Annotated[str, typer.Option(help="Which of the interface's addresses.")] = "",
    gateway: Annotated[str, typer.Option(help="Router that nodes are told of.")] = "",
    dns: Annotated[bool, typer.Option("--dns/--no-dns", help="Answer names of nodes.")] = True,
    ipxe: Annotated[Path | None, typer.Option(help="Folder with other iPXE binaries.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only look whether it would work.")
    ] = False,
    install: Annotated[
        bool, typer.Option("--install", help="Write systemd units instead of serving.")
    ] = False,
    uninstall: Annotated[bool, typer.Option("--uninstall", help="Remove those units.")] = False,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Write the installed units' files again.")
    ] = False,
    root: Annotated[
        Path, typer.Option(envvar="DESTDIR", help="Where --install writes; for packagers.")
    ] = Path("/"),
) -> None:
    """Be the boot server of one wire: DHCP, TFTP, HTTP and NFS, until Ctrl-C.

    Everything is checked first: the interface, who has a port, other DHCP servers.

    Example: imagebuilder serve --interface enp3s0
    """
    from imagebuilder.serve.action import ServeAction, act

    given: Context = context.obj
    options = Options(
        interface, address, dhcp, pool, nfs, http_port, domain, gateway, dns, ipxe
    )  # fmt: skip
    flags = {
        ServeAction.CHECK: check,
        ServeAction.INSTALL: install,
        ServeAction.UNINSTALL: uninstall,
    }
    chosen = [action for action, asked in (flags | {ServeAction.REFRESH: refresh}).items() if asked]
    if len(chosen) > 1:
        raise typer.BadParameter(f"choose one of {', '.join(f'--{one}' for one in chosen)}")
    said = act(chosen[0] if chosen else ServeAction.SERVE, options, tree, root, given.ui)
    if said:
        print_text(said)
