# SPDX-License-Identifier: Apache-2.0
"""What a node tells when something is wrong with it, and which check says so."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace

import pytest

from imagebuilder.checks.common import test_node as checks
from imagebuilder.checks.facts import NodeFacts
from tests.check_room import make_facts

NODE = NodeFacts(
    "n1", "10.0.0.21", "0123", "ssh-ed25519 AAAA", "uefi", "nfs", "10.0.0.1",
    "10.0.0.1:/roots/p/v", 60.0,
)  # fmt: skip
FACTS = replace(make_facts({"groups": {"render": [None, True]}}), node=NODE)
GOOD = {
    "state": "running",
    "jobs": "",
    "failed": "",
    "failed-log": "",
    "target": "active",
    "dropped": "",
    "servers": "nameserver 127.0.0.53",
    "root": "overlay",
    "lower": "nfs4 10.0.0.1:/roots/p/v ro,noatime,vers=4.1,hard",
    "image": "",
    "overlay": "tmpfs",
    "space": "imagebuilder 1000000 20000 980000 2% /run/initramfs/imagebuilder/overlay",
    "written": "text",
    "release": "IMAGE_ID=p\nIMAGE_VERSION=v",
    "kernel": "6.12.1",
    "machine-id": "0123",
    "image-machine-id": "",
    "name": "n1",
    "host-keys": "ssh-ed25519 AAAA root@n1",
    "listens": 'tcp LISTEN 0 128 0.0.0.0:22 0.0.0.0:* users:(("sshd",pid=4,fd=3))',
    "ephemeral": "32768\t60999",
    "nic": "eth0",
    "addresses": "2: eth0    inet 10.0.0.21/24 brd 10.0.0.255 scope global dynamic eth0",
    "routes": "default via 10.0.0.1 dev eth0",
    "wanted": "# overlay x\nnbd",
    "modules": "nbd\nnfs",
    "groups": "root\nrender",
    "memory": "MemTotal: 2000000 kB\nMemAvailable: 1500000 kB",
    "cores": "",
    "kernel-log": "[1.0] nfs: server 10.0.0.1 not responding\n[2.0] nfs: server 10.0.0.1 OK",
    "clock": "1000",
}
SERVED = "nfs4 10.0.0.1:/roots/p/v"
OOPS = "[9.0] Oops: 0000 [#1] SMP"
# Which check, what the node says instead, words of the message.
FAULTS: list[tuple[Callable[..., None], dict[str, str], str]] = [
    (checks.test_every_unit_is_well,
     {"state": "degraded", "failed": "x.service", "failed-log": "x.service: no such device"},
     "failed: x.service\nx.service: no such device"),
    (checks.test_every_unit_is_well, {"state": "starting", "jobs": "7 y.service start running"},
     "systemd is starting, not running: 7 y.service start"),
    (checks.test_nothing_is_dropped_from_the_start,
     {"dropped": "Job ssh.service/start deleted to break ordering cycle"}, "left out a unit"),
    (checks.test_the_default_target_is_reached, {"target": "inactive"}, "target is inactive"),
    (checks.test_names_can_be_asked_for, {"servers": ""}, "names no server"),
    (checks.test_root_is_the_release, {"root": "nfs4"}, "/ is nfs4, not an overlay"),
    (checks.test_root_is_the_release, {"lower": ""}, "below / is nothing"),
    (checks.test_root_is_the_release, {"lower": "squashfs /dev/loop0 ro"}, "below / is squashfs"),
    (checks.test_root_is_the_release, {"image": "tmpfs imagebuilder rw"}, "on tmpfs, expected not"),
    (checks.test_root_is_the_release, {"lower": "nfs4 10.0.0.1:/roots/p/w ro"}, "/roots/p/w, exp"),
    (checks.test_root_is_the_release, {"lower": f"{SERVED} rw,hard"}, "must be read-only"),
    (checks.test_root_is_the_release, {"release": "IMAGE_ID=p\nIMAGE_VERSION=w"}, "VERSION=w, exp"),
    (checks.test_kernel_is_the_one_of_the_image, {"kernel": "6.2"}, "6.2"),
    (checks.test_writes_stay_in_memory, {"overlay": "ext4"}, "ext4"),
    (checks.test_writes_stay_in_memory, {"written": ""}, "nothing can be written"),
    (checks.test_writes_stay_in_memory, {"written": "text\nreaches the release"}, "reaches"),
    (checks.test_overlay_has_space, {"space": "x 1000000 950000 50000 95% /y"}, "95% of 1 MB"),
    (checks.test_node_is_itself, {"machine-id": "9999"}, "machine-id is 9999, expected 0123"),
    (checks.test_node_is_itself, {"name": "localhost"}, "name is localhost, expected n1"),
    (checks.test_node_is_itself, {"image-machine-id": "77"}, "the image has a machine-id: 77"),
    (checks.test_node_is_itself, {"host-keys": "ssh-ed25519 BBBB"}, "expected the one kept"),
    (checks.test_only_declared_ports_listen,
     {"listens": 'udp UNCONN 0 0 0.0.0.0:5355 *:* users:(("systemd-resolve",pid=1,fd=2))'},
     "5355/udp (systemd-resolve) on 0.0.0.0; declared: 22/tcp"),
    (checks.test_node_has_one_address,
     {"addresses": f"{GOOD['addresses']}\n2: eth0 inet 10.0.0.160/24 scope global eth0"},
     "eth0 has 10.0.0.21, 10.0.0.160, expected only 10.0.0.21"),
    (checks.test_node_has_one_address, {"addresses": ""}, "eth0 has no address"),
    (checks.test_node_has_one_address, {"routes": "default via a\ndefault via b"}, "default via b"),
    (checks.test_modules_are_loaded, {"modules": "nfs"}, "not loaded: nbd"),
    (checks.test_groups_are_there, {"groups": "root"}, "missing groups: render"),
    (checks.test_clock_is_right, {"clock": "5000"}, "the clock is 4000 s ahead"),
    (checks.test_clock_is_right, {"clock": "10"}, "990 s behind"),
    (checks.test_kernel_has_no_trouble, {"kernel-log": OOPS}, OOPS),
    (checks.test_kernel_has_no_trouble,
     {"kernel-log": "[9.0] nfs: server 10.0.0.1 not responding, still trying"}, "not responding"),
    (checks.test_memory_is_left,
     {"memory": "MemTotal: 2000000 kB\nMemAvailable: 20000 kB"}, "19 of 1953 MiB"),
    (checks.test_nothing_has_crashed, {"cores": "/core"}, "core dumps: /core"),
]  # fmt: skip
ALL = [
    function
    for name, function in inspect.getmembers(checks, inspect.isfunction)
    if name.startswith("test_")
]


def run_check(check: Callable[..., None], **said: str) -> None:
    """Call a check with what a node says."""
    text = "".join(f"== {name}\n{value}\n" for name, value in {**GOOD, **said}.items())
    given = {"told": checks.parse_told(text, 1000.0), "node": NODE, "facts": FACTS}
    check(**{name: given[name] for name in inspect.signature(check).parameters})


@pytest.mark.parametrize("check", ALL)
def test_a_good_node_passes(check: Callable[..., None]) -> None:
    run_check(check)


@pytest.mark.parametrize(
    ("check", "said", "words"), FAULTS, ids=lambda value: getattr(value, "__name__", None)
)
def test_a_fault_is_named(check: Callable[..., None], said: dict[str, str], words: str) -> None:
    with pytest.raises((pytest.fail.Exception, AssertionError)) as caught:
        run_check(check, **said)
    assert words in str(caught.value)


def test_every_check_has_a_fault() -> None:
    assert {check for check, _, _ in FAULTS} == set(ALL)


def test_ports_of_an_older_image_are_not_judged() -> None:
    facts = replace(FACTS, image=replace(FACTS.image, listens=None))
    told = checks.parse_told("== listens\n", 0.0)
    with pytest.raises(pytest.skip.Exception, match="rebuild it"):
        checks.test_only_declared_ports_listen(told, facts)
