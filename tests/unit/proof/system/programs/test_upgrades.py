# SPDX-License-Identifier: Apache-2.0
"""What upgrades packages of a running node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from imagebuilder.image.proof import Level
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.system.programs.commands import prove_upgrades
from imagebuilder.proof.system.programs.scripts import prove_scripts
from tests.unit.proof.trees import Content, Link, Program, make_tree, running, subject

UNIT = "/etc/systemd/system/a.service"
PERIODIC = "/etc/apt/apt.conf.d/20auto-upgrades"
ON, OFF = (f'APT::Periodic::Unattended-Upgrade "{days}";\n' for days in "10")
UNATTENDED: Mapping[str, Content] = {"/usr/bin/unattended-upgrade": Program()}


def told(root: Path, files: Mapping[str, Content], *words: str) -> list[str]:
    given = subject(make_tree(root, files))
    given.__dict__["shipped"] = {}
    values = {"Unit Load State": ("loaded",)}
    unit = LoadedUnit("a.service", (UNIT,), values, {"ExecStart": (words,)} if words else {})
    startup = Startup(frozenset(("a.service",)), {}, {"a.service": unit}, ())
    found = [*prove_upgrades(running(given, startup)), *prove_scripts(running(given, startup))]
    assert all(each.level is Level.WARNING for each in found if "image that was" in each.what)
    return [each.what for each in found if "image that was" in each.what]


@pytest.mark.parametrize(
    ("words", "is_upgrade"),
    [
        (("/usr/bin/apt-get", "-y", "dist-upgrade"), True),
        (("/usr/bin/apt", "upgrade"), True),
        (("/usr/bin/unattended-upgrade",), True),
        (("/bin/sh", "-c", "apt-get update && apt-get -y upgrade"), True),
        (("/bin/sh", "/run/NVIDIA-Linux-x86_64-590.1.run", "--silent"), True),
        (("/opt/driver.run", "--silent"), True),
        (("/usr/bin/ubuntu-drivers", "install"), True),
        (("/usr/bin/ubuntu-drivers", "devices"), False),
        (("/opt/driver.run", "--extract-only"), False),
        (("/usr/bin/apt-get", "update"), False),
        (("/usr/bin/apt-get", "install", "x"), False),
        (("/usr/bin/firmware", "upgrade"), False),
    ],
)
def test_commands_of_units(words: tuple[str, ...], is_upgrade: bool, tmp_path: Path) -> None:  # noqa: FBT001
    files: dict[str, Content] = {UNIT: "[Service]\n", "/bin/sh": Link("dash"), "/bin/dash": ""}
    assert len(told(tmp_path, files, *words)) == is_upgrade


def test_jobs_and_scripts(tmp_path: Path) -> None:
    job = "/etc/cron.d/upgrade"
    (found,) = told(tmp_path / "1", {job: "0 3 * * * root apt-get -y upgrade\n"})
    assert found.startswith(f"{job} runs 0 3 * * * root apt-get -y upgrade: the node is then")
    script: dict[str, Content] = {
        "/etc/cron.daily/upgrade": Program("#!/bin/sh\nset -e\napt-get -y full-upgrade\n"),
        "/bin/sh": Link("dash"),
        "/bin/dash": "",
    }
    (found,) = told(tmp_path / "2", script)
    assert "which cron starts, runs apt-get -y full-upgrade" in found


@pytest.mark.parametrize(
    ("files", "upgrades"),
    [
        ({PERIODIC: ON, **UNATTENDED}, True),
        ({PERIODIC: OFF, **UNATTENDED}, False),
        ({PERIODIC: ON, "/etc/apt/apt.conf.d/99off": OFF, **UNATTENDED}, False),
        ({PERIODIC: f"// {ON}", **UNATTENDED}, False),
        ({PERIODIC: ON}, False),
        (UNATTENDED, False),
    ],
)
def test_settings_of_the_package_manager(
    files: Mapping[str, Content],
    upgrades: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    assert len(told(tmp_path, files)) == upgrades
