# SPDX-License-Identifier: Apache-2.0
"""How far a boot is, from lines as dnsmasq and nginx print them."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from imagebuilder.nodes.types import Node, Nodes
from imagebuilder.serve.show import Screen
from imagebuilder.serve.stages import Event, Progress, Stage
from imagebuilder.ui import Ui

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


def hear(progress: Progress, lines: list[str]) -> list[Event]:
    """The events of many lines."""
    return [event for line in lines for event in progress.hear(line)]


def test_a_question_after_another_nic_that_is_nobodys_changes_nothing() -> None:
    progress = Progress(Clock())
    asked = f"{ADDRESS} 404 146 0.000 /nodes/52-54-00-77-00-02/boot.ipxe"
    events = hear(progress, [*FIRMWARE, *IPXE[:-1], asked, *SYSTEM])
    assert {event.node for event in events} == {MAC}


def test_a_boot_goes_through_its_stages_in_order() -> None:
    progress = Progress(Clock())
    events = hear(progress, FIRMWARE + IPXE + SYSTEM)
    (boot,) = progress.awaiting_ssh()
    assert boot.address == ADDRESS
    events += progress.logged_in(boot.node)
    assert [event.stage for event in events] == list(Stage)
    assert {event.node for event in events} == {MAC}
    assert [event.seconds for event in events] == sorted(event.seconds for event in events)
    assert events[1].detail == "ipxe.efi"
    assert events[3].detail == "generic/7"
    assert progress.awaiting_ssh() == []


def test_a_nic_with_ipxe_in_it_has_no_firmware_stage() -> None:
    events = hear(Progress(Clock()), IPXE + SYSTEM)
    assert [event.stage for event in events] == [
        Stage.DHCP, Stage.IPXE, Stage.KERNEL, Stage.ROOT,
    ]  # fmt: skip


def test_the_next_boot_begins_anew() -> None:
    progress = Progress(Clock())
    first = hear(progress, FIRMWARE + IPXE + SYSTEM)
    second = hear(progress, FIRMWARE + IPXE + SYSTEM)
    assert [event.stage for event in second] == [event.stage for event in first]
    assert second[0].seconds < first[-1].seconds


def test_a_boot_that_is_given_up_begins_anew_too() -> None:
    progress = Progress(Clock())
    hear(progress, FIRMWARE)
    assert [event.stage for event in hear(progress, FIRMWARE)] == [Stage.DHCP, Stage.FIRMWARE]


def test_beside_a_router_a_nodes_files_tell_whose_address_it_is() -> None:
    lines = [
        "dnsmasq-dhcp[7]: 5 vendor class: PXEClient:Arch:00007:UNDI:003016",
        f"dnsmasq-dhcp[7]: 5 PXE(br0) {MAC} proxy",
        f"dnsmasq-tftp[7]: sent /srv/netboot/tftp/ipxe.efi to {ADDRESS}",
        *IPXE[-2:],
        *SYSTEM,
    ]
    events = hear(Progress(Clock()), lines)
    assert [event.stage for event in events][-2:] == [Stage.KERNEL, Stage.ROOT]
    assert events[-1].node == MAC


def test_a_failure_says_where() -> None:
    progress = Progress(Clock())
    hear(progress, FIRMWARE + IPXE + SYSTEM[:2])
    (event,) = progress.hear(f"{ADDRESS} 204 0 0.0 /report/g/7?stage=failed&at=root&node={MAC}")
    assert (event.node, event.failed, event.stage) == (MAC, "root", Stage.KERNEL)


def test_a_laptop_on_the_wire_is_no_node() -> None:
    lines = [
        "dnsmasq-dhcp[7]: 5 vendor class: MSFT 5.0",
        f"dnsmasq-dhcp[7]: 5 DHCPDISCOVER(br0) {MAC}",
        f"dnsmasq-dhcp[7]: 5 DHCPACK(br0) {ADDRESS} {MAC} laptop",
    ]
    progress = Progress(Clock())
    assert hear(progress, lines) == []
    assert progress.boots == {}


def test_what_asks_for_a_file_is_known_by_its_architecture() -> None:
    progress = Progress(Clock())
    hear(progress, FIRMWARE)
    assert progress.asked == {MAC: 7}


def test_memory_has_an_end() -> None:
    progress = Progress(Clock())
    for number in range(6000):
        progress.hear(f"dnsmasq-dhcp[7]: {number} vendor class: PXEClient:Arch:00000:UNDI:002001")
        mac = f"52:54:00:00:{number // 256:02x}:{number % 256:02x}"
        progress.hear(f"dnsmasq-dhcp[7]: {number} DHCPDISCOVER(br0) {mac}")
    assert len(progress.talks) <= 1000
    assert len(progress.boots) <= 4096


@given(st.lists(st.sampled_from(FIRMWARE + IPXE + SYSTEM) | st.text(max_size=60), max_size=40))
def test_no_lines_in_any_order_are_an_error(lines: list[str]) -> None:
    progress = Progress(Clock())
    for line in lines:
        for event in progress.hear(line):
            assert event.node in progress.boots


def test_a_person_sees_names_and_times_and_no_escapes() -> None:
    stream = io.StringIO()
    node = Node("n1", (MAC,), "generic")
    screen = Screen(Ui(stream), Nodes(nodes=(node,)))
    progress = Progress(Clock())
    for event in [*hear(progress, FIRMWARE + IPXE + SYSTEM), *progress.logged_in(MAC)]:
        screen.event(event, progress.boots[event.node].times)
    screen.event(Event(MAC, Stage.ROOT, 3.0, failed="\x1b[2Jroot"), {})
    for line in FIRMWARE:
        screen.line("dnsmasq", line)
    screen.line("dnsmasq", "dnsmasq: failed to \x1b[31mread")
    said = stream.getvalue().splitlines()
    assert said[0].split()[:3] == ["n1", "DHCP", "1.0"]
    assert said[5].startswith("n1                 ssh")
    assert "kernel" in said[5]
    assert "FAILED in ?[2Jroot" in said[6]
    assert said[7:] == ["dnsmasq | dnsmasq: failed to ?[31mread"]
