# SPDX-License-Identifier: Apache-2.0
"""Follow each node's boot in the lines of dnsmasq and nginx.

DHCP      an address, for a firmware that boots from the network
firmware  it has fetched iPXE
iPXE      it has requested its entry script
kernel    the kernel is fetched
root      the root is mounted, the system starts
ssh       ssh answers

Any machine on the network can influence these lines.  No line raises, and all memory is bounded:
facts about nodes of nodes.yaml are dropped last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from ipaddress import IPv4Address

from imagebuilder.bootfiles import KERNEL
from imagebuilder.serve.remembered import Remembered
from imagebuilder.tree import HYPHENED, MAC
from imagebuilder.untrusted import parse_request

STAGES = ("DHCP", "firmware", "iPXE", "kernel", "root", "ssh")
EITHER_MAC = rf"(?:{MAC.pattern}|{HYPHENED.pattern})"
# Matched at the start of a line, so that text from a machine in another line does not match.
DHCP_LINE = re.compile(r"dnsmasq-dhcp(?:\[\d+\])?: (\d+) (.*)", re.ASCII)
TOLD = re.compile(r"(vendor class|user class): (.*)")
ACK = re.compile(rf"DHCPACK\(\S+\) (\S+) ({EITHER_MAC})")
DHCP_REQUEST = re.compile(
    rf"(?:DHCPDISCOVER|DHCPREQUEST|PXE)\(\S+\) (?:(\d[\d.]+) )?({EITHER_MAC})", re.ASCII
)
SENT = re.compile(r"dnsmasq-tftp(?:\[\d+\])?: sent \S*/(\S+) to (\S+)", re.ASCII)
REQUEST = re.compile(r"(\d+(?:\.\d+){3}) (\d{3}) \d+ [\d.]+ (\S+)", re.ASCII)
ARCHITECTURE = re.compile(r"(?:PXE|HTTP)Client:Arch:(\d{5})", re.ASCII)
MOST_TALKS = 1000  # DHCP transactions kept in mind
MOST_BOOTS = 4096
MOST_OWNERS = 8192  # addresses
MOST_CLIENTS = 256
MOST_STRANGERS = 50  # unknown machines whose ssh is tried
SSH_TIMEOUT = 900.0  # seconds after the start of a boot


class NodeStage(IntEnum):
    """The stages in their order; STAGES has their names."""

    DHCP = 0
    FIRMWARE = 1
    IPXE = 2
    KERNEL = 3
    ROOT = 4
    SSH = 5

    @property
    def title(self) -> str:
        return STAGES[self]


@dataclass(frozen=True)
class StageEvent:
    """A stage that a node has reached, `seconds` into its boot; or `failed`, the failed stage.

    `node` is its MAC address, or its IP address if that is unknown.
    """

    node: str
    stage: NodeStage
    seconds: float
    detail: str = ""
    failed: str = ""


@dataclass
class BootProgress:
    node: str
    start: float
    stage: NodeStage = NodeStage.DHCP
    address: str = ""
    times: dict[NodeStage, float] = field(default_factory=dict)


@dataclass
class Talk:
    """What a client said about itself in one DHCP transaction."""

    vendor: str = ""
    user: str = ""

    def hear(self, words: str) -> bool:
        """Whether a line of the transaction is about a class of the client; keeps what it says."""
        told = TOLD.match(words)
        if told:
            setattr(self, "vendor" if told[1] == "vendor class" else "user", told[2])
        return told is not None

    @property
    def is_ipxe(self) -> bool:
        return "iPXE" in self.user

    @property
    def architecture(self) -> int | None:
        """The number in the vendor class of a network boot; None for other clients."""
        found = ARCHITECTURE.match(self.vendor)
        return int(found[1]) if found else None


class BootWatch:
    """Turns the daemons' lines into events; `clock` returns seconds.

    `is_node` says whether a MAC address is in nodes.yaml.
    """

    def __init__(
        self, clock: Callable[[], float], is_node: Callable[[str], bool] = lambda _: False
    ) -> None:
        self.clock = clock
        self.is_node = is_node
        self.boots = Remembered[BootProgress](MOST_BOOTS, lambda mac, _: is_node(mac))
        # Address -> MAC
        self.owners = Remembered[str](MOST_OWNERS, lambda _, mac: is_node(mac))
        self.talks = Remembered[Talk](MOST_TALKS)
        # MAC -> architecture; the reader clears it
        self.architectures = Remembered[int](MOST_CLIENTS, lambda mac, _: is_node(mac))

    def hear(self, line: str) -> list[StageEvent]:
        """The events of a line of dnsmasq or nginx."""
        if talk := DHCP_LINE.match(line):
            return self.hear_dhcp(talk[1], talk[2])
        if sent := SENT.match(line):
            return self.reach(self.owner(sent[2]), NodeStage.FIRMWARE, sent[1])
        if request := REQUEST.match(line):
            return self.hear_request(request[1], int(request[2]), request[3])
        return []

    def hear_dhcp(self, number: str, words: str) -> list[StageEvent]:
        """A line of a DHCP transaction; a client's classes are logged before its request."""
        talk = self.talks.setdefault(number, Talk())
        if talk.hear(words):
            return []
        if ack := ACK.match(words):
            return self.hear_ack(ack[2], ack[1], talk)
        if request := DHCP_REQUEST.match(words):
            return self.hear_dhcp_request(request[2], request[1] or "", talk)
        return []

    def hear_dhcp_request(self, mac: str, address: str, talk: Talk) -> list[StageEvent]:
        """A request of a client; a boot begins with the first request of its firmware."""
        if talk.architecture is None:
            return []
        if address:
            self.assign(address, mac)
        boot = self.boots.get(mac)
        first_stage = NodeStage.KERNEL if talk.is_ipxe else NodeStage.FIRMWARE
        if boot is None or boot.stage >= first_stage:
            self.begin(mac)
        if not talk.is_ipxe:
            self.architectures[mac] = talk.architecture
        return []

    def hear_ack(self, mac: str, address: str, talk: Talk) -> list[StageEvent]:
        self.assign(address, mac)
        if talk.architecture is None or mac not in self.boots:
            return []
        return self.reach(mac, NodeStage.DHCP, address)

    def hear_request(self, address: str, status: int, uri: str) -> list[StageEvent]:
        request = parse_request(uri)
        path = request.path
        if path.startswith("/report"):
            return self.hear_report(address, request.words)
        if status not in (200, 206):
            return []
        # A missing file means nothing: a machine requests one for each of its NICs.
        if owner := re.match(rf"/nodes/({EITHER_MAC})/", path):
            self.assign(address, owner[1].replace("-", ":"))
        if path == "/boot.ipxe":
            return self.reach(self.owner(address), NodeStage.IPXE, address)
        if path.startswith("/ipxe/"):
            return self.reach(self.owner(address), NodeStage.FIRMWARE, path.removeprefix("/ipxe/"))
        if path.endswith(f"/{KERNEL}"):
            release = path.removesuffix(f"/{KERNEL}").removeprefix("/releases/")
            return self.reach(self.owner(address), NodeStage.KERNEL, release)
        return []

    def hear_report(self, address: str, told: Mapping[str, str]) -> list[StageEvent]:
        """A stage that a node's initrd reports, as in docs/netboot-root.md."""
        stage = told.get("stage", "")
        mac = told.get("node", "").lower()
        if re.fullmatch(EITHER_MAC, mac):
            self.assign(address, mac.replace("-", ":"))
        node = self.owner(address)
        if stage == "switch-root":
            return self.reach(node, NodeStage.ROOT)
        if stage == "failed" and is_host(node):
            boot = self.boots.get(node) or self.begin(node)
            at = told.get("at", "?")
            return [StageEvent(node, boot.stage, self.clock() - boot.start, failed=at)]
        return []

    def logged_in(self, node: str) -> list[StageEvent]:
        return self.reach(node, NodeStage.SSH)

    def assign(self, address: str, mac: str) -> None:
        """Assign an address to a MAC, with what was recorded for the address so far."""
        if not is_host(address):
            return
        self.owners.pop(address, None)
        self.owners[address] = mac
        early = self.boots.pop(address, None)
        if early and mac not in self.boots:
            early.node = mac
            self.boots[mac] = early
        if mac in self.boots:
            self.boots[mac].address = address

    def owner(self, address: str) -> str:
        return self.owners.get(address, address)

    def begin(self, node: str) -> BootProgress:
        self.boots.pop(node, None)
        boot = BootProgress(node, self.clock(), address="" if ":" in node else node)
        self.boots[node] = boot
        return boot

    def reach(self, node: str, stage: NodeStage, detail: str = "") -> list[StageEvent]:
        """Record a stage of a node; returns an event if it is new in this boot."""
        if not is_host(node):
            return []
        boot = self.boots.get(node)
        if boot is None or (stage is NodeStage.IPXE and boot.stage >= NodeStage.KERNEL):
            boot = self.begin(node)
        if stage in boot.times or stage < boot.stage:
            return []
        boot.stage = stage
        boot.times[stage] = self.clock() - boot.start
        return [StageEvent(node, stage, boot.times[stage], detail)]

    def awaiting_ssh(self) -> list[BootProgress]:
        """Boots that have their root and an address, and may soon answer to ssh.

        All those of nodes.yaml, and a limited number of others, which may be forged.
        """
        waiting = [
            boot
            for boot in self.boots.values()
            if boot.stage is NodeStage.ROOT
            and boot.address
            and self.clock() - boot.start < SSH_TIMEOUT
        ]
        strangers = [boot for boot in waiting if not self.is_node(boot.node)]
        return [
            *(boot for boot in waiting if self.is_node(boot.node)),
            *strangers[-MOST_STRANGERS:],
        ]


def is_host(text: str) -> bool:
    """Whether text is a MAC address, or a valid IP address of a machine."""
    if re.fullmatch(EITHER_MAC, text):
        return True
    try:
        address = IPv4Address(text)
    except ValueError:
        return False
    return not (
        address.is_loopback or address.is_multicast or address.is_unspecified or address.is_reserved
    )
