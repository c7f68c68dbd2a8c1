# SPDX-License-Identifier: Apache-2.0
"""`serve` in the foreground: starts the daemons, watches them and the nodes, ends them all."""

from __future__ import annotations

import contextlib
import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NoReturn

from imagebuilder.errors import HostError, ImagebuilderError, InputError
from imagebuilder.files import set_aside
from imagebuilder.locks import held
from imagebuilder.nodes.files import make_entry, update_nodes
from imagebuilder.nodes.load import load_nodes
from imagebuilder.nodes.types import Nodes
from imagebuilder.process import run
from imagebuilder.program import Program, program
from imagebuilder.publish.usage import note_reports
from imagebuilder.serve.config import Nfs, ServeConfig
from imagebuilder.serve.daemons import Daemon, check_config, daemons, reload_changed
from imagebuilder.serve.doors import Doors
from imagebuilder.serve.files import make_config
from imagebuilder.serve.ipxe import ARCHITECTURES, copy_binaries
from imagebuilder.serve.lines import Lines
from imagebuilder.serve.nfs import kernel_export, wants_rpcbind
from imagebuilder.serve.own import describe_own, find_foreign
from imagebuilder.serve.ports import find_holders
from imagebuilder.serve.prepare import Prepared, check_alone, check_nodes, check_ports, warn_of_gaps
from imagebuilder.serve.remembered import Remembered
from imagebuilder.serve.rotate import rotate_reports
from imagebuilder.serve.show import Screen
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
    doors: Doors = field(default_factory=lambda: Doors(time.monotonic))
    lines: Lines = field(default_factory=Lines)
    running: dict[str, Running] = field(default_factory=dict)
    stamp: object = None
    # What is warned of once.
    told: Remembered[None] = field(default_factory=lambda: Remembered(MOST_TOLD))

    def __post_init__(self) -> None:
        self.progress = BootWatch(time.monotonic, self.screen.is_node)

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
    with ui.step(f"Asking for DHCP servers on {config.wire.name}"):
        check_alone(config, ui)
    with ui.step("Rendering the daemons' files"):
        make_config(config, nodes)
        check_config(config)
    return config


def serve(prepared: Prepared, nodes: Nodes, ui: Ui) -> None:
    """Serve until interrupted.

    Raises HostError when this tree is served already, WorkError when a daemon ends by itself.
    """
    with held(prepared.config.tree.lock("serve"), waiting=refuse):
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
        room = RunningDaemons(config, ui, Screen(ui, nodes), stamp=stamp)
        if config.nfs is Nfs.KERNEL:
            stack.enter_context(kernel_export(config))
        for daemon in daemons(config, with_rpcbind=wants_rpcbind(config, find_holders())):
            start(room, daemon, stack.enter_context(ExitStack()))
        tell_ready(config, nodes, ui)
        watch(room)


def start(room: RunningDaemons, daemon: Daemon, stack: ExitStack) -> None:
    """Start a daemon and wait until it is ready; it ends with `stack`."""
    log = room.config.tree.serve / "logs" / f"{daemon.name}.log"
    set_aside(log)

    def hear(line: str) -> None:
        room.lines.put(daemon.name, line)

    if daemon.before:
        run(daemon.before, check=False)
    with room.ui.step(f"Starting {daemon.name}") as step:
        running = stack.enter_context(
            program(
                daemon.name, daemon.argv, log, on_line=hear, on_loss=room.ui.warn, dies_by="TERM"
            )
        )
        if daemon.ready:
            running.wait_for(daemon.ready, daemon.patience)
        else:
            wait_for_port(running, daemon)
        step.remark(daemon.purpose)
    room.running[daemon.name] = Running(daemon, running, stack)


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
        f"Serving {config.tree.path} on {config.wire.name}, {config.http}, {given}, "
        f"{format_count(len(nodes.nodes), 'node')}; press Ctrl-C to stop"
    )


def watch(room: RunningDaemons) -> None:
    """Show what happens, until a daemon ends or we are interrupted."""
    while True:
        until = time.monotonic() + TICK
        while (left := until - time.monotonic()) > 0:
            if said := room.lines.get(left):
                hear(room, *said)
        room.screen.turn()
        if room.lines.take_dropped():
            room.warn_once("flood", FLOOD)
        check_alive(room)
        look_at_nodes(room)
        take_in_reports(room)
        ask_ssh(room)


def hear(room: RunningDaemons, daemon: str, line: str) -> None:
    """A line of a daemon: shown, and understood.  No line raises: see serve/stages.py."""
    room.screen.line(daemon, line)
    for event in room.progress.hear(line):
        boot = room.progress.boots[event.node]
        room.screen.event(event, boot.times)
    tell_unknown(room)


def tell_unknown(room: RunningDaemons) -> None:
    """Warn once of each machine that we have no boot file for."""
    if not room.progress.asked:
        return
    known = {n for file in room.config.boot_files for n in file.architecture.numbers}
    titles = {n: kind.title for kind in ARCHITECTURES for n in kind.numbers}
    for mac, number in room.progress.asked.items():
        if number not in known and mac not in room.told and room.screen.may_show():
            title = titles.get(number, "a kind we do not know")
            room.warn_once(
                mac, f"{mac} asks for a boot file for {title} ({number}): there is none here"
            )
    room.progress.asked.clear()


def check_alive(room: RunningDaemons) -> None:
    """Raise WorkError when a daemon has ended, with its last lines."""
    for running in room.running.values():
        status = running.program.status
        if status is not None:
            raise running.program.complaint(f"stopped unexpectedly (exit status {status})")


def look_at_nodes(room: RunningDaemons) -> None:
    """Take a changed nodes.yaml over; one that is wrong is told of and changes nothing."""
    stamp = stamp_of(room.config)
    if stamp == room.stamp:
        return
    try:
        nodes, changed = take_over(room.config)
        if DNSMASQ_CONF in changed:
            restart(room, "dnsmasq")
    except InputError as error:
        room.stamp = stamp
        room.ui.warn(f"could not apply nodes.yaml:\n{error}")
        return
    except (ImagebuilderError, OSError) as error:  # such as a full disk: tried again
        room.warn_once(f"{stamp} {error}", f"could not apply nodes.yaml yet: {error}")
        return
    room.stamp = stamp
    room.screen.know(nodes)
    for fault in nodes.warnings:
        room.ui.warn(str(fault))
    room.ui.note(
        f"nodes.yaml: {format_count(len(nodes.nodes), 'node')}, "
        f"{', '.join(changed) or 'nothing'} changed"
    )


def restart(room: RunningDaemons, name: str) -> None:
    """End a daemon and start it again."""
    running = room.running[name]
    running.stack.close()
    start(room, running.daemon, running.stack)


def take_in_reports(room: RunningDaemons) -> None:
    """Note what nodes run; where that fails, such as on a full disk, nodes are served still."""
    try:
        rotate_reports(room.config)
        note_reports(room.config.tree, room.screen.nodes, most=TURN, fold=FOLDED_AT_ONCE)
    except (ImagebuilderError, OSError) as error:
        room.warn_once(str(error), f"could not record what nodes run: {error}")


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


def ask_ssh(room: RunningDaemons) -> None:
    """See which of the nodes that should have sshd soon have it."""
    waiting = {boot.address: boot.node for boot in room.progress.awaiting_ssh()}
    for address in room.doors.find_open(waiting):
        for event in room.progress.logged_in(waiting[address]):
            room.screen.event(event, room.progress.boots[event.node].times)
