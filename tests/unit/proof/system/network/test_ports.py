# SPDX-License-Identifier: Apache-2.0
"""Declared ports behind a filter, and in the range of clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.system.network.firewall import (
    is_opened,
    prove_client_ports,
    prove_dropped_ports,
)
from tests.unit.proof.trees import Sandbox, make_tree, running, subject

CHAIN = """table inet filter {{
  chain input {{
    type filter hook input priority filter; policy {};
    ct state established,related accept
    {}
  }}
}}
"""
V4 = """*filter
:INPUT DROP [0:0]
-A INPUT -m state --state RELATED,ESTABLISHED -j ACCEPT
{}
COMMIT
"""


def dropped(tmp_path: Path, rules: str, *listens: str, program: str = "nft") -> list[str]:
    name = "filter.service"
    commands = {"ExecStart": ((f"/usr/sbin/{program}", "-f", "/etc/n.conf"),)}
    startup = Startup(frozenset((name,)), {}, {name: LoadedUnit(name, (), {}, commands)}, ())
    root = make_tree(tmp_path, {"/etc/n.conf": rules})
    return [f.what for f in prove_dropped_ports(running(subject(root, listens=listens), startup))]


def test_a_declared_port_that_no_rule_accepts_is_a_warning(tmp_path: Path) -> None:
    rules = CHAIN.format("drop", "tcp dport 22 accept\n tcp dport 8000 accept")
    (what,) = dropped(tmp_path, rules, "22/tcp", "8080/tcp", "5355/udp")
    assert "sends" not in what
    assert "to 8080/tcp, which the profile declares: no rule of /etc/n.conf" in what
    (what,) = dropped(tmp_path, V4.format("-A INPUT -p tcp --dport 8000 -j ACCEPT"), "8080/tcp",
                      program="iptables-restore")  # fmt: skip
    assert "8080/tcp" in what


@pytest.mark.parametrize(
    "rules",
    [
        "tcp dport { 22, 8080 } accept",
        "tcp dport {\n  22,\n  8000-8100,\n } accept",
        "th dport 8080 accept",
        "tcp dport http-alt accept",
        "tcp dport @api accept",
        "tcp dport $api accept",
        "ip saddr 10.0.0.0/8 accept",
        "tcp dport vmap { 8080 : accept }",
        "tcp dport 8080 jump api",
    ],
)
def test_rules_that_accept_it(rules: str, tmp_path: Path) -> None:
    assert dropped(tmp_path, CHAIN.format("drop", rules), "8080/tcp") == []
    assert dropped(tmp_path, CHAIN.format("accept", ""), "8080/tcp") == []
    assert dropped(tmp_path, CHAIN.format("drop", "")) == []


@pytest.mark.parametrize(
    ("rule", "port", "opens"),
    [
        ("-A INPUT -p tcp -m multiport --dports 80,8080:8090 -j ACCEPT", "8085", True),
        ("-A INPUT -p udp --dport 8080 -j ACCEPT", "8080", False),
        ("-A INPUT -p tcp --dport 8080 -j DROP", "8080", False),
        ("tcp dport 80 accept; tcp dport 8080 drop", "8080", False),
        ("udp dport 1 accept; tcp dport https accept", "443", True),
        ("tcp sport 8080 accept", "8080", False),
    ],
)
def test_ports_of_rules(rule: str, port: str, opens: bool) -> None:  # noqa: FBT001
    assert is_opened(rule, port, "tcp") == opens


@pytest.mark.parametrize(
    ("rule", "is_closed"),
    [
        ("-A ufw-user-input -p tcp --dport 22 -j ACCEPT", True),
        ("-A ufw-user-input -p tcp --dport 8080 -j ACCEPT", False),
        ("-A ufw-user-input -p tcp -m multiport --dports 22,8000:8100 -j ACCEPT", False),
        ("-A ufw-user-input -s 10.0.0.0/8 -j ACCEPT", False),
    ],
)
def test_ports_behind_ufw(rule: str, is_closed: bool, tmp_path: Path) -> None:  # noqa: FBT001
    root = make_tree(
        tmp_path,
        {
            "/etc/ufw/ufw.conf": "ENABLED=yes\n",
            "/etc/default/ufw": 'DEFAULT_INPUT_POLICY="DROP"\n',
            "/etc/ufw/user.rules": f"*filter\n{rule}\nCOMMIT\n",
        },
    )
    given = subject(root, listens=("22/tcp", "8080/tcp", "546/udp"))
    for jobs, told in ((frozenset(("ufw.service",)), is_closed), (frozenset[str](), False)):
        found = [f.what for f in prove_dropped_ports(running(given, Startup(jobs, {}, {}, ())))]
        assert ["ufw drops what other machines send to 8080/tcp" in w for w in found] == [
            True
        ] * told


@pytest.mark.parametrize(
    ("lines", "taken"),
    [
        ("net.ipv4.ip_local_port_range = 1024 65535", "8080/tcp, 9000/tcp"),
        (
            "net.ipv4.ip_local_port_range = 1024\t65535\n"
            "net.ipv4.ip_local_reserved_ports = 8000-8100",
            "9000/tcp",
        ),
        ("net.ipv4.ip_local_port_range = 10000 65535", ""),
        ("net.ipv4.ip_local_port_range = 32768 60999", ""),
        ("net.ipv4.ip_local_port_range = all", ""),
        ("net.ipv4.tcp_tw_reuse = 1", ""),
    ],
)
def test_ports_that_clients_may_take(lines: str, taken: str, tmp_path: Path) -> None:
    run = Sandbox({"systemd-analyze cat-config sysctl.d": f"# /etc/sysctl.d/9.conf\n{lines}\n"})
    given = subject(
        make_tree(tmp_path, {"/etc/x": ""}), run=run,
        listens=("22/tcp", "8080/tcp", "9000/tcp", "50052/tcp"),
    )  # fmt: skip
    found = [finding.what for finding in prove_client_ports(given)]
    assert [f"give {taken} to" in what for what in found] == ([True] if taken else [])
