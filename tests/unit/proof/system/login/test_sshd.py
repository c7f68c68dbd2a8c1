# SPDX-License-Identifier: Apache-2.0
"""Settings of sshd that come second, and programs that it cannot start."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.proof.privileges.login import SshdSettings, ask_sshd
from imagebuilder.proof.system.login.sshd import prove_sshd_order, prove_sshd_programs
from tests.unit.proof.trees import Program, Sandbox, make_tree, subject

FOLDER = "/etc/ssh/sshd_config.d"
MAIN = "Include /etc/ssh/sshd_config.d/*.conf\nKbdInteractiveAuthentication no\nUsePAM yes\n"


def order(tmp_path: Path, files: dict[str, str], main: str = MAIN) -> list[str]:
    tree = {f"{FOLDER}/{name}.conf": text for name, text in files.items()}
    root = make_tree(tmp_path, {"/etc/ssh/sshd_config": main, **tree})
    return [finding.what for finding in prove_sshd_order(subject(root))]


def test_a_stricter_value_that_comes_second_is_a_warning(tmp_path: Path) -> None:
    (what,) = order(
        tmp_path,
        {"50-imagebuilder": "PermitRootLogin prohibit-password\n", "90-site": "PermitRootLogin=no"},
    )
    assert what.startswith(f"PermitRootLogin=no of {FOLDER}/90-site.conf has no effect")
    assert what.endswith(f"PermitRootLogin prohibit-password of {FOLDER}/50-imagebuilder.conf")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("PasswordAuthentication yes", "PasswordAuthentication no"),
        ("ChallengeResponseAuthentication yes", "KbdInteractiveAuthentication no"),
        ("MaxAuthTries 6", "MaxAuthTries 3"),
        ("Ciphers aes256-ctr", "Ciphers chacha20-poly1305@openssh.com"),
    ],
)
def test_so_are_other_ones(tmp_path: Path, first: str, second: str) -> None:
    assert len(order(tmp_path, {"10-a": first, "20-b": f"{second}\n"})) == 1


@pytest.mark.parametrize(
    "files",
    [
        {"10-site": "PermitRootLogin no\n", "50-imagebuilder": "PermitRootLogin yes\n"},
        # The base overlay's file is made to be replaced.
        {"10-site": "PasswordAuthentication yes", "50-imagebuilder": "PasswordAuthentication no"},
        {"10-a": "PermitRootLogin without-password", "20-b": "PermitRootLogin prohibit-password"},
        {"10-a": "X11Forwarding yes", "20-b": "Match User guest\n  X11Forwarding no"},
        {"10-a": "KbdInteractiveAuthentication yes"},
        {"10-a": "LogLevel VERBOSE", "20-b": "LogLevel INFO"},
    ],
)
def test_files_of_the_node_and_of_some_users_are_no_problem(
    tmp_path: Path, files: dict[str, str]
) -> None:
    assert order(tmp_path, files) == []


def test_a_line_at_the_end_of_the_main_file_comes_second(tmp_path: Path) -> None:
    (what,) = order(tmp_path, {"10-a": "PermitRootLogin yes"}, f"{MAIN}PermitRootLogin no\n")
    assert "PermitRootLogin no of /etc/ssh/sshd_config has no effect" in what


def programs(tmp_path: Path, values: dict[str, str]) -> list[str]:
    root = make_tree(tmp_path, {"/usr/lib/openssh/sftp-server": Program()})
    answers = [SshdSettings(name, values) for name in ("root", "compute")]
    return [finding.what for finding in prove_sshd_programs(subject(root), answers)]


def test_a_missing_program_of_sshd_is_a_warning_once(tmp_path: Path) -> None:
    (sftp,) = programs(tmp_path, {"subsystem sftp": "sftp /usr/libexec/openssh/sftp-server"})
    assert sftp.startswith("sshd cannot start /usr/libexec/openssh/sftp-server")
    assert "sftp, scp" in sftp
    (keys,) = programs(tmp_path, {"authorizedkeyscommand": "/usr/bin/sss_ssh_authorizedkeys %u"})
    assert "let nobody in" in keys


def test_a_program_that_is_there_or_inside_of_sshd_is_none(tmp_path: Path) -> None:
    values = {
        "subsystem sftp": "sftp /usr/lib/openssh/sftp-server", "forcecommand": "internal-sftp",
        "authorizedkeyscommand": "none",
    }  # fmt: skip
    assert programs(tmp_path, values) == []
    assert programs(tmp_path, {"subsystem sftp": "sftp internal-sftp"}) == []


def test_subsystems_are_read_by_their_name() -> None:
    said = "account root\npasswordauthentication no\nsubsystem sftp /a\nsubsystem netconf /b\n"
    (settings,) = ask_sshd(Sandbox({"sh -c": said}), [("203.0.113.1", "root")])
    assert settings.values["subsystem sftp"] == "sftp /a"
    assert settings.values["subsystem netconf"] == "netconf /b"
