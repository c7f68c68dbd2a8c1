# SPDX-License-Identifier: Apache-2.0
"""Who has a port, from what ss(8) prints."""

from __future__ import annotations

import pytest

from imagebuilder.serve.ports import (
    Holder,
    Port,
    find_holder,
    parse_holders,
    parse_unit,
    port_faults,
)

SHOWN = """\
udp   UNCONN 0      0      127.0.0.53%lo:53         0.0.0.0:*    users:(("systemd-resolve",pid=611,fd=13))
udp   UNCONN 0      0      0.0.0.0%virbr0:67        0.0.0.0:*    users:(("dnsmasq",pid=1290,fd=3))
udp   UNCONN 0      0            0.0.0.0:69         0.0.0.0:*
tcp   LISTEN 0      511          0.0.0.0:80         0.0.0.0:*    users:(("nginx",pid=7,fd=6),("nginx",pid=6,fd=6))
tcp   LISTEN 0      128        127.0.0.1:2049       0.0.0.0:*    users:(("x",pid=9,fd=3))
tcp   LISTEN 0      128             [::]:111           [::]:*    users:(("rpcbind",pid=5,fd=3))
tcp   LISTEN 0      4096 [::ffff:10.0.0.1]:20048       *:*    users:(("ganesha.nfsd",pid=4,fd=12))
tcp   LISTEN 0      4096 [::ffff:10.0.0.2]:20049       *:*    users:(("ganesha.nfsd",pid=4,fd=13))
tcp   LISTEN 0      128                *:8080             *:*    users:(("java",pid=8,fd=3))
raw   UNCONN 0      0                  *:icmp             *:*
"""  # noqa: E501 - as it is printed


def test_lines_are_understood() -> None:
    holders = parse_holders(SHOWN)
    assert len(holders) == 9
    assert holders[0] == Holder("udp", 53, "127.0.0.53", "lo", "systemd-resolve", 611)
    assert holders[2] == Holder("udp", 69, "0.0.0.0")
    assert holders[3].pid == 7


@pytest.mark.parametrize(
    ("protocol", "number", "pid"),
    [
        ("udp", 53, None),  # elsewhere
        ("udp", 67, None),  # on another wire
        ("udp", 69, 0),  # somebody's, of whom nothing is known
        ("tcp", 80, 7),
        ("tcp", 2049, None),
        ("tcp", 111, 5),
        ("tcp", 20048, 4),  # at an address of IPv4, by a socket of IPv6
        ("tcp", 20049, None),
        ("tcp", 8080, 8),
        ("udp", 80, None),  # another protocol
    ],
)
def test_only_who_is_in_the_way_counts(protocol: str, number: int, pid: int | None) -> None:
    holders = parse_holders(SHOWN)
    found = find_holder(Port(protocol, number, "it"), "10.0.0.1", "eth0", holders)
    assert (found.pid if found else None) == pid


def test_the_holder_and_what_to_do_are_said() -> None:
    ports = (Port("tcp", 80, "HTTP"), Port("udp", 69, "TFTP"), Port("tcp", 8080, "HTTP"))
    faults = port_faults(ports, "10.0.0.1", "eth0", parse_holders(SHOWN))
    assert [fault.where for fault in faults] == ["tcp port 80", "udp port 69", "tcp port 8080"]
    assert faults[0].what == "is in use by nginx (process 7); HTTP needs it at 10.0.0.1"
    assert "end process 7" in faults[0].hint
    assert "a program of another user" in faults[1].what
    assert "see ps -f 8" in faults[2].hint


@pytest.mark.parametrize(
    ("cgroups", "unit"),
    [
        ("0::/system.slice/imagebuilder-nginx.service\n", "imagebuilder-nginx.service"),
        ("0::/system.slice/system-getty.slice/getty@tty1.service\n", "getty@tty1.service"),
        ("12:pids:/system.slice/nginx.service\n0::/\n", "nginx.service"),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope\n", ""),
        ("0::/\n", ""),
    ],
)
def test_the_hint_names_the_unit_that_a_process_is_of(cgroups: str, unit: str) -> None:
    assert parse_unit(cgroups) == unit
