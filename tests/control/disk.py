# SPDX-License-Identifier: Apache-2.0
"""The disk of a small machine with Debian, as a person has it who starts on docs/control-node.md.

Everything that the page installs comes from the disk: an apt repository and a folder of wheels,
which the machine's own apt and pip are configured to use.  So the machine needs no other network.
"""

from __future__ import annotations

import os
import shutil
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from imagebuilder.digest import digest_of
from imagebuilder.families.apt.mirrors import find_mirrors
from imagebuilder.process import Word, run
from tests.workshop import CHECKOUT

SUITE = "trixie"
PYTHON = "3.13"
SIZE = "6G"
USER = "admin"
# The network card towards the builder and the one towards the nodes, by MAC address.
LAN, NODES = "enp1s0", "enp3s0"
CARDS = {LAN: "52:54:00:c0:de:01", NODES: "52:54:00:c0:de:03"}
PRESENT = (
    "linux-image-cloud-amd64", "systemd-sysv", "dbus", "openssh-server", "sudo", "python3",
)  # fmt: skip
# What the page installs, with what it depends on; of groups, everything in host-packages.txt.
OFFERED = ("python3-venv",)
OFFERED_GROUPS = ("serve", "nfs")
LINK = "[Match]\nMACAddress={mac}\n[Link]\nName={name}\n"
INTERFACES = f"""\
source /etc/network/interfaces.d/*
auto lo
iface lo inet loopback
auto {LAN}
iface {LAN} inet static
    address {{address}}/24
"""
FILES = {
    "etc/hostname": "nuc\n",
    "etc/hosts": "127.0.0.1 localhost\n127.0.1.1 nuc\n",
    "etc/fstab": "/dev/vda / ext4 errors=remount-ro 0 1\n",
    "etc/apt/sources.list": "deb [trusted=yes] file:/srv/packages ./\n",
    "etc/pip.conf": "[global]\nno-index = true\nfind-links = /srv/wheels\n",
    f"etc/sudoers.d/{USER}": f"{USER} ALL=(ALL) NOPASSWD: ALL\n",
}
OFFER = f"""\
set -eu
root=$1
shift
mkdir -p "$root/srv/packages/partial"
chroot "$root" apt-get -qq -y --no-install-recommends --download-only \\
    -o Dir::Cache::Archives=/srv/packages install -- "$@"
chroot "$root" sh -euc 'cd /srv/packages; rm -rf partial lock; apt-ftparchive packages . > Packages'
chroot "$root" useradd --create-home --shell /bin/bash --groups sudo {USER}
rm -rf "$root"/var/lib/apt/lists/*
"""


@dataclass(frozen=True)
class Disk:
    """A folder with the disk, what boots it, and the key that lets its user in."""

    folder: Path

    @property
    def image(self) -> Path:
        return self.folder / "disk.ext4"

    @property
    def kernel(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def initrd(self) -> Path:
        return self.folder / "initrd.img"

    @property
    def key(self) -> Path:
        return self.folder / "key"

    @property
    def host_key(self) -> str:
        """The public key of its ssh server."""
        return (self.folder / "host.pub").read_text().strip()


def make_disk(kept: Path, address: str) -> Disk:
    """The disk of a machine that is `address` in the builder's network, made once in `kept`."""
    interfaces = INTERFACES.format(address=address)
    folder = kept / disk_digest(interfaces)[:16]
    if not folder.exists():
        kept.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=kept) as work:
            new = Path(work) / "new"
            new.mkdir()
            make_files(Path(work) / "root", new, interfaces)
            new.rename(folder)
    return Disk(folder)


def disk_digest(interfaces: str) -> str:
    """Names the disk by everything that it is made from, but for versions of packages."""
    return digest_of([Path(__file__).read_text(), interfaces, offered(), wanted_wheels()])


def offered() -> list[str]:
    """The packages that the machine's apt can install."""
    lines = (CHECKOUT / "scripts/host-packages.txt").read_text().splitlines()
    rows = [line.split(None, 4) for line in lines if line and not line.startswith("#")]
    return sorted({*OFFERED, *(row[2] for row in rows if row[0] in OFFERED_GROUPS)})


def wanted_wheels() -> list[str]:
    """What the wheel of this checkout depends on, with its web page."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    return [*map(str, project["dependencies"]), *map(str, project["optional-dependencies"]["web"])]


def make_files(root: Path, new: Path, interfaces: str) -> None:
    """Make the root in `root` and from it the files of a Disk in `new`."""
    install_debian(root)
    for path, text in {**FILES, "etc/network/interfaces": interfaces}.items():
        (root / path).write_text(text)
    fetch_wheels(root / "srv/wheels")
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "person", "-f", new / "key"])
    allowed = root / f"home/{USER}/.ssh/authorized_keys"
    allowed.parent.mkdir(mode=0o700)
    shutil.copyfile(new / "key.pub", allowed)
    owner = (root / f"home/{USER}").stat()
    for given in (allowed, allowed.parent):
        os.chown(given, owner.st_uid, owner.st_gid)
    shutil.copyfile(root / "etc/ssh/ssh_host_ed25519_key.pub", new / "host.pub")
    for name in ("vmlinuz", "initrd.img"):
        shutil.copyfile(root / (root / name).readlink(), new / name)
    run(["mke2fs", "-q", "-t", "ext4", "-L", "root", "-d", root, new / "disk.ext4", SIZE])


def install_debian(root: Path) -> None:
    """A plain Debian in `root`, with the packages it is offered; nothing stays mounted."""
    mirrors = find_mirrors({}, os.environ)
    archive, security = mirrors["debian"], mirrors["debian-security"]
    sources = [
        f"deb {archive} {SUITE} main",
        f"deb {archive} {SUITE}-updates main",
        f"deb {security} {SUITE}-security main",
    ]
    with TemporaryDirectory(dir=root.parent) as scratch:
        links = Path(scratch)
        for name, mac in CARDS.items():
            (links / f"10-{name}.link").write_text(LINK.format(name=name, mac=mac))
        offer = links / "offer"
        offer.write_text(OFFER)
        named = "/etc/systemd/network"  # before the initrd is made, which renames them already
        argv: list[Word] = [
            "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--",
            "mmdebstrap", "--quiet", "--mode=root", "--variant=important",
            f"--include={','.join(PRESENT)}",
            f"--setup-hook=mkdir -p \"$1{named}\" && cp {links}/*.link \"$1{named}\"",
            f"--customize-hook=sh {offer} \"$1\" {' '.join(offered())}",
            SUITE, root, *sources,
        ]  # fmt: skip
        run(argv, log=root.parent / "mmdebstrap.log")


def fetch_wheels(folder: Path) -> None:
    """Download what the wheel of this checkout depends on, for the machine's Python."""
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in (17, 28, 34)]
    run(
        [
            sys.executable, "-m", "pip", "--quiet", "download", f"--dest={folder}",
            "--only-binary=:all:", f"--python-version={PYTHON}", "--implementation=cp",
            *platforms, "--platform=manylinux2014_x86_64", *wanted_wheels(),
        ]
    )  # fmt: skip
