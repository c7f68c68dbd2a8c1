# SPDX-License-Identifier: Apache-2.0
"""`serve` in the foreground: start the daemons, watch them and the nodes, end them all."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import NoReturn

from imagebuilder.errors import HostError, ImagebuilderError, InputError
from imagebuilder.files import set_aside
from imagebuilder.locks import file_lock
from imagebuilder.nodes.evidence.boots import FellBack, any_failed, find_fallbacks
from imagebuilder.nodes.evidence.usage import known_nodes, note_reports
from imagebuilder.nodes.files import make_entry, update_nodes
from imagebuilder.nodes.types import Nodes
from imagebuilder.plain import stamp_of
from imagebuilder.process import run
from imagebuilder.program import Program, program
from imagebuilder.serve.config import ServeConfig
from imagebuilder.serve.daemons import Daemon, check_config, consoles, daemons, reload_changed
from imagebuilder.serve.dhcp_clients import DhcpClientWatch
from imagebuilder.serve.fallback import awaited_nodes, confirm_open
from imagebuilder.serve.files import make_config
from imagebuilder.serve.ipxe import ARCHITECTURES, copy_binaries
from imagebuilder.serve.lines import Lines
from imagebuilder.serve.nfs import kernel_export, wants_rpcbind
from imagebuilder.serve.options import Nfs
from imagebuilder.serve.ports import find_holders
from imagebuilder.serve.prepare import Prepared, check_alone, check_nodes, check_ports, warn_of_gaps
from imagebuilder.serve.remembered import Remembered
from imagebuilder.serve.rotate import rotate_reports
from imagebuilder.serve.running import describe_ours, find_foreign
from imagebuilder.serve.show import Screen
from imagebuilder.serve.ssh_probe import SshProbes
from imagebuilder.serve.stages import BootWatch
from imagebuilder.ui import Ui, format_count

DNSMASQ_CONF = "dnsmasq.conf"
TICK = 1.0  # seconds between checks of nodes.yaml, reports and ssh
POLL = 0.05  # seconds
# Between two rotations of the log of reports: after each, the web server has more processes until
# the downloads of the old ones have ended.
ROTATION = 60.0
MOST_TOLD = 1000
FLOOD = (
    "the daemons print more than serve can read, so some lines were skipped: see in "
    "TREE/serve/logs who sends so many requests"
)
# Per turn of the loop, from the log of reports and from records of older versions.
TURN, FOLDED_AT_ONCE = 16 * 1024**2, 200


@dataclass(frozen=True)
class Running:
    """A started daemon; it ends with its `stack`."""

    daemon: Daemon
    program: Program
    stack: ExitStack


@dataclass
class RunningDaemons:
    """The started daemons and their output."""

    config: ServeConfig
    ui: Ui
    screen: Screen
    stack: ExitStack
    probes: SshProbes = field(default_factory=lambda: SshProbes(time.monotonic))
    boot_probes: SshProbes = field(default_factory=lambda: SshProbes(time.monotonic))
    boots: object = None
    awaited: Mapping[str, str] = field(default_factory=dict)
    failing: bool = False
    fallbacks: Mapping[str, FellBack] = field(default_factory=dict)
    lines: Lines = field(default_factory=Lines)
    running: dict[str, Running] = field(default_factory=dict)
    stamp: object = None
    rotated: float = float("-inf")
    # Warnings that were printed.
    told: Remembered[None] = field(default_factory=lambda: Remembered(MOST_TOLD))

    def __post_init__(self) -> None:
        self.progress = BootWatch(time.monotonic, self.screen.is_node)
        self.clients = DhcpClientWatch(self.config.tree, self.screen.is_node)

    def warn_once(self, key: str, text: str) -> None:
        if key not in self.told:
            self.told[key] = None
            self.ui.warn(text)


def check(prepared: Prepared, nodes: Nodes, ui: Ui) -> ServeConfig:
    """Run all checks of `serve`, and the daemons' own tests of their files; starts nothing.

    Daemons that already serve this tree are no conflict.
    """
    config = prepared.config
    warn_of_gaps(config, nodes, ui)
    check_ports(config, find_foreign(config))
    with ui.step(f"Looking for DHCP servers on {config.interface.name}"):
        check_alone(config, ui)
    with ui.step("Rendering the daemons' files"):
        make_config(config, nodes)
        check_config(config)
    return config


def serve(prepared: Prepared, nodes: Nodes, ui: Ui) -> None:
    """Serve until interrupted.

    Raises HostError if this tree is already served, WorkError if a daemon ends unexpectedly.
    """
    with file_lock(prepared.config.tree.lock("serve"), waiting=refuse):
        if served := describe_ours(prepared.config.tree):
            stop = f"sudo systemctl stop {served.replace(',', '')}"
            raise HostError(f"this tree is already served by {served}", hint=stop)
        check(prepared, nodes, ui)
        run_daemons(prepared, nodes, ui)


def refuse() -> NoReturn:
    """Raise HostError: another process owns the daemons' files."""
    raise HostError(
        "another imagebuilder serve is running on this tree", hint="stop it, or use another --tree"
    )


def run_daemons(prepared: Prepared, nodes: Nodes, ui: Ui) -> None:
    """Start all daemons, and watch until interrupted."""
    config = prepared.config
    stamp = stamp_of(config.tree.nodes_file)
    with ui.step("Writing the nodes' files"):
        copy_binaries(prepared.binaries, config.tree.tftp)
        if update_nodes(config.tree) != nodes:
            stamp = None  # it changed in the meantime: check it again
        make_entry(config.tree, config.server, config.http_port)
    with ExitStack() as stack:
        server = RunningDaemons(config, ui, Screen(ui, nodes), stack, stamp=stamp)
        if config.nfs is Nfs.KERNEL:
            stack.enter_context(kernel_export(config))
        for daemon in daemons(config, with_rpcbind=wants_rpcbind(config, find_holders())):
            start(server, daemon, stack.enter_context(ExitStack()))
        tell_ready(config, nodes, ui)
        watch(server)


def start(server: RunningDaemons, daemon: Daemon, stack: ExitStack) -> None:
    """Start a daemon and wait until it is ready; it ends with `stack`."""
    log = server.config.tree.serve / "logs" / f"{daemon.name}.log"
    set_aside(log)

    def hear(line: str) -> None:
        server.lines.put(daemon.name, line)

    if daemon.before:
        run(daemon.before, check=False)
    with server.ui.step(f"Starting {daemon.name}") as step:
        running = stack.enter_context(
            program(
                daemon.name, daemon.argv, log, on_line=hear, on_loss=server.ui.warn, dies_by="TERM"
            )
        )
        if daemon.ready:
            running.wait_for(daemon.ready, daemon.patience)
        else:
            wait_for_port(running, daemon)
        step.remark(daemon.purpose)
    server.running[daemon.name] = Running(daemon, running, stack)


def wait_for_port(running: Program, daemon: Daemon) -> None:
    """Wait until a daemon's port is open.  Raises WorkError if it ends or takes too long."""
    deadline = time.monotonic() + daemon.patience
    while running.status is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", daemon.port), POLL).close()
            return
        time.sleep(POLL)
    raise running.complaint(f"did not open port {daemon.port}")


def tell_ready(config: ServeConfig, nodes: Nodes, ui: Ui) -> None:
    """Print the line that says that everything works, and where."""
    addresses = (
        f"addresses {config.pool[0]} to {config.pool[1]}" if config.pool else "beside a router"
    )
    ui.note(
        f"Serving {config.tree.path} on {config.interface.name}, {config.http}, {addresses}, "
        f"{format_count(len(nodes.nodes), 'node')}; press Ctrl-C to stop"
    )


def watch(server: RunningDaemons) -> None:
    """Show events until a daemon ends or the user interrupts."""
    while True:
        until = time.monotonic() + TICK
        while (left := until - time.monotonic()) > 0:
            if said := server.lines.get(left):
                hear(server, *said)
        server.screen.turn()
        if server.lines.take_dropped():
            server.warn_once("flood", FLOOD)
        check_alive(server)
        apply_changed_nodes(server)
        take_in_reports(server)
        ask_ssh(server)
        fall_back(server)


def hear(server: RunningDaemons, daemon: str, line: str) -> None:
    """Show and parse a line of a daemon.  No line raises: see serve/stages.py."""
    server.screen.line(daemon, line)
    server.clients.hear(line, datetime.now(UTC))
    for event in server.progress.hear(line):
        boot = server.progress.boots[event.node]
        server.screen.event(event, boot.times)
    tell_unknown(server)


def tell_unknown(server: RunningDaemons) -> None:
    """Warn once about each machine without a boot file."""
    if not server.progress.architectures:
        return
    known = {n for file in server.config.boot_files for n in file.architecture.numbers}
    titles = {n: kind.title for kind in ARCHITECTURES for n in kind.numbers}
    for mac, number in server.progress.architectures.items():
        if number not in known and mac not in server.told and server.screen.may_show():
            title = titles.get(number, "an unknown architecture")
            server.warn_once(
                mac, f"{mac} requests a boot file for {title} ({number}); this server has none"
            )
    server.progress.architectures.clear()


def check_alive(server: RunningDaemons) -> None:
    """Raise WorkError with the last lines of a daemon that has ended."""
    for running in server.running.values():
        status = running.program.status
        if status is not None:
            raise running.program.complaint(f"stopped unexpectedly (exit status {status})")


def apply_changed_nodes(server: RunningDaemons) -> None:
    """Apply a changed nodes.yaml; an invalid one changes nothing and causes a warning."""
    stamp = stamp_of(server.config.tree.nodes_file)
    if stamp == server.stamp:
        return
    try:
        nodes, changed = take_over(server.config)
        if DNSMASQ_CONF in changed:
            restart(server, "dnsmasq")
    except InputError as error:
        server.stamp = stamp
        server.ui.warn(f"could not apply nodes.yaml:\n{error}")
        return
    except (ImagebuilderError, OSError) as error:  # for instance a full disk: retried
        server.warn_once(f"{stamp} {error}", f"could not apply nodes.yaml yet: {error}")
        return
    server.stamp = stamp
    server.screen.know(nodes)
    for fault in nodes.warnings:
        server.ui.warn(str(fault))
    server.ui.note(
        f"nodes.yaml: {format_count(len(nodes.nodes), 'node')}, "
        f"{', '.join(changed) or 'nothing'} changed"
    )
    receive_consoles(server, nodes)


def receive_consoles(server: RunningDaemons, nodes: Nodes) -> None:
    """Start to receive consoles once a node has netconsole."""
    daemon = consoles(server.config)
    if daemon.name in server.running or not any(node.netconsole for node in nodes.nodes):
        return
    stack = server.stack.enter_context(ExitStack())
    try:
        start(server, daemon, stack)
    except ImagebuilderError as error:
        stack.close()
        server.ui.warn(f"could not receive consoles:\n{error}")


def restart(server: RunningDaemons, name: str) -> None:
    running = server.running[name]
    running.stack.close()
    start(server, running.daemon, running.stack)


def take_in_reports(server: RunningDaemons) -> None:
    """Record what nodes run and which other machines sent requests.

    An error, such as a full disk, is only a warning: nodes are still served.
    """
    try:
        server.clients.save(time.monotonic())
        if time.monotonic() - server.rotated >= ROTATION and rotate_reports(server.config):
            server.rotated = time.monotonic()
        note_reports(server.config.tree, served_nodes(server), most=TURN, fold=FOLDED_AT_ONCE)
    except (ImagebuilderError, OSError) as error:
        server.warn_once(str(error), f"could not record what nodes run: {error}")


def served_nodes(server: RunningDaemons) -> Nodes:
    """The nodes that were taken over, and those added since, whose scripts are there already.

    A nodes.yaml that was not taken over may be half written, so nobody is missing for its sake.
    """
    nodes = server.screen.nodes
    if stamp_of(server.config.tree.nodes_file) == server.stamp:
        return nodes
    by_name = {node.name: node for node in (*nodes.nodes, *known_nodes(server.config.tree).nodes)}
    return replace(nodes, nodes=tuple(by_name.values()))


def take_over(config: ServeConfig) -> tuple[Nodes, list[str]]:
    """Apply nodes.yaml to the daemons; returns their changed files.

    Raises InputError, before anything is changed, if the nodes do not fit the served network.
    """
    nodes = update_nodes(config.tree, partial(check_nodes, config))
    changed = make_config(config, nodes)
    reload_changed(config, changed)
    return nodes, changed


def ask_ssh(server: RunningDaemons) -> None:
    """Find which of the nodes that are about to start sshd have started it."""
    waiting = {boot.address: boot.node for boot in server.progress.awaiting_ssh()}
    for address in server.probes.find_open(waiting):
        for event in server.progress.logged_in(waiting[address]):
            server.screen.event(event, server.progress.boots[event.node].times)


def fall_back(server: RunningDaemons) -> None:
    """Record which nodes became ready, and change what the others boot."""
    tree, nodes = server.config.tree, server.screen.nodes
    try:
        stamp = stamp_of(tree.boots)
        if stamp != server.boots:
            server.awaited, server.failing = awaited_nodes(tree, nodes), any_failed(tree)
        confirm_open(tree, server.awaited, server.boot_probes.find_open({*server.awaited.values()}))
        if stamp == server.boots and not server.failing:
            return
        fallbacks = find_fallbacks(tree, nodes.nodes)
        if fallbacks != server.fallbacks:
            update_nodes(tree)
            for name in fallbacks.keys() - server.fallbacks.keys():
                server.ui.warn(f"{name} {fallbacks[name]}; it boots {fallbacks[name].version}")
            server.fallbacks = fallbacks
        server.boots = stamp  # last: what fails is tried again in the next turn
    except (ImagebuilderError, OSError) as error:
        server.warn_once(str(error), f"could not change what nodes boot: {error}")
