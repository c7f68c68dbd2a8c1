# SPDX-License-Identifier: Apache-2.0
"""What is said of sockets that others than nodes reach."""

from __future__ import annotations

from ipaddress import IPv4Interface

from imagebuilder.doctor.finding import Severity
from imagebuilder.doctor.listening import examine_listeners
from imagebuilder.serve.interface import Interface
from imagebuilder.serve.ports import Holder

WIRE = Interface("lan0", "52:54:00:77:00:01", IPv4Interface("10.77.0.1/24"))
SERVICES = {
    ("tcp", 111): "rpcbind", ("udp", 111): "rpcbind",
    ("tcp", 4001): "mountd", ("tcp", 4002): "mountd", ("udp", 4001): "mountd",
}  # fmt: skip


def test_ports_of_one_purpose_are_one_warning() -> None:
    holders = [Holder(protocol, number, "0.0.0.0") for protocol, number in SERVICES]
    rpcbind, mountd = examine_listeners(WIRE, holders, SERVICES)
    assert (rpcbind.level, mountd.level) == (Severity.WARNING, Severity.WARNING)
    assert rpcbind.what.startswith("tcp port 111 and udp port 111, rpcbind: listens on every")
    assert mountd.what.startswith("tcp ports 4001, 4002 and udp port 4001, mountd: listens on")
    assert mountd.fix.startswith("let only lan0 reach tcp ports 4001, 4002 and udp port 4001 in")


def test_what_only_nodes_reach_does_not_hide_what_others_do() -> None:
    holders = [
        Holder("tcp", 4001, "10.77.0.1"), Holder("tcp", 4002, "0.0.0.0"),
        Holder("udp", 4001, "127.0.0.1"),
    ]  # fmt: skip
    found = examine_listeners(WIRE, holders, SERVICES)
    assert [(finding.level, finding.what.partition(",")[0]) for finding in found] == [
        (Severity.OK, "tcp port 4001"), (Severity.WARNING, "tcp port 4002"),
    ]  # fmt: skip
