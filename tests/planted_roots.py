# SPDX-License-Identifier: Apache-2.0
"""The repository behind a release that was made by hand: the commit of its empty root."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from imagebuilder.store.objects import SUM, dirmeta_sum, object_path
from imagebuilder.tree import ReleaseName, Tree

EMPTY = b"\0"  # a dirtree without files and folders: nothing, and where the nothing ends


def plant_root(tree: Tree, profile: str, version: str) -> str:
    """Make an empty root and its commit in the tree's repository; the commit."""
    root = tree.root(ReleaseName(profile, version))
    root.mkdir(parents=True)
    dirtree = write_object(tree.repo, EMPTY, "dirtree")
    sums = bytes.fromhex(dirtree + dirmeta_sum(os.fspath(root)))
    # No metadata, parent or related commits; an empty subject and body; a time that tells versions.
    time = hashlib.sha256(version.encode()).digest()[:8]
    body = b"\0\0" + b"\0" * 6 + time + sums
    ends = (len(body) - SUM, 2, 1, 0, 0, 0)
    commit = write_object(tree.repo, body + bytes(ends), "commit")
    ref = tree.repo / "refs/heads/root" / profile / version
    ref.parent.mkdir(parents=True, exist_ok=True)
    ref.write_text(f"{commit}\n")
    return commit


def write_object(repo: Path, content: bytes, kind: str) -> str:
    """Write an object; its checksum."""
    checksum = hashlib.sha256(content).hexdigest()
    path = repo / "objects" / object_path(checksum, kind)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return checksum
