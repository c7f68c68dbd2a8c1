# SPDX-License-Identifier: Apache-2.0
"""Files of a site that nobody reads, runs or accepts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from imagebuilder.families.shipped import ShippedFile
from imagebuilder.image.proof import Level
from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system.files.needed import prove_modes
from imagebuilder.proof.system.files.unread import prove_read
from tests.unit.proof.trees import Content, Link, Program, make_tree, running, subject

PROGRAMS: Mapping[str, Content] = {
    path: Program()
    for path in ("/usr/bin/sudo", "/usr/sbin/cron", "/usr/sbin/sshd", "/usr/sbin/netplan")
}


def prepare(root: Path, files: Mapping[str, Content]) -> Subject:
    given = subject(make_tree(root, {**PROGRAMS, **files}))
    given.__dict__["shipped"] = {}
    return given


NOTHING = Startup(frozenset(), {}, {}, ())


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/etc/sudoers.d/50-me.conf", "sudo reads only names without a dot, and none that end"),
        ("/etc/cron.d/clean.cron", "cron reads only names of letters, digits, - and _"),
        ("/etc/cron.daily/clean.sh", "cron reads only names of letters, digits, - and _"),
        ("/etc/sysctl.d/90-memory", "systemd-sysctl reads only names that end with .conf"),
        ("/etc/modprobe.d/nouveau", "modprobe reads only names that end with .conf"),
        ("/usr/lib/tmpfiles.d/models", "systemd-tmpfiles reads only names that end with .conf"),
        ("/etc/udev/rules.d/70-card.rule", "udev reads only names that end with .rules"),
        ("/etc/profile.d/rocm", "a login shell reads only names that end with .sh"),
        ("/etc/ssh/sshd_config.d/10-keys", "sshd reads only names that end with .conf"),
        ("/etc/security/limits.d/memlock", "pam_limits reads only names that end with .conf"),
        ("/etc/ld.so.conf.d/rocm", "ldconfig reads only names that end with .conf"),
        ("/etc/systemd/system/fetch.servce", "systemd reads only names that end with the type"),
        ("/etc/systemd/system/a.service.d/10-env", "systemd reads only names that end with .conf"),
        ("/etc/systemd/resolved.conf.d/dns", "systemd reads only names that end with .conf"),
        ("/etc/systemd/network/10-lan.conf", "networkd reads only names that end with .network"),
        ("/etc/netplan/50-lan.yml", "netplan reads only names that end with .yaml"),
        ("/etc/OpenCL/vendors/amd.txt", "OpenCL's loader reads only names that end with .icd"),
    ],
)
def test_a_name_that_nobody_expects(path: str, why: str, tmp_path: Path) -> None:
    (found,) = prove_read(running(prepare(tmp_path, {path: Program()}), NOTHING))
    assert found.level is Level.FAULT
    assert found.what.startswith(f"{path} has no effect: {why}")


@pytest.mark.parametrize(
    "path",
    [
        "/etc/sudoers.d/50-me",
        "/etc/sudoers.d/README",
        "/etc/cron.daily/clean",
        "/etc/cron.d/.placeholder",
        "/etc/sysctl.d/90-memory.conf",
        "/etc/sysctl.d/90-memory.conf.disabled",
        "/etc/sysctl.d/README.sysctl",
        "/etc/udev/rules.d/70-card.rules",
        "/etc/udev/rules.d/70-card.rules~",
        "/etc/profile.d/rocm.csh",
        "/etc/systemd/system/a.service",
        "/etc/systemd/system/a@1.service",
        "/etc/systemd/system/a.service.d/10-env.conf",
        "/etc/systemd/system/multi-user.target.wants/a.service",
        "/etc/systemd/system.conf.d/limits.conf",
        "/etc/systemd/network/10-lan.network",
        "/etc/systemd/network/10-lan.network.d/mtu.conf",
        "/etc/systemd/system-preset/10-site.preset",
    ],
)
def test_names_that_are_read(path: str, tmp_path: Path) -> None:
    assert list(prove_read(running(prepare(tmp_path, {path: Program()}), NOTHING))) == []


def test_links_to_nothing_and_files_of_packages_count_as_meant(tmp_path: Path) -> None:
    given = prepare(tmp_path, {"/etc/sysctl.d/a": Link("/dev/null"), "/etc/sysctl.d/b": ""})
    given.__dict__["shipped"] = {"/etc/sysctl.d/b": ShippedFile("b")}
    assert list(prove_read(running(given, NOTHING))) == []


@pytest.mark.parametrize(
    ("path", "level", "what"),
    [
        ("/etc/cron.d/clean", Level.FAULT, "never runs: the image has no cron"),
        ("/etc/cron.daily/clean", Level.FAULT, "never runs: the image has no cron"),
        ("/var/spool/cron/crontabs/me", Level.FAULT, "never runs: the image has no cron"),
        ("/etc/netplan/50-lan.yaml", Level.WARNING, "has no effect: the image has no netplan"),
        ("/etc/docker/daemon.json", Level.WARNING, "has no effect: the image has no dockerd"),
    ],
)
def test_a_program_that_is_not_there(path: str, level: Level, what: str, tmp_path: Path) -> None:
    given = subject(make_tree(tmp_path, {path: Program()}))
    given.__dict__["shipped"] = {}
    (found,) = prove_read(running(given, NOTHING))
    assert (found.level, found.what) == (level, f"{path} {what}")


def test_a_job_that_may_not_be_executed(tmp_path: Path) -> None:
    (found,) = prove_read(
        running(prepare(tmp_path, {"/etc/cron.daily/clean": "#!/bin/sh\n"}), NOTHING)
    )
    assert found.what == "/etc/cron.daily/clean never runs: cron starts only executable files"


def test_an_init_script_without_a_unit(tmp_path: Path) -> None:
    files: dict[str, Content] = {
        "/etc/init.d/fetch": Program(),
        "/etc/rc2.d/S01fetch": Link("../init.d/fetch"),
        "/etc/rc3.d/S01fetch": Link("../init.d/fetch"),
        "/etc/rc0.d/K01fetch": Link("../init.d/fetch"),
        "/etc/init.d/other": Program(),
        "/etc/rc2.d/S02other": Link("../init.d/other"),
        "/usr/lib/systemd/system/other.service": "[Service]\n",
    }
    (found,) = prove_read(running(prepare(tmp_path, files), NOTHING))
    assert found.what.startswith("/etc/init.d/fetch never runs: this systemd makes no units")
    make_tree(tmp_path, {"/usr/lib/systemd/system-generators/systemd-sysv-generator": Program()})
    assert list(prove_read(running(prepare(tmp_path, {}), NOTHING))) == []


@pytest.mark.parametrize(
    ("path", "mode", "why"),
    [
        ("/etc/munge/munge.key", 0o644, "munged refuses"),
        ("/etc/sudoers.d/me", 0o446, "sudo refuses"),
        ("/etc/cron.d/clean", 0o664, "cron refuses"),
        ("/etc/ssh/ssh_host_ed25519_key", 0o640, "sshd refuses"),
        ("/root/.ssh/id_ed25519", 0o644, "ssh refuses"),
        ("/etc/ssh/authorized_keys", 0o664, "sshd refuses"),
        ("/etc/ssh/authorized_keys/me", 0o666, "sshd refuses"),
        ("/home/me/.ssh/authorized_keys", 0o620, "sshd refuses"),
        ("/etc/ssh/authorized_keys", 0o644, ""),
        ("/etc/munge/munge.key", 0o400, ""),
        ("/etc/sudoers.d/me", 0o440, ""),
        ("/etc/sudoers.d/me", 0o644, ""),
        ("/etc/cron.d/clean", 0o644, ""),
        ("/root/.ssh/id_ed25519.pub", 0o644, ""),
    ],
)
def test_a_mode_that_a_program_refuses(path: str, mode: int, why: str, tmp_path: Path) -> None:
    given = prepare(tmp_path, {path: "x\n"})
    (tmp_path / path.lstrip("/")).chmod(mode)
    found = [each.what for each in prove_modes(given) if "may" in each.what]
    assert [what.startswith(f"{why} {path}, because users other") for what in found] == (
        [True] if why else []
    )


def test_an_owner_whom_a_program_refuses(tmp_path: Path) -> None:
    key = "/etc/munge/munge.key"
    given = prepare(tmp_path, {key: "x\n", "/etc/passwd": "munge:x:971:971::/:/bin/false\n"})
    (tmp_path / key.lstrip("/")).chmod(0o400)
    (found,) = prove_modes(given)
    assert "and not to munge: it does not start" in found.what
