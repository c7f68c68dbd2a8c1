# SPDX-License-Identifier: Apache-2.0
"""The boot server of a test: `imagebuilder serve` in a lab, with the published files themselves.

The server's tree is a view that only the lab sees.  It has its own nodes, channels and reports, and
read-only bind mounts of the real folders of the release and the roots.  Nothing is copied, and
other users of the real tree, such as another `imagebuilder serve`, are not disturbed.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.boot.lab import BRIDGE, SERVER, Lab, lab, plug
from imagebuilder.boot.login import make_key
from imagebuilder.boot.machine import Nic
from imagebuilder.environment import OWN_MODULE
from imagebuilder.errors import HostError, WorkError
from imagebuilder.files import make_folder
from imagebuilder.nodes.identity import MACHINE_ID, PUBLIC
from imagebuilder.program import Program
from imagebuilder.tree import CANDIDATE, ReleaseName, Tree, make_tree

VIEW = "/run/netboot"
START_SECONDS = 90
NODE_FILES = "own"
# The test logs in as root with a key of its own, also where the image keeps root out.  sshd takes
# these for root alone, instead of the image's.
SSHD_FILE = "etc/ssh/sshd_config.d/00-imagebuilder-test.conf"
LET_ROOT_IN = """\
Match User root
    PermitRootLogin prohibit-password
    PubkeyAuthentication yes
    AuthorizedKeysFile .ssh/authorized_keys
    AuthenticationMethods any
    ForceCommand none
    AllowUsers root
    AllowGroups root
    DenyUsers nobody
    DenyGroups nogroup
"""
# Read-only bind mounts take two steps (mount(8)).
MOUNTS = """\
view=$1 release=$2 roots=$3 name=$4
mkdir {view}
mount --bind "$view" {view}
bind() { mount --bind "$1" "$2"; mount -o remount,bind,ro "$2"; }
bind "$release" "{view}/http/releases/$name"
bind "$roots" {view}/roots
""".replace("{view}", VIEW)


@dataclass(frozen=True)
class Guest:
    """A node of the test: its name, NIC and address."""

    name: str
    nic: Nic
    address: str


@dataclass(frozen=True)
class BootServer:
    """A lab that serves one release to `guests`.

    `view` is the server's tree outside the lab, `key` the private key for root on every guest.
    """

    lab: Lab
    view: Tree
    key: Path
    guests: tuple[Guest, ...]
    server: Program

    def log(self, daemon: str) -> Path:
        """The log of one of the server's daemons: dnsmasq, nginx, ganesha, rpcbind."""
        return self.view.serve / "logs" / f"{daemon}.log"

    def host_key(self, guest: Guest) -> str:
        return (self.view.kept_node(guest.name) / PUBLIC).read_text()

    def machine_id(self, guest: Guest) -> str:
        return (self.view.kept_node(guest.name) / MACHINE_ID).read_text().strip()

    def ssh_words(self, guest: Guest) -> str:
        """The command a person types to log in."""
        words = self.lab.words(["ssh", "-F", self.lab.work / f"{guest.name}.ssh", guest.name])
        return shlex.join(["sudo", *(os.fspath(word) for word in words)])


def guests_of(many: int) -> tuple[Guest, ...]:
    """That many nodes: gate-1 and so on."""
    return tuple(
        Guest(f"gate-{n}", Nic(f"tap{n}", f"52:54:00:9a:7e:{n:02x}"), f"10.77.0.{10 + n}")
        for n in range(1, many + 1)
    )


@contextlib.contextmanager
def boot_server(
    tree: Tree,
    release: ReleaseName,
    work: Path,
    *,
    root: str,
    nodes: int = 1,
    cmdline: Sequence[str] = (),
) -> Iterator[BootServer]:
    """Serve `release` of `tree` in a lab to that many nodes, which are off.

    `root` is the kind of root, `cmdline` more arguments for their kernels.  `work` is an empty
    folder.  Raises HostError if the host is not fit, WorkError with the error of the server.
    """
    guests = guests_of(nodes)
    key = make_key(work)
    view = make_view(work / "view", release, guests, key, root=root, cmdline=cmdline)
    with lab(work, [guest.nic.tap for guest in guests]) as network:
        name = f"{release.profile}/{release.version}"
        folders = (view.path, tree.release(release), tree.roots)
        network.run(["sh", "-euc", MOUNTS, "sh", *folders, name])
        plug(network, [guest.nic.tap for guest in guests])
        with serving(network) as server:
            yield BootServer(network, view, key, guests, server)


def make_view(
    path: Path,
    release: ReleaseName,
    guests: Sequence[Guest],
    key: Path,
    *,
    root: str,
    cmdline: Sequence[str],
) -> Tree:
    """The tree of the test's server, without the release and the roots."""
    view = make_tree(path)
    view.release(release).mkdir(parents=True)
    link = view.channel(release.profile, CANDIDATE)
    link.parent.mkdir()
    link.symlink_to(f"../../http/releases/{release.profile}/{release.version}")
    ssh_folder = path / NODE_FILES / "root/.ssh"
    ssh_folder.mkdir(parents=True)
    ssh_folder.chmod(0o700)
    (ssh_folder / "authorized_keys").write_bytes(key.with_suffix(".pub").read_bytes())
    drop_in = path / NODE_FILES / SSHD_FILE
    make_folder(drop_in.parent)
    drop_in.write_text(LET_ROOT_IN)
    view.nodes_file.write_text(render_nodes(release, guests, root, cmdline))
    return view


def render_nodes(
    release: ReleaseName, guests: Sequence[Guest], root: str, cmdline: Sequence[str]
) -> str:
    """nodes.yaml of the test."""
    lines = [
        "defaults:",
        f"  channel: {CANDIDATE}",
        f"  root: {root}",
        "  console: [ttyS0]",
        f"  cmdline: [{', '.join(cmdline)}]",
        "nodes:",
    ]
    for guest in guests:
        lines += [
            f"  {guest.name}:",
            f'    macs: ["{guest.nic.mac}"]',
            f"    profile: {release.profile}",
            f"    address: {guest.address}",
            f"    files: {NODE_FILES}",
        ]
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def serving(lab: Lab) -> Iterator[Program]:
    """`imagebuilder serve` on the view.  Raises HostError with its error if it fails."""
    argv = [
        sys.executable, *OWN_MODULE, "serve", "--tree", VIEW,
        "--interface", BRIDGE, "--address", SERVER, "--nfs", "ganesha",
    ]  # fmt: skip
    with lab.program("serve", argv, dies_by="TERM") as server:
        try:
            server.wait_for(r"^Serving ", START_SECONDS)
        except WorkError as error:
            raise HostError(
                f"could not serve the release for the test: {error}",
                hint="run imagebuilder setup --boot to install what a test needs",
            ) from error
        yield server
