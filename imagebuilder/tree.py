# SPDX-License-Identifier: Apache-2.0
"""The netboot tree: where releases, channels, roots and nodes' files live, and their names.

    TREE/                               IMAGEBUILDER_TREE, /srv/netboot
      nodes.yaml                        what people type about nodes and the menu
      tftp/                             iPXE binaries
      http/                             the files of the web server:
        boot.ipxe menu.ipxe             entry script and menu, rendered by `serve`
        releases/PROFILE/VERSION/       kernel, initrd, manifest, boot script; where nodes want them
                                        root.squashfs, root.erofs
        nodes/MAC/                      boot.ipxe node.img (MAC as 52-54-00-77-00-01)
        live/NAME/                      a distribution's live system
      channels/PROFILE/CHANNEL          symlink to ../../http/releases/PROFILE/VERSION
      roots/                            exported over NFS:
        PROFILE/VERSION/                the root: hard links into repo/
        PROFILE/VERSION.squashfs        a hard link to root.squashfs of the release, if it has one
      repo/                             OSTree repository of everything published
      nodes/NAME/                       a node's permanent ssh host keys and machine-id
      serve/                            rendered configuration and state of the daemons
      given/ID.json                     configuration that a node boots with: words, file digests
      seen/MAC.json                     which release a node booted last
      health/NODE.json                  the last changes of a node's health
      seen/strangers.json               unverified reports of what machines run
      seen/asked.json                   DHCP clients that are not in nodes.yaml
      reports/PROFILE/VERSION/ID/       the report of a boot test
      rollouts/PROFILE.json             the progress of the last roll-out of a profile
      kept/PROFILE/VERSION              a marker: gc keeps this release
      verified/PROFILE/VERSION.json     size and identity of a release's files when last verified
      work/ locks/                      staging, one folder per command; flock(2) files
      journal.jsonl                     every publish, promote, rollback and removal
      reserve                           1 MiB, freed to remove releases from a full disk
      actions.jsonl actions/ID.log      actions on the web page, and the output of their commands

Only root may enter roots/, repo/, work/ and nodes/: they contain setuid programs and keys, which
other users of this host must not reach.  NFS servers run as root.

A release is complete or absent: it exists when its folder below http/releases does.  Its boot
script and the nodes' cmdlines name versions, never channels.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from imagebuilder.errors import HostError
from imagebuilder.files import close, make_folder
from imagebuilder.rights import check_writable

DEFAULT_TREE = Path("/srv/netboot")
CANDIDATE, STABLE = "candidate", "stable"
CHANNELS = (CANDIDATE, STABLE)
SHARED = ".squashfs"
MAC = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}")
HYPHENED = re.compile(r"[0-9a-f]{2}(?:-[0-9a-f]{2}){5}")  # the folder of a NIC below http/nodes
RECORD = re.compile(rf"{HYPHENED.pattern}\.json")  # a name in seen/
# The last one makes it a tree (publish/find.py); a command that is killed before made none.
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


class Released:
    """What has the profile and the version of a release."""

    profile: str
    version: str

    @property
    def release(self) -> ReleaseName:
        return ReleaseName(self.profile, self.version)

    @property
    def name(self) -> str:
        """`profile@version`."""
        return str(self.release)


# A profile or a version, wherever it is read; recipe/rules.py is stricter with new ones.
NAME = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}"
# What OSTree ignores among refs, and what lies beside a root under its name.
TAKEN = re.compile(r"tmp\..*|.*\.(squashfs|erofs)")


def is_name(text: str) -> bool:
    """Whether this can be a profile or a version: the name of a folder, a ref and part of a URL."""
    return bool(re.fullmatch(NAME, text)) and not TAKEN.fullmatch(text)


def check_name(text: str) -> str:
    """A profile or a version that a file says; it becomes a path.  Raises ValueError."""
    if not is_name(text):
        raise ValueError("is not the name of a profile or a version")
    return text


def check_release(text: str) -> str:
    """PROFILE@VERSION that a file says, or empty.  Raises ValueError."""
    profile, _, version = text.partition("@")
    if text and not (is_name(profile) and is_name(version)):
        raise ValueError("is not PROFILE@VERSION")
    return text


Name = Annotated[str, AfterValidator(check_name)]
ReleaseText = Annotated[str, AfterValidator(check_release)]


class Below:
    """A path of a tree, by its name there."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, tree: Tree, _: type[Tree]) -> Path:
        return tree.path / self.name


@dataclass(frozen=True)
class Tree:
    """The tree at `path`, absolute; make_tree() makes it."""

    path: Path

    nodes_file = Below("nodes.yaml")
    http = Below("http")
    tftp = Below("tftp")
    roots = Below("roots")
    repo = Below("repo")
    serve = Below("serve")
    journal = Below("journal.jsonl")
    actions = Below("actions.jsonl")
    node_configs = Below("given")
    strangers = Below("seen/strangers.json")  # unverified reports of what machines run
    dhcp_clients = Below("seen/asked.json")  # DHCP clients that are not in nodes.yaml
    reports_mark = Below("serve/reports.offset")
    boots = Below("serve/boots.json")  # the releases nodes became ready with, or failed to boot
    reserve = Below("reserve")  # space for removing releases from a full disk
    # Readable only for root: the web server's log of reports, the tickets of the nodes' last boots.
    reports_log = Below("serve/reports.log")
    tickets = Below("serve/tickets.json")

    def action_log(self, action: str) -> Path:
        """The output of an action's command; locked while it runs."""
        return self.path / "actions" / f"{action}.log"

    def release(self, release: ReleaseName) -> Path:
        return self.http / "releases" / release.profile / release.version

    def published(self, release: ReleaseName) -> float:
        """When a release was published in this tree, in seconds since 1970; 0 if it is gone.

        Versions cannot tell: they begin with the time of a lock, which images may share.
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
        """The folder of the files for a NIC; `mac` with colons."""
        return self.http / "nodes" / hyphened(mac)

    def kept_node(self, name: str) -> Path:
        return self.path / "nodes" / name

    def seen(self, mac: str) -> Path:
        """The record of the last boot of a NIC's owner; `mac` with colons."""
        return self.path / "seen" / f"{hyphened(mac)}.json"

    def health(self, node: str) -> Path:
        """The last changes of a node's health."""
        return self.path / "health" / f"{node}.json"

    def consoles(self, node: str) -> Path:
        """The kernel messages of a node's last boots; readable only for root."""
        return self.serve / "consoles" / node

    def reports(self, release: ReleaseName) -> Path:
        return self.path / "reports" / release.profile / release.version

    def kept(self, release: ReleaseName) -> Path:
        """The file whose presence keeps a release."""
        return self.path / "kept" / release.profile / release.version

    def verified(self, release: ReleaseName) -> Path:
        """The identities of a release's files when they were last verified."""
        return self.path / "verified" / release.profile / f"{release.version}.json"

    def rollout(self, profile: str) -> Path:
        """The state of the last roll-out of a profile."""
        return self.path / "rollouts" / f"{profile}.json"

    def lock(self, name: str) -> Path:
        return self.path / "locks" / name


def hyphened(mac: str) -> str:
    """A MAC address in the form of iPXE's `${mac:hexhyp}`, for URLs."""
    return mac.lower().replace(":", "-")


def make_tree(path: Path) -> Tree:
    """The tree at `path`; makes missing folders.  Raises RootError and HostError."""
    tree = Tree(path.absolute())
    check_writable(tree.path)
    check_folders(tree)
    try:
        for folder in FOLDERS:
            make_folder(tree.path / folder)
        close_tree(tree)
    except OSError as error:
        raise HostError(
            f"could not make the netboot tree: {error.strerror}",
            where=error.filename or os.fspath(tree.path),
            hint="name another folder with --tree or IMAGEBUILDER_TREE",
        ) from error
    return tree


def check_folders(tree: Tree) -> None:
    """Raise HostError if a symlink replaces a folder of the tree.

    Root writes and removes files in these folders, and would do so wherever a link points.
    Releases share files by hard links, so they cannot be on two disks either.
    """
    for name in ("http", *FOLDERS, *LATER):
        folder = tree.path / name
        if folder.is_symlink():
            raise HostError(
                f"is a symlink to {folder.readlink()}; a netboot tree needs a folder here",
                where=os.fspath(folder),
                hint="remove the link and move the folder back; to use another disk, use mount "
                "--bind",
            )


def close_tree(tree: Tree) -> None:
    """Make the private folders accessible only for root.  Raises OSError."""
    for name in PRIVATE:
        close(tree.path / name)
