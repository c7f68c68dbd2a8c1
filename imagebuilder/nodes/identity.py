# SPDX-License-Identifier: Apache-2.0
"""The permanent identity of a node, made once on the server: ssh host key and machine-id.

TREE/nodes/NAME/, readable only by root:

    ssh_host_ed25519_key  ssh_host_ed25519_key.pub  machine-id

Only one kind of key: the sshd of our images offers no other (overlays/ssh), ed25519 keys are made
in milliseconds, and every OpenSSH since 2014 supports them.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import HostError
from imagebuilder.files import make_private, place_file, read_plain, read_text, sync
from imagebuilder.process import run
from imagebuilder.tree import Tree

KEY = "ssh_host_ed25519_key"
PUBLIC = f"{KEY}.pub"
MACHINE_ID = "machine-id"
UNFINISHED = ".new"


@dataclass(frozen=True)
class Identity:
    """A node's private and public host key as OpenSSH writes them, and its machine-id (hex)."""

    key: bytes
    public: bytes
    machine_id: str


def make_identity(tree: Tree, name: str) -> Identity:
    """The identity of a node; makes only what is missing.  Raises HostError.

    The caller holds the lock of nodes.  A killed command leaves complete files only.
    """
    folder = tree.kept_node(name)
    make_private(folder)
    if not (folder / KEY).exists():
        make_key(folder, name)
    elif (folder / UNFINISHED).exists():  # a command was killed before it removed it
        shutil.rmtree(folder / UNFINISHED)
    if not (folder / PUBLIC).exists():
        public = run(["ssh-keygen", "-y", "-f", folder / KEY]).stdout
        place_file(folder / PUBLIC, public.encode())
    if not (folder / MACHINE_ID).exists():
        place_file(folder / MACHINE_ID, f"{uuid.uuid4().hex}\n".encode(), 0o444)
    return read_identity(folder)


def make_key(folder: Path, name: str) -> None:
    """Make the host key in `folder`; the private one, which counts, comes last."""
    work = folder / UNFINISHED
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(mode=0o700)
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"root@{name}", "-f", work / KEY])
    for file, mode in ((PUBLIC, 0o644), (KEY, 0o600)):
        place_file(folder / file, (work / file).read_bytes(), mode)
    shutil.rmtree(work)


def read_identity(folder: Path) -> Identity:
    """The identity in `folder`.  Raises HostError if it is damaged."""
    key, public = read_plain(folder / KEY), read_plain(folder / PUBLIC)
    machine_id = read_text(folder / MACHINE_ID).strip()
    damaged = [
        name
        for name, whole in (
            (KEY, key.startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----")),
            (PUBLIC, public.startswith(b"ssh-ed25519 ")),
            (MACHINE_ID, re.fullmatch(r"[0-9a-f]{32}", machine_id) is not None),
        )
        if not whole
    ]
    if damaged:
        raise HostError(
            f"{', '.join(damaged)}: damaged",
            where=str(folder),
            hint="restore it from a backup, or remove it: the node gets a new one",
        )
    return Identity(key, public, machine_id)


def records_of(tree: Tree, name: str) -> list[Path]:
    """The files that the tree keeps under a node's name, the identity last."""
    paths = (tree.health(name), tree.consoles(name), tree.kept_node(name))
    return [path for path in paths if os.path.lexists(path)]


def forget_node(tree: Tree, name: str) -> None:
    """Remove the identity of a node, its health history and its consoles.  Raises OSError.

    The identity goes last: as long as it exists, a killed command can be repeated.
    """
    for path in records_of(tree, name):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        sync(path.parent)
