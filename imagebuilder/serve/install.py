# SPDX-License-Identifier: Apache-2.0
"""`serve --install`: systemd starts the daemons that `serve` starts in the foreground."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from imagebuilder.environment import OWN_MODULE
from imagebuilder.nodes.evidence.usage import note_reports
from imagebuilder.nodes.files import make_entry, update_nodes
from imagebuilder.nodes.scripts import render_template
from imagebuilder.nodes.types import Nodes
from imagebuilder.process import run
from imagebuilder.serve.config import ServeConfig
from imagebuilder.serve.daemons import (
    Daemon,
    check_config,
    daemons,
    is_running,
    reload_changed,
)
from imagebuilder.serve.dhcp_clients import note_journal
from imagebuilder.serve.fallback import confirm_ready
from imagebuilder.serve.files import make_config
from imagebuilder.serve.ipxe import copy_binaries
from imagebuilder.serve.nfsconf import (
    NFS_CONF,
    find_nfs_files,
    find_other_use,
    nfs_server_files,
    tell_left_alone,
)
from imagebuilder.serve.options import Dhcp, Nfs, Options
from imagebuilder.serve.prepare import (
    INSTALLED,
    Prepared,
    check_alone,
    check_nodes,
    check_ports,
)
from imagebuilder.serve.render import render_exports
from imagebuilder.serve.rotate import rotate_reports
from imagebuilder.serve.running import find_foreign
from imagebuilder.serve.units import (
    UNITS,
    UnitFile,
    exec_line,
    find_units,
    is_live,
    is_ours,
    place_units,
    remove_units,
)
from imagebuilder.tree import Tree
from imagebuilder.ui import Ui

EXPORTS = Path("etc/exports.d/imagebuilder.exports")
SYSUSERS = Path("etc/sysusers.d/imagebuilder-web.conf")
NODES = "imagebuilder-nodes"
COMMAND = "serve"
# Fails until an interface has an address.
HAS_ADDRESS = (
    'test -n "$(ip -4 -brief address show dev "$1" to "$2")" || '
    '{ echo "$1 does not have address $2 yet"; exit 1; }'
)
RESTART_NFS = "    sudo systemctl restart nfs-server    # running nodes wait, up to 90 s"


def install(
    prepared: Prepared,
    nodes: Nodes,
    options: Options,
    root: Path,
    ui: Ui,
    more: Sequence[UnitFile] = (),
) -> str:
    """Write the configuration and the units below `root`; returns what was done and what to type.

    `more` are other units, such as those of the web page.  Starts nothing, and leaves identical
    files alone.
    """
    config = prepared.config
    check_ports(config, find_foreign(config, (INSTALLED,)))
    if not is_running(config.folder / "dnsmasq.pid"):
        check_alone(config, ui)
    make_config(config, nodes)
    check_config(config)
    copy_binaries(prepared.binaries, config.tree.tftp)
    update_nodes(config.tree)
    make_entry(config.tree, config.server, config.http_port)
    units = (*system_files(config, options), *more)
    other_use = find_other_use(root) if config.nfs is Nfs.KERNEL else ""
    if config.nfs is Nfs.KERNEL and not other_use:
        units += nfs_server_files(config, root)
    lines = place_units(root, units)
    if other_use:
        lines.append(tell_left_alone(other_use))
    gone = leftovers(root) - {root / unit.path for unit in units}
    if gone:
        lines += [
            f"{line}: no longer needed" for line in remove_units(root, gone, live=is_live(root))
        ]
    lines.append(f"the daemons' own files are in {config.folder}")
    return "\n".join([*lines, "", *commands(units)])


def leftovers(root: Path) -> set[Path]:
    """All our files below a root."""
    others = {root / path for path in (EXPORTS, SYSUSERS) if is_ours(root / path, COMMAND)}
    return find_units(root, COMMAND) | others | find_nfs_files(root)


def commands(units: Sequence[UnitFile]) -> list[str]:
    started = " ".join(unit.path.name for unit in units if unit.starts)
    exporting = any(unit.path == EXPORTS for unit in units)
    return [
        "To start them now and at every boot:",
        *(("    sudo systemd-sysusers",) if any(unit.path == SYSUSERS for unit in units) else ()),
        "    sudo systemctl daemon-reload",
        *(("    sudo exportfs -ra",) if exporting else ()),
        *((RESTART_NFS,) if any(unit.path == NFS_CONF for unit in units) else ()),
        f"    sudo systemctl enable --now {started}",
        f"    sudo systemctl restart {started}    # if they were running",
    ]


def uninstall(root: Path, *, live: bool) -> str:
    """Stop and remove what install() wrote; returns what was done.  Keeps releases and nodes.

    `live` is whether systemd runs the units below `root`.
    """
    found = leftovers(root)
    if not found:
        return "no units of imagebuilder are installed"
    tree = find_tree(root)
    lines = remove_units(root, found, live=live)
    if tree and (folder := tree.serve / INSTALLED).is_dir():
        shutil.rmtree(folder)
        lines.append(f"removed    {folder}")
    if live and root / EXPORTS in found:
        run(["exportfs", "-ra"])
        lines.append("withdrew   the export of the roots")
    if live and root / NFS_CONF in found:
        run(["systemctl", "try-restart", "nfs-server"])
        lines.append("restarted  nfs-server: it listens on the addresses of /etc/nfs.conf")
    if tree:
        lines.append(f"kept       releases and nodes in {tree.path}")
    return "\n".join(lines)


def find_tree(root: Path) -> Tree | None:
    """The tree that the units below a root serve; None if unknown."""
    try:
        text = (root / UNITS / f"{NODES}.path").read_text()
    except FileNotFoundError:
        return None
    found = re.search(r"^PathChanged=(.*)/nodes\.yaml$", text, re.MULTILINE)
    return Tree(Path(found[1])) if found else None


def refresh(prepared: Prepared, nodes: Nodes) -> str:
    """Apply nodes.yaml and new releases; returns what changed."""
    config = prepared.config
    rotate_reports(config)
    note_reports(config.tree, nodes)
    note_journal(config.tree, nodes)
    confirm_ready(config.tree, nodes)
    copy_binaries(prepared.binaries, config.tree.tftp)
    # What a node boots depends on its earlier boots.  nodes.yaml may have changed meanwhile.
    nodes = update_nodes(config.tree, partial(check_nodes, config))
    make_entry(config.tree, config.server, config.http_port)
    changed = make_config(config, nodes)
    reload_changed(config, changed)
    said = f"changed: {', '.join(changed) or 'nothing'}"
    if config.consoles and not is_running(config.folder / "consoles.pid"):
        said += "\nnodes.yaml has `netconsole`, but nothing receives it: run serve --install again"
    return said


def system_files(config: ServeConfig, options: Options) -> tuple[UnitFile, ...]:
    served = daemons(config, with_rpcbind=False)
    units = [daemon_unit(config, daemon) for daemon in reversed(served)]
    command = exec_line([sys.executable, *OWN_MODULE, *words(options, config)])
    for kind, why in (
        ("service", "applies nodes.yaml and new releases"),
        ("path", "starts it when nodes.yaml changes"),
        ("timer", "starts it every minute to update the menu and the record of what nodes run"),
    ):
        text = render_template(f"nodes.{kind}.j2", config=config, command=command)
        units.append(UnitFile(UNITS / f"{NODES}.{kind}", text, why, starts=kind != "service"))
    if config.nfs is Nfs.KERNEL:
        why = "roots over NFS, to the nodes' subnet"
        units.append(UnitFile(EXPORTS, render_exports(config), why, starts=False))
    return tuple(units)


def daemon_unit(config: ServeConfig, daemon: Daemon) -> UnitFile:
    text = render_template(
        "daemon.service.j2",
        config=config,
        daemon=daemon,
        command=exec_line(daemon.argv),
        has_address=exec_line(
            ["sh", "-c", HAS_ADDRESS, "sh", config.interface.name, config.server]
        ),
        test=exec_line(daemon.test) if daemon.test else "",
        before=exec_line(daemon.before) if daemon.before else "",
        nfs=daemon.name == "ganesha",
        router=daemon.name == "radvd",
    )
    return UnitFile(UNITS / f"imagebuilder-{daemon.name}.service", text, daemon.purpose)


def words(options: Options, config: ServeConfig) -> list[str]:
    """The command line that refreshes what these options installed.

    It names the chosen NFS server, so that it does not matter which one runs at that moment.
    """
    options_by_word = {
        "--interface": options.interface,
        "--tree": os.fspath(config.tree.path),
        "--address": options.address,
        "--dhcp": "" if options.dhcp is Dhcp.FULL else str(options.dhcp),
        "--range": options.pool,
        "--nfs": str(config.nfs),
        "--http-port": "" if options.http_port == 80 else str(options.http_port),
        "--domain": options.domain,
        "--gateway": options.gateway,
        "--ipxe": os.fspath(options.ipxe.absolute()) if options.ipxe else "",
    }
    listed = [word for name, value in options_by_word.items() if value for word in (name, value)]
    return ["serve", "--refresh", *listed, *(() if options.dns else ("--no-dns",))]
