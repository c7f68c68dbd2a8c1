# SPDX-License-Identifier: Apache-2.0
"""The root boots over the network, and a node that did so keeps nothing and loses nothing."""

from __future__ import annotations

import pytest
from testinfra.host import Host

from imagebuilder.checks.facts import Facts

MODULE = "/usr/lib/dracut/modules.d/99imagebuilder/module-setup.sh"
ENABLED = ("systemd-networkd.service", "systemd-resolved.service", "systemd-timesyncd.service")
# Which of them wants resolved depends on the version of systemd (before 250 the first).
TARGETS = ("multi-user.target", "sysinit.target")
MASKED = (
    "apt-daily.timer",
    "fstrim.timer",
    "dracut-shutdown.service",
    "systemd-random-seed.service",
)
GENERATORS = ("gpt-auto", "hibernate-resume", "system-update", "factory-reset", "ssh")
STAGES = {"network", "root", "overlay", "switch-root"}


@pytest.mark.static
def test_dracut_has_our_module(host: Host) -> None:
    setup = host.file(MODULE)
    assert (setup.user, setup.mode & 0o111) == ("root", 0o111)


@pytest.mark.static
@pytest.mark.parametrize("unit", ENABLED)
def test_a_unit_is_enabled(host: Host, facts: Facts, unit: str) -> None:
    if facts.image.units.get(unit) == "mask":
        pytest.skip("another overlay masks it, for what takes its place")
    wanted = [f"/etc/systemd/system/{target}.wants/{unit}" for target in TARGETS]
    assert any(host.file(path).is_symlink for path in wanted), wanted


@pytest.mark.static
@pytest.mark.parametrize("unit", MASKED)
def test_a_unit_is_masked(host: Host, unit: str) -> None:
    assert host.file(f"/etc/systemd/system/{unit}").linked_to == "/dev/null"


@pytest.mark.static
@pytest.mark.parametrize("name", GENERATORS)
def test_a_generator_is_masked(host: Host, name: str) -> None:
    mask = host.file(f"/etc/systemd/system-generators/systemd-{name}-generator")
    assert mask.exists
    assert mask.size == 0, "an empty file masks a generator: systemd.generator(7)"


@pytest.mark.static
def test_no_file_system_is_mounted_over_the_root(host: Host) -> None:
    listed = host.run("grep -Ev '^[[:space:]]*(#|$)' /etc/fstab").stdout.splitlines()
    assert not [line for line in listed if line.split()[1] == "/"]


@pytest.mark.static
def test_machine_id_is_empty(host: Host) -> None:
    assert host.file("/etc/machine-id").size == 0


@pytest.mark.boot
def test_the_root_is_an_overlay_in_memory(host: Host) -> None:
    assert host.mount_point("/").filesystem == "overlay"
    overlay = host.check_output("findmnt -no FSTYPE /run/initramfs/imagebuilder/overlay")
    assert overlay == "tmpfs"


@pytest.mark.boot
def test_the_node_passed_every_stage(host: Host) -> None:
    lines = host.file("/run/imagebuilder/stages").content_string.splitlines()
    assert {line.split()[1] for line in lines} >= STAGES


@pytest.mark.boot
def test_networkd_keeps_the_network(host: Host) -> None:
    nic = host.file("/run/imagebuilder/nic").content_string.strip()
    status = host.check_output(f"networkctl --no-pager status {nic}")
    assert "State: routable (configured)" in status
    shown = host.check_output("cat /run/systemd/network/*.network.d/*.conf")
    assert "KeepConfiguration=yes" in shown


@pytest.mark.boot
def test_the_journal_is_in_memory(host: Host) -> None:
    assert host.check_output("find /var/log/journal -type f") == ""
    assert host.check_output("find /run/log/journal -type f") != ""
