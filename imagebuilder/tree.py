# SPDX-License-Identifier: Apache-2.0
"""The netboot tree: where releases, channels, roots and nodes' files live, and their names.

    TREE/                               IMAGEBUILDER_TREE, /srv/netboot
      nodes.yaml                        what people type about nodes and the menu
      tftp/                             iPXE binaries
      http/                             what the web server shows:
        boot.ipxe menu.ipxe             entry script and menu, rendered by `serve`
        releases/PROFILE/VERSION/       kernel, initrd, manifest, boot script; where nodes want them
                                        root.squashfs, root.erofs
        nodes/MAC/                      boot.ipxe node.img (MAC as 52-54-00-77-00-01)
        live/NAME/                      a distribution's live system
      channels/PROFILE/CHANNEL          symlink to ../../http/releases/PROFILE/VERSION
      roots/                            what is exported over NFS:
        PROFILE/VERSION/                the root: hard links into repo/
        PROFILE/VERSION.squashfs        a hard link to root.squashfs of the release, if it has one
      repo/                             OSTree repository of everything published
      nodes/NAME/                       what a node keeps: its ssh host keys, its machine-id
      serve/                            rendered configuration and state of the daemons
      given/ID.json                     words and digests of files that a node boots with, by name
      seen/MAC.json                     which release a node booted last
      health/NODE.json                  the last changes of what a node said of its health
      seen/strangers.json               what machines say they run that did not prove who they are
      seen/asked.json                   machines that asked our DHCP server and are in no nodes.yaml
      reports/PROFILE/VERSION/ID/       what a boot test of a release found
      rollouts/PROFILE.json             how far the last roll-out of a profile is
      kept/PROFILE/VERSION              a marker: gc leaves this release
      verified/PROFILE/VERSION.json     size and identity of a release's files when last verified
      work/ locks/                      staging, one folder a command; flock(2) files
      journal.jsonl                     every publish, promote, rollback and removal
      actions.jsonl actions/ID.log      what people did on the web page, and what the commands said

Only root may enter roots/, repo/, work/ and nodes/: servers of NFS run as root, and what lies there
would be a root's setuid programs, and keys, in reach of every user of this host.

A release is complete or absent: it exists when its folder below http/releases does.  Its boot
script and the nodes' cmdlines name versions, never channels.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import HostError
from imagebuilder.files import close, make_folder
from imagebuilder.rights import check_writable

DEFAULT_TREE = Path("/srv/netboot")
CANDIDATE, STABLE = "candidate", "stable"
CHANNELS = (CANDIDATE, STABLE)
SHARED = ".squashfs"
RECORD = re.compile(r"(?:[0-9a-f]{2}-){5}[0-9a-f]{2}\.json")  # a name in seen/
# The last one makes it a tree (publish/find.py): who is killed before has made none.
FOLDERS = (
    "tftp", "http/nodes", "http/live", "channels", "roots", "nodes", "serve",
    "seen", "reports", "kept", "verified", "work", "locks", "http/releases",
)  # fmt: skip

PRIVATE = ("nodes", "roots", "repo", "work")
LATER = ("repo", "given", "health", "rollouts", "actions", "serve/consoles")  # made when needed


@dataclass(frozen=True, order=True)
class ReleaseName:
    """`profile@version`."""

    profile: str
    version: str

    def __str__(self) -> str:
        return f"{self.profile}@{self.version}"


@dataclass(frozen=True)
class Tree:
    """The tree at `path`, absolute; make_tree() makes it."""

    path: Path

    @property
    def nodes_file(self) -> Path:
        return self.path / "nodes.yaml"

    @property
    def http(self) -> Path:
        return self.path / "http"

    @property
    def tftp(self) -> Path:
        return self.path / "tftp"

    @property
    def roots(self) -> Path:
        return self.path / "roots"

    @property
    def repo(self) -> Path:
        return self.path / "repo"

    @property
    def serve(self) -> Path:
        return self.path / "serve"

    @property
    def journal(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def actions(self) -> Path:
        return self.path / "actions.jsonl"

    def action_log(self, action: str) -> Path:
        """What the command of an action said; locked while it runs."""
        return self.path / "actions" / f"{action}.log"

    @property
    def given(self) -> Path:
        return self.path / "given"

    def release(self, release: ReleaseName) -> Path:
        return self.http / "releases" / release.profile / release.version

    def published(self, release: ReleaseName) -> float:
        """When a release came into this tree, in seconds since 1970; 0 when it is gone.

        Versions begin with the time of a lock: images of one lock differ in a digest alone.
        """
        try:
            return self.release(release).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def root(self, release: ReleaseName) -> Path:
        return self.roots / release.profile / release.version

    def shared_squashfs(self, release: ReleaseName) -> Path:
        return self.roots / release.profile / f"{release.version}{SHARED}"

    def channel(self, profile: str, channel: str) -> Path:
        return self.path / "channels" / profile / channel

    def served_node(self, mac: str) -> Path:
        """The folder of what a NIC's owner fetches; `mac` with colons."""
        return self.http / "nodes" / hyphened(mac)

    def kept_node(self, name: str) -> Path:
        return self.path / "nodes" / name

    def seen(self, mac: str) -> Path:
        """What is known of the last boot of a NIC's owner; `mac` with colons."""
        return self.path / "seen" / f"{hyphened(mac)}.json"

    def health(self, node: str) -> Path:
        """The last changes of what a node said of its own health."""
        return self.path / "health" / f"{node}.json"

    @property
    def strangers(self) -> Path:
        """What machines told of themselves that did not prove which node they are."""
        return self.path / "seen" / "strangers.json"

    @property
    def asked(self) -> Path:
        """Machines that asked our DHCP server and are in no nodes.yaml."""
        return self.path / "seen" / "asked.json"

    @property
    def reports_log(self) -> Path:
        """What the web server notes of reports and of tickets that it gave; for root alone."""
        return self.serve / "reports.log"

    @property
    def reports_mark(self) -> Path:
        return self.serve / "reports.offset"

    @property
    def tickets(self) -> Path:
        """The tickets of the nodes' last boots; for root alone."""
        return self.serve / "tickets.json"

    @property
    def boots(self) -> Path:
        """What nodes became ready with, and what they did not."""
        return self.serve / "boots.json"

    def consoles(self, node: str) -> Path:
        """What a node's kernel said in its last boots; for root alone."""
        return self.serve / "consoles" / node

    def reports(self, release: ReleaseName) -> Path:
        return self.path / "reports" / release.profile / release.version

    def kept(self, release: ReleaseName) -> Path:
        """The file whose presence keeps a release."""
        return self.path / "kept" / release.profile / release.version

    def verified(self, release: ReleaseName) -> Path:
        """What a release's files looked like when their content was last verified."""
        return self.path / "verified" / release.profile / f"{release.version}.json"

    def rollout(self, profile: str) -> Path:
        """How far the last roll-out of a profile is."""
        return self.path / "rollouts" / f"{profile}.json"

    def lock(self, name: str) -> Path:
        return self.path / "locks" / name


def hyphened(mac: str) -> str:
    """A MAC address as iPXE's `${mac:hexhyp}` has it, fit for URLs."""
    return mac.lower().replace(":", "-")


def make_tree(path: Path) -> Tree:
    """The tree at `path`, its folders made where missing.  Raises RootError and HostError."""
    tree = Tree(path.absolute())
    check_writable(tree.path)
    check_folders(tree)
    try:
        for folder in FOLDERS:
            make_folder(tree.path / folder)
        close_tree(tree)
    except OSError as error:
        raise HostError(
            f"cannot make the netboot tree: {error.strerror}",
            where=error.filename or os.fspath(tree.path),
            hint="name another place with --tree or IMAGEBUILDER_TREE",
        ) from error
    return tree


def check_folders(tree: Tree) -> None:
    """Raise HostError where a symlink has the place of a folder of the tree.

    Root writes into these folders, and removes what is in them: with a link it would do so wherever
    the link leads.  The names of releases share files, so they cannot be on two disks either.
    """
    for name in ("http", *FOLDERS, *LATER):
        folder = tree.path / name
        if folder.is_symlink():
            raise HostError(
                f"is a symlink to {folder.readlink()}; a netboot tree needs a folder here",
                where=os.fspath(folder),
                hint="remove the link and move the folder back; mount --bind shows another disk in"
                " its place",
            )


def close_tree(tree: Tree) -> None:
    """Take the folders that are root's alone from others.  Raises OSError."""
    for name in PRIVATE:
        close(tree.path / name)
