# SPDX-License-Identifier: Apache-2.0
"""`serve --install`: systemd starts the daemons that `serve` starts in the foreground."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from imagebuilder.nodes.files import make_entry, update_nodes
from imagebuilder.nodes.types import Nodes
from imagebuilder.publish.usage import note_reports
from imagebuilder.serve.config import Dhcp, Nfs, Options, ServeConfig
from imagebuilder.serve.daemons import (
    Daemon,
    check_config,
    ganesha,
    is_running,
    reload_changed,
    web_and_wire,
)
from imagebuilder.serve.files import make_config
from imagebuilder.serve.ipxe import copy_binaries
from imagebuilder.serve.prepare import Prepared, check_alone, check_ports
from imagebuilder.serve.render import render_exports, render_template
from imagebuilder.serve.units import UNITS, Unit, exec_line, find_units, is_ours, place_units
from imagebuilder.tree import Tree
from imagebuilder.ui import Ui

EXPORTS = Path("etc/exports.d/imagebuilder.exports")
NODES = "imagebuilder-nodes"
COMMAND = "serve"


def install(prepared: Prepared, nodes: Nodes, options: Options, root: Path, ui: Ui) -> str:
    """Write the configuration and the units below `root`; returns what was done and what to type.

    Nothing is started.  What is there already and says the same is left alone.
    """
    config = prepared.config
    if not is_running(config.folder / "nginx.pid"):
        check_ports(config)
    if not is_running(config.folder / "dnsmasq.pid"):
        check_alone(config, ui)
    make_config(config, nodes)
    check_config(config)
    copy_binaries(prepared.binaries, config.tree.tftp)
    update_nodes(config.tree)
    make_entry(config.tree, config.server, config.http_port)
    units = system_files(config, options)
    lines = place_units(root, units)
    for gone in sorted(leftovers(root) - {root / unit.path for unit in units}):
        gone.unlink()
        lines.append(f"removed    {gone}: not needed any more")
    lines.append(f"the daemons' own files are in {config.folder}")
    return "\n".join([*lines, "", *commands(units)])


def leftovers(root: Path) -> set[Path]:
    """Every file of ours below a root."""
    exports = {root / EXPORTS} if is_ours(root / EXPORTS, COMMAND) else set()
    return find_units(root, COMMAND) | exports


def commands(units: Sequence[Unit]) -> list[str]:
    """What a person types next."""
    started = " ".join(unit.path.name for unit in units if unit.starts)
    exporting = any(unit.path == EXPORTS for unit in units)
    return [
        "To start them now and at every boot:",
        "    sudo systemctl daemon-reload",
        *(("    sudo exportfs -ra",) if exporting else ()),
        f"    sudo systemctl enable --now {started}",
        f"    sudo systemctl restart {started}    # if they ran before",
    ]


def uninstall(root: Path) -> str:
    """Remove the files of install(); returns what was removed and what to type before."""
    found = sorted(leftovers(root))
    for path in found:
        path.unlink()
    if not found:
        return "nothing of ours is installed"
    started = " ".join(path.name for path in found if path.parent == root / UNITS)
    return "\n".join(
        [
            *(f"removed    {path}" for path in found),
            "",
            "To stop what runs:",
            f"    sudo systemctl disable --now {started}",
            "    sudo systemctl daemon-reload; sudo exportfs -ra",
        ]
    )


def refresh(prepared: Prepared, nodes: Nodes) -> str:
    """Take over nodes.yaml and what is published; returns what changed."""
    config = prepared.config
    copy_binaries(prepared.binaries, config.tree.tftp)
    update_nodes(config.tree)
    make_entry(config.tree, config.server, config.http_port)
    changed = make_config(config, nodes)
    reload_changed(config, changed)
    note_reports(config.tree)
    return f"changed: {', '.join(changed) or 'nothing'}"


def system_files(config: ServeConfig, options: Options) -> tuple[Unit, ...]:
    """Everything that the system is given."""
    served = [*reversed(web_and_wire(config))]
    if config.nfs is Nfs.GANESHA:
        served.append(ganesha(config))
    units = [daemon_unit(config, daemon) for daemon in served]
    command = exec_line(
        [sys.executable, "-m", "imagebuilder.cli.main", *words(options, config.tree)]
    )
    for kind, why in (
        ("service", "takes over nodes.yaml and what is published"),
        ("path", "starts it when nodes.yaml changes"),
        ("timer", "starts it every few minutes, for the menu and the record of what nodes run"),
    ):
        text = render_template(f"nodes.{kind}.j2", config=config, command=command)
        units.append(Unit(UNITS / f"{NODES}.{kind}", text, why, starts=kind != "service"))
    if config.nfs is Nfs.KERNEL:
        why = "roots over NFS, to the nodes' subnet"
        units.append(Unit(EXPORTS, render_exports(config), why, starts=False))
    return tuple(units)


def daemon_unit(config: ServeConfig, daemon: Daemon) -> Unit:
    """The service of one daemon."""
    text = render_template(
        "daemon.service.j2",
        config=config,
        daemon=daemon,
        command=exec_line(daemon.argv),
        test=exec_line(daemon.test) if daemon.test else "",
        nfs=daemon.name == "ganesha",
    )
    return Unit(UNITS / f"imagebuilder-{daemon.name}.service", text, daemon.purpose)


def words(options: Options, tree: Tree) -> list[str]:
    """The command line that refreshes what these options installed."""
    given = {
        "--interface": options.interface,
        "--tree": os.fspath(tree.path),
        "--address": options.address,
        "--dhcp": "" if options.dhcp is Dhcp.FULL else str(options.dhcp),
        "--range": options.pool,
        "--nfs": "" if options.nfs is Nfs.AUTO else str(options.nfs),
        "--http-port": "" if options.http_port == 80 else str(options.http_port),
        "--domain": options.domain,
        "--gateway": options.gateway,
        "--ipxe": os.fspath(options.ipxe.absolute()) if options.ipxe else "",
    }
    listed = [word for name, value in given.items() if value for word in (name, value)]
    return ["serve", "--refresh", *listed, *(() if options.dns else ("--no-dns",))]
