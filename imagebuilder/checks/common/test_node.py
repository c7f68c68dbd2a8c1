# SPDX-License-Identifier: Apache-2.0
"""A running node has its release and its identity, and works."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from testinfra.host import Host

from imagebuilder.checks.backend import last_line
from imagebuilder.checks.facts import Facts, NodeFacts
from imagebuilder.checks.reach import SETTLE

LOWER = "/run/initramfs/imagebuilder/lower"
IMAGE = "/run/initramfs/imagebuilder/image"
OVERLAY = "/run/initramfs/imagebuilder/overlay"
MARK = "usr/.imagebuilder-check"
NFS = ("nfs", "nfs4")
# Messages of systemd when it leaves out a unit to break a cycle.
CYCLE = "ordering cycle|deleted to break"
# What is below / by kind of root: the file system, and the one that its file is on.
BELOW = {
    "nfs": (NFS, ("",)),
    "nfs-squashfs": (("squashfs",), NFS),
    "http": (("squashfs",), ("tmpfs",)),
    "http-erofs": (("erofs",), ("tmpfs",)),
}
# One command, because every command on an emulated node takes a good part of a second.  A line
# `== NAME` begins a section.  The clock comes last.
TELL = f"""\
say() {{ echo "== $1"; }}
say state; {SETTLE}
say jobs; systemctl list-jobs --plain --no-legend | head -5
say failed; systemctl list-units --failed --plain --no-legend | cut -d ' ' -f 1
say failed-log
for unit in $(systemctl list-units --failed --plain --no-legend | cut -d ' ' -f 1 | head -3); do
    journalctl -q -b -o cat --no-pager -n 4 -u "$unit" | sed "s/^/$unit: /"
done
say target; systemctl is-active default.target
say dropped; journalctl -q -b -o cat --no-pager -t systemd | grep -E '{CYCLE}' | head -5
say servers; grep -E '^nameserver' /etc/resolv.conf
say root; findmnt -rno FSTYPE /
say lower; findmnt -rno FSTYPE,SOURCE,OPTIONS {LOWER}
say image; findmnt -rno FSTYPE,SOURCE,OPTIONS {IMAGE}
say overlay; findmnt -rno FSTYPE {OVERLAY}
say space; df -P -B 1 {OVERLAY} | tail -1
say written
echo text > /{MARK} && cat {OVERLAY}/upper/{MARK}
test ! -e {LOWER}/{MARK} || echo "reaches the release"
touch {LOWER}/{MARK} 2> /dev/null && echo "the release can be written"
rm -f /{MARK}
say release; grep ^IMAGE_ /etc/os-release
say kernel; uname -r
say machine-id; cat /etc/machine-id
say image-machine-id; cat {LOWER}/etc/machine-id
say name; cat /proc/sys/kernel/hostname
say host-keys; cat /etc/ssh/ssh_host_*_key.pub
say listens; ss -Hltnup
say ephemeral; cat /proc/sys/net/ipv4/ip_local_port_range
say nic; cat /run/imagebuilder/nic
say addresses; ip -o -4 address show scope global
say routes; ip -4 route show default
say wanted; cat /etc/modules-load.d/*.conf /usr/lib/modules-load.d/*.conf 2> /dev/null
say modules; ls /sys/module
say groups; cut -d : -f 1 /etc/group
say memory; grep -E '^Mem(Total|Available):' /proc/meminfo
say cores; find /var/lib/systemd/coredump /var/crash /core* -type f 2> /dev/null
say kernel-log; dmesg | grep -E '{{trouble}}'
say clock; date +%s
"""
TROUBLE = (
    r"Oops|kernel BUG|BUG: |general protection fault|blocked for more than|I/O error|"
    r"segfault at|Out of memory|oom-kill|nfs: server"
)
# Drives without a medium say so themselves.
HARMLESS = re.compile(r"I/O error, dev (fd|sr)\d|BUG: .{0,200}?(soft lockup|workqueue)")
LOOPBACK = re.compile(r"^(127\.|\[?::1\]?(:|%|$)|\[?::ffff:127\.)")
MOST_CLOCK_SECONDS = 300
MOST_USED = 0.9
LEAST_MEMORY = 0.03


@dataclass(frozen=True)
class Told:
    """A node's state by section of TELL, and the time on this host when it printed its own."""

    lines: Mapping[str, tuple[str, ...]]
    now: float

    def __getitem__(self, name: str) -> tuple[str, ...]:
        return self.lines[name]

    def one(self, name: str) -> str:
        """The first line; "" if there is none."""
        return self.lines[name][0] if self.lines[name] else ""


@dataclass(frozen=True)
class Listener:
    """A listening socket: `22/tcp`, the address, the program."""

    port: str
    address: str
    program: str


@pytest.fixture(scope="session")
def told(host: Host) -> Told:
    """The state of the node, queried as root."""
    script = TELL.replace("{trouble}", TROUBLE)
    as_root = 'run=; [ "$(id -u)" = 0 ] || run="sudo -n"; $run sh -c %s'
    done = host.run(as_root, script)
    found = parse_told(done.stdout, time.time())
    if "clock" not in found.lines:
        error = last_line(done.stderr) or "no message"
        pytest.fail(f"the node did not report its full state ({error}): log in as root or use sudo")
    return found


def parse_told(text: str, now: float) -> Told:
    """The sections of TELL's output."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("== "):
            lines = found.setdefault(line[3:], [])
        elif line.strip():
            lines.append(line.strip())
    return Told({name: tuple(lines) for name, lines in found.items()}, now)


@pytest.fixture(scope="session")
def node(facts: Facts) -> NodeFacts:
    if facts.node is None:
        pytest.skip("nothing is known about the node")
    return facts.node


@pytest.mark.boot
def test_every_unit_is_well(told: Told) -> None:
    if told["failed"]:
        lines = "\n".join(told["failed-log"])
        pytest.fail(f"failed: {', '.join(told['failed'])}\n{lines}")
    if told.one("state") != "running":
        jobs = "; ".join(told["jobs"]) or "no job is waiting"
        pytest.fail(f"systemd is {told.one('state') or 'silent'}, not running: {jobs}")


@pytest.mark.boot
def test_nothing_is_dropped_from_the_start(told: Told) -> None:
    if told["dropped"]:
        lines = "\n".join(told["dropped"])
        pytest.fail(f"systemd left out a unit to break an ordering cycle:\n{lines}")


@pytest.mark.boot
def test_the_default_target_is_reached(told: Told) -> None:
    if told.one("target") != "active":
        pytest.fail(
            f"default.target is {told.one('target') or 'silent'}: another target was started "
            "(systemd.unit=, rescue), or it was stopped"
        )


@pytest.mark.boot
def test_names_can_be_asked_for(told: Told) -> None:
    if not told["servers"]:
        pytest.fail("/etc/resolv.conf names no server: host names cannot be resolved")


@pytest.mark.boot
def test_root_is_the_release(told: Told, node: NodeFacts, facts: Facts) -> None:
    kind, source, options = mount_of(told, "lower")
    place, export, _ = mount_of(told, "image")
    if told.one("root") != "overlay":
        pytest.fail(f"/ is {told.one('root') or 'unknown'}, not an overlay over the release")
    wanted, places = BELOW[node.root]
    if kind not in wanted:
        pytest.fail(f"below / is {kind or 'nothing'}, expected {' or '.join(wanted)}")
    if place not in places:
        said = f"it is on {place or 'nothing'}, expected {' or '.join(places) or 'nothing'}"
        pytest.fail(f"below / is {kind}, {said}")
    if node.source and node.source != (export or source):
        pytest.fail(f"the root comes from {export or source}, expected {node.source}")
    if "ro" not in options.split(","):
        pytest.fail(f"the release is mounted {options}: it must be read-only")
    expected = (f"IMAGE_ID={facts.image.profile}", f"IMAGE_VERSION={facts.image.version}")
    if set(told["release"]) != set(expected):
        said = " ".join(told["release"]) or "without a name"
        pytest.fail(f"the root is {said}, expected {' '.join(expected)}")


def mount_of(told: Told, name: str) -> tuple[str, str, str]:
    """The file system of a mount, its source and its options; "" for each if not mounted."""
    kind, source, options = (*told.one(name).split(" ", 2), "", "", "")[:3]
    return kind, source, options


@pytest.mark.boot
def test_kernel_is_the_one_of_the_image(told: Told, facts: Facts) -> None:
    assert told.one("kernel") == facts.image.kernel.release


@pytest.mark.boot
def test_writes_stay_in_memory(told: Told) -> None:
    assert told.one("overlay") == "tmpfs"
    if told["written"] != ("text",):
        said = "; ".join(told["written"]) or "nothing can be written"
        pytest.fail(f"/{MARK}: {said}; expected in the overlay and nowhere else")


@pytest.mark.boot
def test_overlay_has_space(told: Told) -> None:
    fields = told.one("space").split()
    size, used = int(fields[1]), int(fields[2])
    if used > MOST_USED * size:
        pytest.fail(
            f"{used / size:.0%} of {size / 1e6:.0f} MB for the node's writes are in use\n"
            "find what writes that much at boot (du -x /), or set overlay_size of netboot"
        )


@pytest.mark.boot
def test_node_is_itself(told: Told, node: NodeFacts) -> None:
    expected = {"machine-id": node.machine_id, "name": node.name}
    wrong = [
        f"{what} is {told.one(what) or 'empty'}, expected {value}"
        for what, value in expected.items()
        if value and told.one(what) != value
    ]
    if told["image-machine-id"]:
        wrong.append(f"the image has a machine-id: {told.one('image-machine-id')}")
    keys = {" ".join(line.split()[:2]) for line in told["host-keys"]}
    if node.host_key and keys != {" ".join(node.host_key.split()[:2])}:
        wrong.append(f"{len(keys)} ssh host keys, expected the one kept for the node")
    if wrong:
        pytest.fail("\n".join(wrong))


@pytest.mark.boot
def test_only_declared_ports_listen(told: Told, facts: Facts) -> None:
    if facts.image.listens is None:
        pytest.skip("the image is older than `listens:`; rebuild it")
    found: dict[str, list[str]] = {}
    for one in find_listeners(told):
        if one.port not in facts.image.listens:
            found.setdefault(f"{one.port} ({one.program})", []).append(one.address)
    if found:
        said = "; ".join(f"{what} on {' and '.join(where)}" for what, where in found.items())
        pytest.fail(
            f"listens: {said}; declared: {', '.join(facts.image.listens) or 'none'}\n"
            "disable it, or declare it under `listens:` in the overlay that needs it"
        )


def find_listeners(told: Told) -> list[Listener]:
    """The sockets that listen for other machines, without loopback.

    A UDP socket on a port that the kernel chose is a client's, waiting for an answer.
    """
    low, high = (*map(int, told.one("ephemeral").split()), 0, 0)[:2]
    found: list[Listener] = []
    for line in told["listens"]:
        protocol, _, _, _, local, *rest = line.split()
        address, _, port = local.rpartition(":")
        if LOOPBACK.match(address) or (protocol == "udp" and low <= int(port) <= high):
            continue
        program = re.search(r'\(\("([^"]+)"', " ".join(rest))
        found.append(Listener(f"{port}/{protocol}", address, program[1] if program else "kernel"))
    return found


@pytest.mark.boot
def test_node_has_one_address(told: Told, node: NodeFacts) -> None:
    rows = [line.split() for line in told["addresses"]]
    found = [row[3].partition("/")[0] for row in rows if row[1] == told.one("nic")]
    if found != [node.address]:
        pytest.fail(
            f"{told.one('nic') or 'its NIC'} has {', '.join(found) or 'no address'}, "
            f"expected only {node.address}\na second one is a second lease: the client identifier "
            "of the root differs from that of the initrd"
        )
    assert len(told["routes"]) <= 1, "; ".join(told["routes"])


@pytest.mark.boot
def test_modules_are_loaded(told: Told) -> None:
    lines = [line for line in told["wanted"] if line[0] not in "#;"]
    there = {name.replace("-", "_") for name in told["modules"]}
    missing = sorted({line for line in lines if line.replace("-", "_") not in there})
    if missing:
        pytest.fail(
            f"not loaded: {', '.join(missing)} (modules-load.d)\ntry: modprobe {missing[0]}"
        )


@pytest.mark.boot
def test_groups_are_there(told: Told, facts: Facts) -> None:
    missing = sorted(set(facts.image.groups) - set(told["groups"]))
    if missing:
        pytest.fail(f"missing groups: {', '.join(missing)}; was /etc/group replaced?")


@pytest.mark.boot
def test_clock_is_right(told: Told) -> None:
    off = int(told.one("clock")) - told.now
    if abs(off) > MOST_CLOCK_SECONDS:
        pytest.fail(
            f"the clock is {abs(off):.0f} s {'ahead' if off > 0 else 'behind'}: certificates and "
            "file times go wrong\nset the clock in the firmware, and let the node reach an NTP "
            "server (DHCP option 42)"
        )


@pytest.mark.boot
def test_kernel_has_no_trouble(told: Told) -> None:
    lines = [line for line in told["kernel-log"] if not HARMLESS.search(line)]
    silent = sum("not responding" in line for line in lines)
    back = sum(line.endswith(" OK") for line in lines)
    trouble = [line for line in lines if "nfs: server" not in line]
    if silent > back:
        trouble.append(next(line for line in lines if "not responding" in line))
    if trouble:
        pytest.fail("\n".join(trouble[:5]))


@pytest.mark.boot
def test_memory_is_left(told: Told) -> None:
    total, available = (int(line.split()[1]) for line in sorted(told["memory"], reverse=True))
    if available < LEAST_MEMORY * total:
        pytest.fail(f"only {available // 1024} of {total // 1024} MiB of memory are available")


@pytest.mark.boot
def test_nothing_has_crashed(told: Told) -> None:
    if told["cores"]:
        pytest.fail(f"core dumps: {', '.join(told['cores'][:5])}")
