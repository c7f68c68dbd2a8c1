# SPDX-License-Identifier: Apache-2.0
"""Rules of logrotate with accounts that do not exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.system.programs.helpers import prove_rotation
from tests.unit.proof.trees import Content, Program, make_tree, running, subject

FILES = {
    "/etc/passwd": "root:x:0:0::/root:/bin/sh\ncompute:x:1000:1000::/:/bin/sh\n",
    "/etc/group": "root:x:0:\nadm:x:4:\ncompute:x:1000:\n",
}
RULE = "/etc/logrotate.d/embed"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("create 0640 compute syslog", "the group syslog"),
        ("create 640 syslog adm", "the account syslog"),
        ("  su embed syslog", "the account embed and the group syslog"),
        ("createolddir 0755 root syslog", "the group syslog"),
        ("create 0640 compute adm", ""),
        ("create 0640", ""),
        ("create", ""),
        ("create 0640 1000 4", ""),
        ("su web web", ""),
        ("# create 0640 compute syslog", ""),
        ("dateext create syslog syslog", ""),
    ],
)
def test_accounts_of_rules(line: str, said: str, tmp_path: Path) -> None:
    rule = f"/var/log/embed/*.log {{\n    daily\n    {line}\n}}\n"
    web = LoadedUnit(
        "web.service", (), {"Unit Load State": ("loaded",), "DynamicUser": ("yes",)}, {}
    )
    startup = Startup(frozenset((web.name,)), {}, {web.name: web}, ())
    tree: dict[str, Content] = {**FILES, RULE: rule, "/usr/sbin/logrotate": Program()}
    given = subject(make_tree(tmp_path, tree))
    given.__dict__["shipped"] = {}
    found = [finding.what for finding in prove_rotation(running(given, startup))]
    assert [f"names {said}, which" in what for what in found] == ([True] if said else [])


def test_without_logrotate_nobody_reads_it(tmp_path: Path) -> None:
    given = subject(make_tree(tmp_path, {**FILES, RULE: "/a {\n create 640 a b\n}\n"}))
    assert list(prove_rotation(running(given, Startup(frozenset(), {}, {}, ())))) == []
