# SPDX-License-Identifier: Apache-2.0
"""Filters of fail2ban for a name that sshd's sessions no longer have, and those that are right."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.system.login.sshd import prove_bans
from tests.unit.proof.trees import Content, make_tree, running, subject, warnings

FILTER, JAIL = "/etc/fail2ban/filter.d/sshd-site.conf", "/etc/fail2ban/jail.d/site.local"
ENABLED = "[sshd]\nenabled = true\nfilter = sshd-site\n"
OLD = "journalmatch = _COMM=sshd\n"
USERS = "failregex = ^Invalid user \\S* from <HOST>\n"
SESSION = "/usr/lib/openssh/sshd-session"
UNIT = LoadedUnit(
    "fail2ban.service", (), {"Unit Load State": ("loaded",)},
    {"ExecStart": (("/usr/bin/fail2ban-server", "-xf", "start"),)},
)  # fmt: skip


def told(root: Path, files: dict[str, Content], *units: LoadedUnit) -> list[str]:
    asked = subject(make_tree(root, files))
    asked.__dict__["shipped"] = {}
    loaded = {unit.name: unit for unit in units}
    return warnings(prove_bans(running(asked, Startup(frozenset(loaded), {}, loaded, ()))))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (USERS + OLD, "journalmatch = _COMM=sshd"),
        (f"{OLD}{USERS}", "journalmatch = _COMM=sshd"),
        (f"{USERS}journalmatch = SYSLOG_IDENTIFIER=sshd\n", "SYSLOG_IDENTIFIER=sshd"),
        (f"{USERS}journalmatch = _EXE=/usr/sbin/sshd\n", "_EXE=/usr/sbin/sshd"),
        (f"{USERS}journalmatch = _SYSTEMD_UNIT=ssh.service _COMM=sshd\n", "_COMM=sshd"),
        ("_daemon = sshd\nfailregex = ^%(__prefix_line)sInvalid user\n", "_daemon = sshd"),
        # `+` is or: as of fail2ban 0.9.
        (f"{USERS}journalmatch = _SYSTEMD_UNIT=sshd.service + _COMM=sshd\n", ""),
        (f"{USERS}journalmatch = _COMM=sshd + _COMM=sshd-session\n", ""),
        (f"{USERS}journalmatch = _COMM=sshd _COMM=sshd-session\n", ""),
        (f"{USERS}journalmatch = _COMM=sshd\n    _SYSTEMD_UNIT=ssh.service\n", ""),
        (f"{USERS}journalmatch = _COMM=%(_daemon)s\n", ""),
        (f"{USERS}journalmatch = _COMM=vsftpd\n", ""),
        (f"{USERS}# {OLD}", ""),
        ("_daemon = sshd(?:-session)?\nfailregex = ^%(__prefix_line)sInvalid user\n", ""),
        # What the listener says itself.
        (f"failregex = ^drop connection #\\d+ from \\[<HOST>\\]\n{OLD}", ""),
        ("_daemon = sshd\nfailregex = ^%(__prefix_line)sdrop connection\n", ""),
        ("", ""),
    ],
)
def test_filters_for_sessions(text: str, line: str, tmp_path: Path) -> None:
    files: dict[str, Content] = {FILTER: f"[Definition]\n{text}", JAIL: ENABLED, SESSION: ""}
    found = told(tmp_path, files, UNIT)
    assert [line in what for what in found] == ([True] if line else [])


@pytest.mark.parametrize(
    ("path", "jail", "is_told"),
    [
        (FILTER, ENABLED, True),
        (FILTER, "[DEFAULT]\nenabled = yes\n[sshd-site]\nport = ssh\n", True),
        (FILTER, "[sshd-site]\nenabled = true\nfilter = %(__name__)s[mode=normal]\n", True),
        (FILTER, "[sshd-site]\nenabled = false\n", False),
        (FILTER, "[sshd]\nenabled = true\n", False),
        (FILTER, "", False),
        (f"{FILTER}.bak", ENABLED, False),
    ],
)
def test_jails_that_use_a_filter(path: str, jail: str, is_told: bool, tmp_path: Path) -> None:  # noqa: FBT001
    files: dict[str, Content] = {path: f"[Definition]\n{USERS}{OLD}", JAIL: jail, SESSION: ""}
    assert bool(told(tmp_path, files, UNIT)) == is_told


def test_images_without_fail2ban_or_with_an_older_sshd(tmp_path: Path) -> None:
    files: dict[str, Content] = {FILTER: f"[Definition]\n{USERS}{OLD}", JAIL: ENABLED}
    assert told(tmp_path, files, UNIT) == []
    assert told(tmp_path, {SESSION: ""}) == []
