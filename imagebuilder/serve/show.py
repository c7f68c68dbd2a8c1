# SPDX-License-Identifier: Apache-2.0
"""Show how nodes boot: the daemons' lines, and each node's stages with times."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from imagebuilder.nodes.types import Nodes
from imagebuilder.serve.stages import STAGES, NodeStage, StageEvent
from imagebuilder.ui import GREEN, RED, Ui, format_duration, paint
from imagebuilder.untrusted import begin_colour, fit

COLOURS = {
    "dnsmasq": begin_colour(36),
    "nginx": begin_colour(35),
    "ganesha": begin_colour(34),
    "rpcbind": begin_colour(34),
    "consoles": begin_colour(33),
    "radvd": begin_colour(33),
}
# Routine lines of the daemons, which are hidden.
USUAL = {
    "dnsmasq": re.compile(
        r"dnsmasq(-dhcp|-tftp)?(\[\d+\])?: (\d+ |started|compile time|read |DHCP, |sockets bound|"
        r"IPv6|TFTP root|sent |error 8 |error 0 |using nameserver|reading /|cleared|inotify|"
        r"LOUD WARNING|query|forwarded|reply|cached|config|exiting|no servers|using only locally)"
    ),
    "nginx": re.compile(r"\d[\d.]+ [23]\d\d |.*\[(notice|info)\]|.* 404 .*/nodes/"),
    "ganesha": re.compile(r".*:(EVENT|INFO|DEBUG|WARN|CRIT) :|^\S+ : epoch"),
    "rpcbind": re.compile(r"$"),
    "consoles": re.compile(r"receiving consoles"),
    "radvd": re.compile(r".*(IPv6 forwarding|config file|version .* started|linklocal|sending)"),
}
NAME_WIDTH = 8
MOST_SHOWN = 400  # characters of a line
MOST_A_TURN = 200  # lines about unknown machines


@dataclass
class Screen:
    """Prints lines and events on a ui; all lines of the daemons if the ui is verbose.

    Always shows what nodes of nodes.yaml do.  Other lines are limited per turn, so that a flood
    from unknown machines does not hide them.
    """

    ui: Ui
    nodes: Nodes
    names: dict[str, str] = field(default_factory=dict)  # by MAC
    shown: int = 0
    hidden: int = 0

    def __post_init__(self) -> None:
        self.know(self.nodes)

    def know(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.names = {mac: node.name for node in nodes.nodes for mac in node.macs}

    def is_node(self, mac: str) -> bool:
        return mac in self.names

    def turn(self) -> None:
        """End a turn, and say how many lines were hidden."""
        if self.hidden:
            self.ui.note(f"hid {self.hidden} lines about unknown machines: see TREE/serve/logs")
        self.shown = self.hidden = 0

    def may_show(self) -> bool:
        """Whether one more line about an unknown machine is shown in this turn."""
        self.shown += 1
        self.hidden += self.shown > MOST_A_TURN
        return self.shown <= MOST_A_TURN

    def line(self, daemon: str, text: str) -> None:
        usual = USUAL[daemon].match(text)
        if text.strip() and (self.ui.verbose or not usual) and self.may_show():
            prefix = self.paint(f"{daemon:<{NAME_WIDTH}}|", COLOURS[daemon])
            self.ui.note(f"{prefix} {fit(text, MOST_SHOWN)}")

    def event(self, event: StageEvent, times: dict[NodeStage, float]) -> None:
        """Show a stage that a node has reached; at ssh, repeat all its times."""
        if not self.is_node(event.node) and not self.may_show():
            return
        name = self.names.get(event.node) or fit(event.node)
        after = format_duration(event.seconds)
        if event.failed:
            words = self.paint(f"FAILED in {fit(event.failed)}", RED)
            self.ui.note(f"{name:<18} {words} after {after}; see its console")
            return
        title = event.stage.title
        shown = self.paint(f"{title:<9}", GREEN) if event.stage is NodeStage.SSH else f"{title:<9}"
        detail = fit(event.detail)
        if event.stage is NodeStage.SSH:
            detail = ", ".join(f"{STAGES[s]} {format_duration(t)}" for s, t in times.items())
        self.ui.note(f"{name:<18} {shown} {after:>9}  {detail}".rstrip())

    def paint(self, text: str, colour: str) -> str:
        return paint(text, colour if self.ui.colour else "")
