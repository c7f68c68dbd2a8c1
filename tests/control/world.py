# SPDX-License-Identifier: Apache-2.0
"""A builder, a control node and nodes, as docs/control-node.md has them.

builder (lab) ---- br0 10.77.0.0/24 -------- enp1s0  nuc  enp3s0 ---- br1 192.168.77.0/24 ---- nodes
                   10.77.0.1, and .250 on br1 for a person who logs in to nodes
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.boot.lab import BRIDGE, Lab, lab
from imagebuilder.process import Completed, Word, run
from imagebuilder.program import Program
from tests.boot.machine import ACCELERATION
from tests.control.disk import CARDS, USER, Disk
from tests.workshop import CHECKOUT, Workshop

NAME = "nuc"
ADDRESS = "10.77.0.2"
MEMORY_MIB = 1536
NODES_WIRE = "br1"
SERVER = "192.168.77.1"
PERSON = "192.168.77.250"
NUC_TAPS = ("tap0", "tap1")
NODE_TAPS = ("tap2", "tap3")
TAPS = (*NUC_TAPS, *NODE_TAPS)
UP_SECONDS = 300
# Before anything else: the two wires, and a home and a hosts file that only this network sees.
WIRES = f"""\
ip link add {NODES_WIRE} type bridge
ip address add {PERSON}/24 dev {NODES_WIRE}
ip link set {NODES_WIRE} up
ip link set {NUC_TAPS[0]} master {BRIDGE}
for tap in {NUC_TAPS[1]} {" ".join(NODE_TAPS)}; do ip link set "$tap" master {NODES_WIRE}; done
mount --bind "$1/hosts" /etc/hosts
mount --bind "$1/passwd" /etc/passwd
"""
# The builder's user is root here, who needs no sudo and may not have it.
SUDO = '#!/bin/sh\nexec "$@"\n'


@dataclass(frozen=True)
class Builder:
    """The machine with the checkout, and a user who can log in to the other one.

    `workshop` is the store, if there is one yet.
    """

    room: Lab
    workshop: Workshop | None
    checkout: Path

    @property
    def home(self) -> Path:
        return self.room.work / "home"

    def words(self, script: str) -> list[Word]:
        """The command that types a script in the checkout, with its environment activated."""
        path = f"{self.home}/bin:{CHECKOUT}/.venv/bin:{os.environ['PATH']}"
        settings = {"PATH": path, "HOME": os.fspath(self.home)}
        if self.workshop:
            tree = os.fspath(self.workshop.state.parent / "tree")
            settings |= self.workshop.env(IMAGEBUILDER_TREE=tree)
        given = (f"{name}={value}" for name, value in settings.items())
        return ["env", f"--chdir={self.checkout}", *given, "bash", "-euo", "pipefail", "-c", script]

    def type(self, script: str) -> Completed:
        """Type a script; raises WorkError when a command of it fails."""
        return self.room.run(self.words(script))

    def type_online(self, script: str) -> Completed:
        """Type what needs the builder's own way to the world, which the lab does not have."""
        return run(self.words(script))


@dataclass(frozen=True)
class Nuc:
    """The control node, running, and a person who types there."""

    room: Lab
    program: Program
    config: Path

    def type(self, script: str, *, check: bool = True) -> Completed:
        """Type a script; raises WorkError when a command of it fails."""
        typed = f"set -euo pipefail\nexport SYSTEMD_BUS_TIMEOUT=300\n{script}"
        return self.room.run(["ssh", "-F", self.config, NAME, typed], check=check)

    def await_login(self, seconds: float = UP_SECONDS) -> None:
        """Wait until its user can log in.  Raises WorkError when that does not come."""
        deadline = time.monotonic() + seconds
        while self.type("true", check=False).status:
            if self.program.status is not None or time.monotonic() > deadline:
                raise self.program.complaint("does not let its user log in")
            time.sleep(1)


@contextlib.contextmanager
def wires(work: Path, disk: Disk) -> Iterator[Lab]:
    """The lab with both wires and the builder's home; nothing is switched on yet."""
    make_home(work, disk)
    with lab(work, TAPS) as room:
        room.run(["sh", "-euc", WIRES, "sh", work])
        yield room


def make_home(work: Path, disk: Disk) -> None:
    """A home of the builder's user, whose key the control node knows."""
    ssh, programs = work / "home/.ssh", work / "home/bin"
    programs.mkdir(parents=True)
    (programs / "sudo").write_text(SUDO)
    (programs / "sudo").chmod(0o755)
    ssh.mkdir(mode=0o700)
    (ssh / "id_ed25519").write_bytes(disk.key.read_bytes())
    (ssh / "id_ed25519").chmod(0o600)
    (ssh / "id_ed25519.pub").write_bytes(disk.key.with_suffix(".pub").read_bytes())
    words = disk.host_key.split()[:2]
    (ssh / "known_hosts").write_text(f"{NAME},{ADDRESS} {' '.join(words)}\n")
    hosts = Path("/etc/hosts").read_text()
    (work / "hosts").write_text(f"{hosts}{ADDRESS} {NAME}\n")
    # ssh takes a user's home from here and not from HOME.
    lines = Path("/etc/passwd").read_text().splitlines()
    root = f"root:x:0:0:root:{work / 'home'}:/bin/bash"
    others = [line for line in lines if not line.startswith("root:")]
    (work / "passwd").write_text("\n".join([root, *others]) + "\n")


@contextlib.contextmanager
def control_node(room: Lab, disk: Disk) -> Iterator[Nuc]:
    """The control node on a copy of `disk`; its user can log in."""
    image = room.work / "nuc.ext4"
    run(["cp", "--sparse=always", "--reflink=auto", disk.image, image])
    cards = [
        word
        for number, (tap, mac) in enumerate(zip(NUC_TAPS, CARDS.values(), strict=True))
        for word in (
            "-netdev", f"tap,id=n{number},ifname={tap},script=no,downscript=no",
            "-device", f"virtio-net-pci,netdev=n{number},mac={mac},romfile=",
        )
    ]  # fmt: skip
    argv: list[Word] = [
        "qemu-system-x86_64", *ACCELERATION.words(), "-machine", "q35", "-m", str(MEMORY_MIB),
        "-nodefaults", "-display", "none", "-serial", "stdio", "-device", "virtio-rng-pci",
        "-drive", f"if=virtio,format=raw,cache=unsafe,file={image}", *cards,
        "-kernel", disk.kernel, "-initrd", disk.initrd,
        "-append", " ".join(("root=/dev/vda rw console=ttyS0", *ACCELERATION.cmdline)),
    ]  # fmt: skip
    config = room.work / "nuc.ssh"
    config.write_text(
        f"Host {NAME}\n    HostName {ADDRESS}\n    User {USER}\n    BatchMode yes\n"
        f"    ConnectTimeout 60\n    ServerAliveInterval 15\n    ServerAliveCountMax 20\n"
    )
    with room.program(NAME, argv) as program:
        nuc = Nuc(room, program, config)
        nuc.await_login()
        yield nuc
