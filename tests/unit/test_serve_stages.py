# SPDX-License-Identifier: Apache-2.0
"""How far a boot is, from lines as dnsmasq and nginx print them."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator

from imagebuilder.nodes.types import Node, Nodes
from imagebuilder.serve.show import Screen
from imagebuilder.serve.stages import (
    MOST_BOOTS,
    MOST_CLIENTS,
    MOST_OWNERS,
    MOST_STRANGERS,
    MOST_TALKS,
    BootWatch,
    NodeStage,
    StageEvent,
    is_host,
)
from imagebuilder.ui import Ui
from tests.sampling import times

MAC, ADDRESS = "52:54:00:77:00:01", "10.77.0.11"
FIRMWARE = f"""\
dnsmasq-dhcp[7]: 11 available DHCP range: 10.77.0.128 -- 10.77.0.254
dnsmasq-dhcp[7]: 11 vendor class: PXEClient:Arch:00007:UNDI:003016
dnsmasq-dhcp[7]: 11 DHCPDISCOVER(br0) {MAC}
dnsmasq-dhcp[7]: 11 DHCPOFFER(br0) {ADDRESS} {MAC}
dnsmasq-dhcp[7]: 11 vendor class: PXEClient:Arch:00007:UNDI:003016
dnsmasq-dhcp[7]: 11 DHCPREQUEST(br0) {ADDRESS} {MAC}
dnsmasq-dhcp[7]: 11 DHCPACK(br0) {ADDRESS} {MAC} n1
dnsmasq-tftp[7]: sent /srv/netboot/tftp/ipxe.efi to {ADDRESS}
""".splitlines()
IPXE = f"""\
dnsmasq-dhcp[7]: 12 vendor class: PXEClient:Arch:00007:UNDI:003010
dnsmasq-dhcp[7]: 12 user class: iPXE
dnsmasq-dhcp[7]: 12 DHCPDISCOVER(br0) {MAC}
dnsmasq-dhcp[7]: 12 DHCPACK(br0) {ADDRESS} {MAC} n1
{ADDRESS} 200 4000 0.000 /boot.ipxe
{ADDRESS} 200 400 0.000 /nodes/52-54-00-77-00-01/boot.ipxe
""".splitlines()
SYSTEM = f"""\
{ADDRESS} 200 9000000 0.100 /releases/generic/7/vmlinuz
{ADDRESS} 200 40000000 0.400 /releases/generic/7/initrd.img
dnsmasq-dhcp[7]: 13 vendor class: dracut
dnsmasq-dhcp[7]: 13 DHCPDISCOVER(br0) {MAC}
dnsmasq-dhcp[7]: 13 DHCPACK(br0) {ADDRESS} {MAC} n1
{ADDRESS} 204 0 0.000 /report/generic/7?stage=root&uptime=9.1&node={MAC}
{ADDRESS} 204 0 0.000 /report/generic/7?stage=switch-root&uptime=12.1&node={MAC}
""".splitlines()


class Clock:
    """A second passes whenever it is looked at."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def hear(progress: BootWatch, lines: list[str]) -> list[StageEvent]:
    """The events of many lines."""
    return [event for line in lines for event in progress.hear(line)]


def test_a_question_after_another_nic_that_is_nobodys_changes_nothing() -> None:
    progress = BootWatch(Clock())
    asked = f"{ADDRESS} 404 146 0.000 /nodes/52-54-00-77-00-02/boot.ipxe"
    events = hear(progress, [*FIRMWARE, *IPXE[:-1], asked, *SYSTEM])
    assert {event.node for event in events} == {MAC}


def test_a_boot_goes_through_its_stages_in_order() -> None:
    progress = BootWatch(Clock())
    events = hear(progress, FIRMWARE + IPXE + SYSTEM)
    (boot,) = progress.awaiting_ssh()
    assert boot.address == ADDRESS
    events += progress.logged_in(boot.node)
    assert [event.stage for event in events] == list(NodeStage)
    assert {event.node for event in events} == {MAC}
    assert [event.seconds for event in events] == sorted(event.seconds for event in events)
    assert events[1].detail == "ipxe.efi"
    assert events[3].detail == "generic/7"
    assert progress.awaiting_ssh() == []


def test_a_nic_with_ipxe_in_it_has_no_firmware_stage() -> None:
    events = hear(BootWatch(Clock()), IPXE + SYSTEM)
    assert [event.stage for event in events] == [
        NodeStage.DHCP, NodeStage.IPXE, NodeStage.KERNEL, NodeStage.ROOT,
    ]  # fmt: skip


def test_the_next_boot_begins_anew() -> None:
    progress = BootWatch(Clock())
    first = hear(progress, FIRMWARE + IPXE + SYSTEM)
    second = hear(progress, FIRMWARE + IPXE + SYSTEM)
    assert [event.stage for event in second] == [event.stage for event in first]
    assert second[0].seconds < first[-1].seconds


def test_a_boot_that_is_given_up_begins_anew_too() -> None:
    progress = BootWatch(Clock())
    hear(progress, FIRMWARE)
    assert [event.stage for event in hear(progress, FIRMWARE)] == [
        NodeStage.DHCP,
        NodeStage.FIRMWARE,
    ]


def test_beside_a_router_a_nodes_files_tell_whose_address_it_is() -> None:
    lines = [
        "dnsmasq-dhcp[7]: 5 vendor class: PXEClient:Arch:00007:UNDI:003016",
        f"dnsmasq-dhcp[7]: 5 PXE(br0) {MAC} proxy",
        f"dnsmasq-tftp[7]: sent /srv/netboot/tftp/ipxe.efi to {ADDRESS}",
        *IPXE[-2:],
        *SYSTEM,
    ]
    events = hear(BootWatch(Clock()), lines)
    assert [event.stage for event in events][-2:] == [NodeStage.KERNEL, NodeStage.ROOT]
    assert events[-1].node == MAC


def test_a_failure_says_where() -> None:
    progress = BootWatch(Clock())
    hear(progress, FIRMWARE + IPXE + SYSTEM[:2])
    (event,) = progress.hear(f"{ADDRESS} 204 0 0.0 /report/g/7?stage=failed&at=root&node={MAC}")
    assert (event.node, event.failed, event.stage) == (MAC, "root", NodeStage.KERNEL)


def test_a_laptop_on_the_wire_is_no_node() -> None:
    lines = [
        "dnsmasq-dhcp[7]: 5 vendor class: MSFT 5.0",
        f"dnsmasq-dhcp[7]: 5 DHCPDISCOVER(br0) {MAC}",
        f"dnsmasq-dhcp[7]: 5 DHCPACK(br0) {ADDRESS} {MAC} laptop",
    ]
    progress = BootWatch(Clock())
    assert hear(progress, lines) == []
    assert progress.boots == {}


def test_what_asks_for_a_file_is_known_by_its_architecture() -> None:
    progress = BootWatch(Clock())
    hear(progress, FIRMWARE)
    assert progress.architectures == {MAC: 7}


REAL = [
    *FIRMWARE,
    *IPXE,
    *SYSTEM,
    f"dnsmasq-dhcp[7]: 5 PXE(br0) {MAC} proxy",
    f"dnsmasq-dhcp[7]: 5 DHCPREQUEST(br0) {ADDRESS} {MAC}",
    f"{ADDRESS} 204 0 0.0 /report/g/7?stage=failed&at=root&node={MAC}",
    f"{ADDRESS} 200 0 0.0 /ipxe/ipxe.efi",
    f"{ADDRESS} 400 150 0.000 //[",
    '2026/11/22 19:00:00 [error] 7#7: *1 access forbidden by rule, request: "GET //[ HTTP/1.0"',
]
SPITE = "[]/?#&=%:@-. 0129afAF\x00\x1b\x7f\x9b\u0663\u202e\u2028\ud800\uffff字"
LINES = times(80_000, 300_000)


def spoil(line: str, dice: random.Random) -> str:
    """A line with some of it gone, doubled, of another line, or in spite."""
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(len(line) + 1)
        end = at + dice.choice((0, 0, 1, 2, 5, 30))
        other = dice.choice(REAL)
        put = dice.choice(
            ("", dice.choice(SPITE), dice.choice(SPITE) * 9, other[dice.randrange(60) :])
        )
        line = line[:at] + put + line[end:]
    return line


def flood(many: int, dice: random.Random) -> Iterator[str]:
    """Lines as strangers would have the daemons print them: of many machines, most of them spoilt.

    Each third one is whole, so that what is remembered would grow if it could.
    """
    for number in range(many):
        mac = f"52:54:{number.to_bytes(4).hex(':')}"
        address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        line = dice.choice(REAL).replace(MAC, mac).replace(ADDRESS, address)
        line = line.replace("]: 1", f"]: {number // 100}", 1)
        yield line if number % 3 == 0 else spoil(line, dice)


def test_no_line_ends_the_watch_and_memory_has_an_end() -> None:
    stream = io.StringIO()
    screen = Screen(Ui(stream, verbose=True), Nodes(nodes=(Node("n1", (MAC,), "generic"),)))
    progress = BootWatch(lambda: 0.0, screen.is_node)
    hear(progress, FIRMWARE + IPXE + SYSTEM)
    most_asked = 0
    for number, line in enumerate(flood(LINES, random.Random(12))):
        screen.line(("dnsmasq", "nginx")[number % 2], line)
        for event in progress.hear(line):
            assert is_host(event.node)
            screen.event(event, progress.boots[event.node].times)
        most_asked = max(most_asked, len(progress.architectures))
        if number % 5000 == 0:
            screen.turn()
            assert {is_host(boot.address) for boot in progress.awaiting_ssh()} <= {True}
    assert len(progress.boots) == MOST_BOOTS
    assert len(progress.owners) == MOST_OWNERS
    assert len(progress.talks) == MOST_TALKS
    assert most_asked == MOST_CLIENTS
    assert all(line.isprintable() for line in stream.getvalue().split("\n"))
    assert MAC in progress.boots  # a node is not forgotten for strangers


def test_of_strangers_only_some_are_asked_for_ssh() -> None:
    progress = BootWatch(Clock(), {MAC}.__contains__)
    hear(progress, FIRMWARE + IPXE + SYSTEM)
    for number in range(300):
        address = f"10.77.1.{number}" if number < 256 else f"10.77.2.{number - 256}"
        progress.hear(f"{address} 204 0 0.000 /report/g/7?stage=switch-root")
    waiting = progress.awaiting_ssh()
    assert waiting[0].node == MAC
    assert len(waiting) == 1 + MOST_STRANGERS


def test_what_another_daemon_quotes_is_not_taken_for_dnsmasqs() -> None:
    progress = BootWatch(Clock(), {MAC}.__contains__)
    error = '2026/11/22 19:00:00 [error] 7#7: *1 "GET /{}" failed'
    quoted = [error.format(line) for line in FIRMWARE + IPXE + SYSTEM]
    assert hear(progress, quoted) == []
    assert not progress.owners


def test_no_address_is_taken_that_no_machine_has() -> None:
    progress = BootWatch(Clock())
    for address in (
        "1.2.3.4.5",
        "1..2",
        "999.1.1.1",
        "127.0.0.1",
        "224.0.0.1",
        "0.0.0.0",
        "evil.example",
    ):
        hear(progress, [FIRMWARE[1], f"dnsmasq-dhcp[7]: 11 DHCPREQUEST(br0) {address} {MAC}"])
        progress.hear(f"dnsmasq-tftp[7]: sent /srv/netboot/tftp/ipxe.efi to {address}")
        progress.hear(f"{address} 204 0 0.000 /report/g/7?stage=switch-root")
    assert not progress.owners
    assert progress.awaiting_ssh() == []


def test_a_person_sees_names_and_times_and_no_escapes() -> None:
    stream = io.StringIO()
    node = Node("n1", (MAC,), "generic")
    screen = Screen(Ui(stream), Nodes(nodes=(node,)))
    progress = BootWatch(Clock())
    for event in [*hear(progress, FIRMWARE + IPXE + SYSTEM), *progress.logged_in(MAC)]:
        screen.event(event, progress.boots[event.node].times)
    screen.event(StageEvent(MAC, NodeStage.ROOT, 3.0, failed="\x1b[2Jroot"), {})
    for line in FIRMWARE:
        screen.line("dnsmasq", line)
    screen.line("dnsmasq", "dnsmasq: failed to \x1b[31mread")
    said = stream.getvalue().splitlines()
    assert said[0].split()[:3] == ["n1", "DHCP", "1.0"]
    assert said[5].startswith("n1                 ssh")
    assert "kernel" in said[5]
    assert "FAILED in \\x1b[2Jroot" in said[6]
    assert said[7:] == ["dnsmasq | dnsmasq: failed to \\x1b[31mread"]
