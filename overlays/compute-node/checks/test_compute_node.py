# SPDX-License-Identifier: Apache-2.0
"""The compute user, the models disk and Wake-on-LAN are as this overlay says."""

from __future__ import annotations

import json
import time

import pytest
from testinfra.host import Host

LIMITS = "/etc/security/limits.d/compute-node.conf"
WAKE_ON_LAN = "/etc/systemd/network/90-wake-on-lan.link"
PROMISES = "/usr/lib/imagebuilder/promises.json"
HEALTH = "/run/imagebuilder/health/verdict.json"
HEALTH_SECONDS = 300  # an emulated node takes most of it
DEFAULT_LINK = "/usr/lib/systemd/network/99-default.link"


def compute_user(host: Host) -> str:
    """The name that compute_user has in this image."""
    lines = host.file(LIMITS).content_string.splitlines()
    name: str = next(line.split()[0] for line in lines if line and not line.startswith("#"))
    return name


def pci_cards(host: Host) -> list[str]:
    """The network cards of the board that our .link file was applied to."""
    names = host.check_output("ls /sys/class/net").split()
    told = {name: host.run(f"udevadm info -q property /sys/class/net/{name}") for name in names}
    lines = {name: run.stdout.splitlines() for name, run in told.items()}
    return [name for name in names if f"ID_NET_LINK_FILE={WAKE_ON_LAN}" in lines[name]]


def naming(text: str) -> set[str]:
    """The lines of a .link file that decide names and addresses."""
    return {line for line in text.splitlines() if "Policy=" in line}


@pytest.mark.static
def test_user_reaches_the_accelerators(host: Host) -> None:
    user = host.user(compute_user(host))
    assert user.uid == 1000
    assert {"render", "video"} <= set(user.groups)
    assert host.file(user.shell).is_file


@pytest.mark.static
def test_user_has_no_password(host: Host) -> None:
    assert host.user(compute_user(host)).password in {"!", "!!", "*"}


@pytest.mark.static
def test_sudoers_are_sound(host: Host) -> None:
    run = host.run("/usr/sbin/visudo -c")
    assert run.rc == 0, run.stderr
    rule = host.file("/etc/sudoers.d/compute-node")
    if rule.exists:
        assert (rule.user, rule.group, rule.mode) == ("root", "root", 0o440)
        assert rule.content_string.startswith(f"{compute_user(host)} ALL=")


@pytest.mark.static
def test_hosts_name_the_node(host: Host) -> None:
    lines = [line.split() for line in host.file("/etc/hosts").content_string.splitlines()]
    assert ["127.0.0.1", "localhost"] in lines
    assert ["127.0.0.1", "compute-node"] in lines


@pytest.mark.static
def test_wake_on_lan_names_cards_as_systemd_does(host: Host) -> None:
    ours = host.file(WAKE_ON_LAN).content_string
    assert "WakeOnLan=magic" in ours
    wanted = naming(host.file(DEFAULT_LINK).content_string)
    # systemd before 253 gives no alternative names by MAC address.
    assert wanted in (naming(ours), naming(ours.replace("slot path mac", "slot path")))


@pytest.mark.static
def test_no_unit_waits_for_the_models_disk(host: Host) -> None:
    assert host.file("/etc/systemd/system/models.mount").is_file
    found = host.check_output("find /etc/systemd/system -name models.mount -type l")
    assert found == ""
    lines = [line.split() for line in host.run("cat /etc/fstab").stdout.splitlines()]
    waiting = [words for words in lines if words[1:2] == ["/models"]]
    assert not [words for words in waiting if "nofail" not in words[3].split(",")]


@pytest.mark.boot
def test_models_is_there(host: Host) -> None:
    models = host.file("/models")
    assert models.is_directory
    assert host.run("systemctl is-failed models.mount").stdout.strip() != "failed"


@pytest.mark.boot
def test_models_is_mounted_where_the_disk_is(host: Host) -> None:
    what = host.check_output("systemctl show -P What models.mount")
    assert host.mount_point("/models").exists == host.file(what).exists


@pytest.mark.boot
def test_names_resolve(host: Host) -> None:
    assert host.addr("compute-node").ipv4_addresses == ["127.0.0.1"]
    assert host.addr(host.check_output("uname -n")).is_resolvable


@pytest.mark.boot
def test_cards_that_can_wake_the_node_will(host: Host) -> None:
    cards = pci_cards(host)
    assert cards
    for card in cards:
        said = [line.strip() for line in host.run(f"sudo -n ethtool {card}").stdout.splitlines()]
        can = any(line.startswith("Supports Wake-on:") and "g" in line[17:] for line in said)
        assert not can or "Wake-on: g" in said


@pytest.mark.static
def test_health_checks_are_programs(host: Host) -> None:
    assert host.check_output("find /usr/lib/imagebuilder -name 'health*' -type f ! -perm 755") == ""
    assert "hardware" in json.loads(host.file(PROMISES).content_string)


@pytest.mark.boot
def test_the_node_says_how_it_is(host: Host) -> None:
    end = time.monotonic() + HEALTH_SECONDS
    said = {"verdict": "unknown"}
    while said["verdict"] == "unknown" and time.monotonic() < end:
        if host.file(HEALTH).exists:
            said = json.loads(host.file(HEALTH).content_string)
        time.sleep(5)
    promised = {each["pci"] for each in json.loads(host.file(PROMISES).content_string)["hardware"]}
    there = set(host.check_output("cut -f2 /proc/bus/pci/devices").split())
    if not promised:
        assert said["verdict"] == "ok", said
    elif not promised & {f"{device[:4]}:{device[4:]}" for device in there}:
        assert said["verdict"] == "missing device", said
    else:
        assert said["verdict"] != "missing device", said
    assert host.run("systemctl is-failed imagebuilder-health.service").stdout.strip() != "failed"
