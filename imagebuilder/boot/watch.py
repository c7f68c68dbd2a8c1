# SPDX-License-Identifier: Apache-2.0
"""Follow the boot of a machine in its console and the logs of dnsmasq and nginx.

A passed stage implies those before it: a console may be quiet, and a ROM may contain iPXE.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from imagebuilder.report.types import ORDER, Reached, Stage
from imagebuilder.serve.stages import ACK, DHCP_LINE, DHCP_REQUEST, REQUEST, SENT
from imagebuilder.untrusted import parse_request

# Stages that the initrd begins, and the stage that is passed by then (docs/netboot-root.md).
BEGUN = {
    "network": Stage.INITRD,
    "root": Stage.NETWORK,
    "overlay": Stage.ROOT,
    "switch-root": Stage.SWITCH_ROOT,
}
# A boot that reports its failure: stages of pxe/boot.ipxe.j2 and of the initrd.
FAILED = {
    "dhcp": Stage.DHCP,
    "scripts": Stage.IPXE,
    "node": Stage.RELEASE,
    "menu": Stage.RELEASE,
    "release": Stage.RELEASE,
    "live": Stage.RELEASE,
    "local": Stage.RELEASE,
    "cmdline": Stage.INITRD,
    "network": Stage.NETWORK,
    "root": Stage.ROOT,
    "overlay": Stage.ROOT,
    "node-files": Stage.SWITCH_ROOT,
}
BOOT_FAILED = re.compile(r"imagebuilder: BOOT FAILED in stage (\S+): (.*)")
STAGE_LINE = re.compile(r"imagebuilder: stage (\S+)")
# Output of firmware and iPXE, for what the daemons do not see.
ASKS = re.compile(r"Configuring \(net\d|>>Start (PXE|HTTP Boot) over")
IS_IPXE = re.compile(r"^Filename: http|^http://\S+/boot\.ipxe\.\.\.")
KERNEL = re.compile(r"Linux version \d")
SYSTEM = re.compile(
    r"systemd\[1\]: (systemd .* running in system mode|Queued start job for)|login:"
)
# systemd of the initrd stays where it is.
NOT_LEFT = re.compile(r"Switch root target contains no usable init|Failed to switch root")
# Fatal errors: the text, and the stages in which it is fatal.
HOPELESS = re.compile(
    r"Kernel panic|Attempted to kill init|No bootable device|BdsDxe: No bootable option|PXE-E23|"
    r"You are in emergency mode|Entering emergency mode|Failed to unpack|Shell> |"
    r"Out of memory: Killed process 1 |VFS: Unable to mount root"
)
BOOTED = ORDER[: ORDER.index(Stage.SSH) + 1]


@dataclass(frozen=True)
class Failure:
    """The output of a machine when it failed; `stage` is the stage that it names, or None."""

    what: str
    stage: Stage | None = None


@dataclass
class Watch:
    """One boot of one machine; seconds are since power-on."""

    mac: str
    addresses: set[str] = field(default_factory=set)
    reached: dict[Stage, float] = field(default_factory=dict)
    failure: Failure | None = None

    def reach(self, stage: Stage, seconds: float) -> None:
        """Record a passed stage, once."""
        self.reached.setdefault(stage, seconds)

    def hear_console(self, text: str, seconds: float) -> None:
        if failed := BOOT_FAILED.search(text):
            self.fail(failed[2].strip(), FAILED.get(failed[1]))
        elif begun := STAGE_LINE.search(text):
            if begun[1] in BEGUN:
                self.reach(BEGUN[begun[1]], seconds)
        elif ASKS.search(text):
            self.reach(Stage.FIRMWARE, seconds)
        elif IS_IPXE.search(text):
            self.reach(Stage.BOOT_FILE, seconds)
        elif KERNEL.search(text):
            self.reach(Stage.KERNEL, seconds)
        elif Stage.SWITCH_ROOT in self.reached and SYSTEM.search(text):
            self.reach(Stage.UNITS, seconds)
        elif NOT_LEFT.search(text):
            self.fail(text.strip(), Stage.SWITCH_ROOT)
        elif HOPELESS.search(text):
            self.fail(text.strip())

    def fail(self, what: str, stage: Stage | None = None) -> None:
        """Record a failure; the first one counts."""
        self.failure = self.failure or Failure(what, stage)

    def hear_dnsmasq(self, text: str, seconds: float) -> None:
        if talk := DHCP_LINE.match(text):
            if (ack := ACK.match(talk[2])) and ack[2] == self.mac:
                self.addresses.add(ack[1])
                self.reach(Stage.DHCP, seconds)
            elif (discover := DHCP_REQUEST.match(talk[2])) and discover[2] == self.mac:
                self.reach(Stage.FIRMWARE, seconds)
        elif (sent := SENT.match(text)) and sent[2] in self.addresses:
            self.reach(Stage.BOOT_FILE, seconds)

    def hear_nginx(self, text: str, seconds: float) -> None:
        request = REQUEST.match(text)
        if not request or request[1] not in self.addresses:
            return
        target, status = parse_request(request[3]), int(request[2])
        if target.path.startswith("/report/"):
            told = target.words.get("stage", "")
            if told in BEGUN:
                self.reach(BEGUN[told], seconds)
        elif status != 200:
            return
        elif target.path == "/boot.ipxe":
            self.reach(Stage.IPXE, seconds)
        elif target.path.endswith("/vmlinuz"):
            self.reach(Stage.RELEASE, seconds)

    @property
    def last(self) -> Stage | None:
        """The furthest stage that was passed."""
        return max(self.reached, key=ORDER.index, default=None)

    @property
    def current(self) -> Stage:
        """The stage that the machine is in: the one it names, or the next after those it passed."""
        if self.failure and self.failure.stage:
            return self.failure.stage
        after = BOOTED.index(self.last) + 1 if self.last in BOOTED else 1
        return BOOTED[min(after, len(BOOTED) - 1)]

    @property
    def stages(self) -> tuple[Reached, ...]:
        """The passed stages, in order."""
        return tuple(Reached(s, self.reached[s]) for s in ORDER if s in self.reached)
