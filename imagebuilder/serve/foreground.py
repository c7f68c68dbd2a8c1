# SPDX-License-Identifier: Apache-2.0
"""`serve` in the foreground: starts the daemons, watches them and the nodes, ends them all."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NoReturn

from imagebuilder.errors import HostError, ImagebuilderError, InputError
from imagebuilder.files import set_aside
from imagebuilder.locks import file_lock
from imagebuilder.nodes.evidence.boots import FellBack, any_failed, find_fallbacks
from imagebuilder.nodes.evidence.usage import note_reports
from imagebuilder.nodes.files import make_entry, update_nodes
from imagebuilder.nodes.load import load_nodes
from imagebuilder.nodes.types import Nodes
from imagebuilder.process import run
from imagebuilder.program import Program, program
from imagebuilder.serve.asked import AskedWatch
from imagebuilder.serve.config import ServeConfig
from imagebuilder.serve.daemons import Daemon, check_config, consoles, daemons, reload_changed
from imagebuilder.serve.fallback import awaited_nodes, confirm_open, stamp_of_boots
from imagebuilder.serve.files import make_config
from imagebuilder.serve.ipxe import ARCHITECTURES, copy_binaries
from imagebuilder.serve.lines import Lines
from imagebuilder.serve.nfs import kernel_export, wants_rpcbind
from imagebuilder.serve.options import Nfs
from imagebuilder.serve.ports import find_holders
from imagebuilder.serve.prepare import Prepared, check_alone, check_nodes, check_ports, warn_of_gaps
from imagebuilder.serve.remembered import Remembered
from imagebuilder.serve.rotate import rotate_reports
from imagebuilder.serve.running import describe_own, find_foreign
from imagebuilder.serve.show import Screen
from imagebuilder.serve.ssh_probe import SshProbes
from imagebuilder.serve.stages import BootWatch
from imagebuilder.ui import Ui, format_count

DNSMASQ_CONF = "dnsmasq.conf"
TICK = 1.0  # seconds between looks at nodes.yaml, reports and ssh
POLL = 0.05  # seconds
MOST_TOLD = 1000
FLOOD = (
    "the daemons say more than can be read, and some of it is not looked at: TREE/serve/logs tells "
    "who asks that much"
)
# What one turn of the loop reads of the log of reports, and of an older version's records.
TURN, FOLDED_AT_ONCE = 16 * 1024**2, 200


@dataclass(frozen=True)
class Running:
    """A daemon that was started; it ends with its `stack`."""

    daemon: Daemon
    program: Program
    stack: ExitStack


@dataclass
class RunningDaemons:
    """What runs: the daemons that were started, and the lines they say."""

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
    # What is warned of once.
    told: Remembered[None] = field(default_factory=lambda: Remembered(MOST_TOLD))

    def __post_init__(self) -> None:
        self.progress = BootWatch(time.monotonic, self.screen.is_node)
        self.asked = AskedWatch(self.config.tree, self.screen.is_node)

    def warn_once(self, key: str, text: str) -> None:
        """Warn, unless that was done."""
        if key not in self.told:
            self.told[key] = None
            self.ui.warn(text)


def check(prepared: Prepared, nodes: Nodes, ui: Ui) -> ServeConfig:
    """Everything `serve` looks at, and the daemons' own tests of their files; starts nothing.

    Daemons that serve this tree already are in nobody's way.
    """
    config = prepared.config
    warn_of_gaps(config, nodes, ui)
    check_ports(config, find_foreign(config))
    with ui.step(f"Asking for DHCP servers on {config.interface.name}"):
        check_alone(config, ui)
    with ui.step("Rendering the daemons' files"):
        make_config(config, nodes)
        check_config(config)
    return config


def serve(prepared: Prepared, nodes: Nodes, ui: Ui) -> None:
    """Serve until interrupted.

    Raises HostError when this tree is served already, WorkError when a daemon ends by itself.
    """
    with file_lock(prepared.config.tree.lock("serve"), waiting=refuse):
        if served := describe_own(prepared.config.tree):
            stop = f"sudo systemctl stop {served.replace(',', '')}"
            raise HostError(f"this tree is already served by {served}", hint=stop)
        check(prepared, nodes, ui)
        run_daemons(prepared, nodes, ui)


def refuse() -> NoReturn:
    """Somebody else serves this tree: the daemons' files are theirs."""
    raise HostError(
        "another imagebuilder serve is running on this tree", hint="stop it, or name another --tree"
    )


def run_daemons(prepared: Prepared, nodes: Nodes, ui: Ui) -> None:
    """Start them all, and watch until interrupted."""
    config = prepared.config
    stamp = stamp_of(config)
    with ui.step("Writing what nodes fetch"):
        copy_binaries(prepared.binaries, config.tree.tftp)
        if update_nodes(config.tree) != nodes:
            stamp = None  # changed while we looked at other things: looked at again
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
    """Wait until a daemon's port is open.  Raises WorkError when it ends, or takes too long."""
    deadline = time.monotonic() + daemon.patience
    while running.status is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", daemon.port), POLL).close()
            return
        time.sleep(POLL)
    raise running.complaint(f"does not open port {daemon.port}")


def tell_ready(config: ServeConfig, nodes: Nodes, ui: Ui) -> None:
    """The one line that says it all works, and where."""
    given = f"addresses {config.pool[0]} to {config.pool[1]}" if config.pool else "beside a router"
    ui.note(
        f"Serving {config.tree.path} on {config.interface.name}, {config.http}, {given}, "
        f"{format_count(len(nodes.nodes), 'node')}; press Ctrl-C to stop"
    )


def watch(server: RunningDaemons) -> None:
    """Show what happens, until a daemon ends or we are interrupted."""
    while True:
        until = time.monotonic() + TICK
        while (left := until - time.monotonic()) > 0:
            if said := server.lines.get(left):
                hear(server, *said)
        server.screen.turn()
        if server.lines.take_dropped():
            server.warn_once("flood", FLOOD)
        check_alive(server)
        look_at_nodes(server)
        take_in_reports(server)
        ask_ssh(server)
        fall_back(server)


def hear(server: RunningDaemons, daemon: str, line: str) -> None:
    """A line of a daemon: shown, and understood.  No line raises: see serve/stages.py."""
    server.screen.line(daemon, line)
    server.asked.hear(line, datetime.now(UTC))
    for event in server.progress.hear(line):
        boot = server.progress.boots[event.node]
        server.screen.event(event, boot.times)
    tell_unknown(server)


def tell_unknown(server: RunningDaemons) -> None:
    """Warn once of each machine that we have no boot file for."""
    if not server.progress.asked:
        return
    known = {n for file in server.config.boot_files for n in file.architecture.numbers}
    titles = {n: kind.title for kind in ARCHITECTURES for n in kind.numbers}
    for mac, number in server.progress.asked.items():
        if number not in known and mac not in server.told and server.screen.may_show():
            title = titles.get(number, "a kind we do not know")
            server.warn_once(
                mac, f"{mac} asks for a boot file for {title} ({number}): there is none here"
            )
    server.progress.asked.clear()


def check_alive(server: RunningDaemons) -> None:
    """Raise WorkError when a daemon has ended, with its last lines."""
    for running in server.running.values():
        status = running.program.status
        if status is not None:
            raise running.program.complaint(f"stopped unexpectedly (exit status {status})")


def look_at_nodes(server: RunningDaemons) -> None:
    """Take a changed nodes.yaml over; one that is wrong is told of and changes nothing."""
    stamp = stamp_of(server.config)
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
    except (ImagebuilderError, OSError) as error:  # such as a full disk: tried again
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
    """Begin to receive consoles when the first node wants that."""
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
    """End a daemon and start it again."""
    running = server.running[name]
    running.stack.close()
    start(server, running.daemon, running.stack)


def take_in_reports(server: RunningDaemons) -> None:
    """Note what nodes run and who else asked; where that fails, such as on a full disk, nodes are
    served still.
    """
    try:
        server.asked.save(time.monotonic())
        rotate_reports(server.config)
        note_reports(server.config.tree, server.screen.nodes, most=TURN, fold=FOLDED_AT_ONCE)
    except (ImagebuilderError, OSError) as error:
        server.warn_once(str(error), f"could not record what nodes run: {error}")


def take_over(config: ServeConfig) -> tuple[Nodes, list[str]]:
    """Have the daemons serve the nodes of nodes.yaml; returns the files of theirs that changed.

    Raises InputError, before anything is changed, when they do not fit what is served.
    """
    check_nodes(config, load_nodes(config.tree))
    nodes = update_nodes(config.tree)
    changed = make_config(config, nodes)
    reload_changed(config, changed)
    return nodes, changed


def stamp_of(config: ServeConfig) -> object:
    """What changes when nodes.yaml does."""
    try:
        status = config.tree.nodes_file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def ask_ssh(server: RunningDaemons) -> None:
    """See which of the nodes that should have sshd soon have it."""
    waiting = {boot.address: boot.node for boot in server.progress.awaiting_ssh()}
    for address in server.probes.find_open(waiting):
        for event in server.progress.logged_in(waiting[address]):
            server.screen.event(event, server.progress.boots[event.node].times)


def fall_back(server: RunningDaemons) -> None:
    """Note which nodes became ready, and change what those boot that did not."""
    tree, nodes = server.config.tree, server.screen.nodes
    try:
        stamp = stamp_of_boots(tree)
        if stamp != server.boots:
            server.awaited, server.failing = awaited_nodes(tree, nodes), any_failed(tree)
        confirm_open(tree, server.awaited, server.boot_probes.find_open({*server.awaited.values()}))
        if stamp == server.boots and not server.failing:
            return
        server.boots = stamp
        fallbacks = find_fallbacks(tree, nodes.nodes)
        if fallbacks != server.fallbacks:
            update_nodes(tree)
            for name in fallbacks.keys() - server.fallbacks.keys():
                server.ui.warn(f"{name} {fallbacks[name]}; it boots {fallbacks[name].version}")
            server.fallbacks = fallbacks
    except (ImagebuilderError, OSError) as error:
        server.warn_once(str(error), f"could not change what nodes boot: {error}")
