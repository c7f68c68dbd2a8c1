# SPDX-License-Identifier: Apache-2.0
"""What a person sees while nodes boot: the daemons' lines, and each node's stages with times."""

from __future__ import annotations

import re
from dataclasses import dataclass

from imagebuilder.nodes.types import Nodes
from imagebuilder.serve.stages import STAGES, Event, Stage
from imagebuilder.ui import GREEN, PLAIN, RED, Ui, format_duration

COLOURS = {
    "dnsmasq": "\x1b[36m",
    "nginx": "\x1b[35m",
    "ganesha": "\x1b[34m",
    "rpcbind": "\x1b[34m",
    "radvd": "\x1b[33m",
}
# What a person need not see of a daemon that is well: the rest is shown.
USUAL = {
    "dnsmasq": re.compile(
        r"dnsmasq(-dhcp|-tftp)?(\[\d+\])?: (\d+ |started|compile time|read |DHCP, |sockets bound|"
        r"IPv6|TFTP root|sent |error 8 |error 0 |using nameserver|reading /|cleared|inotify|"
        r"LOUD WARNING|query|forwarded|reply|cached|config|exiting|no servers|using only locally)"
    ),
    "nginx": re.compile(r"\d[\d.]+ [23]\d\d |.*\[(notice|info)\]|.* 404 .*/nodes/"),
    "ganesha": re.compile(r".*:(EVENT|INFO|DEBUG|WARN|CRIT) :|^\S+ : epoch"),
    "rpcbind": re.compile(r"$"),
    "radvd": re.compile(r".*(IPv6 forwarding|config file|version .* started|linklocal|sending)"),
}
NAME_WIDTH = 8
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")  # what a NIC says must not reach a terminal


@dataclass
class Screen:
    """Prints lines and events on a ui; all lines of the daemons when that tells every detail."""

    ui: Ui
    nodes: Nodes

    def line(self, daemon: str, text: str) -> None:
        """A line of a daemon, behind its name."""
        usual = USUAL[daemon].match(text)
        if text.strip() and (self.ui.verbose or not usual):
            prefix = self.paint(f"{daemon:<{NAME_WIDTH}}|", COLOURS[daemon])
            self.ui.note(f"{prefix} {CONTROL.sub('?', text)}")

    def event(self, event: Event, times: dict[Stage, float]) -> None:
        """A stage that a node has reached; with ssh, all its times once more."""
        name = self.name(event.node)
        after = format_duration(event.seconds)
        if event.failed:
            what = CONTROL.sub("?", event.failed)
            words = self.paint(f"FAILED in {what}", RED)
            self.ui.note(f"{name:<18} {words} after {after}; its console says why")
            return
        title = event.stage.title
        shown = self.paint(f"{title:<9}", GREEN) if event.stage is Stage.SSH else f"{title:<9}"
        detail = CONTROL.sub("?", event.detail)
        if event.stage is Stage.SSH:
            detail = ", ".join(f"{STAGES[s]} {format_duration(t)}" for s, t in times.items())
        self.ui.note(f"{name:<18} {shown} {after:>9}  {detail}".rstrip())

    def name(self, mac: str) -> str:
        """A node's name, or its MAC address."""
        node = self.nodes.find_by_mac(mac)
        return node.name if node else CONTROL.sub("?", mac)

    def paint(self, text: str, colour: str) -> str:
        return f"{colour}{text}{PLAIN}" if self.ui.colour else text
