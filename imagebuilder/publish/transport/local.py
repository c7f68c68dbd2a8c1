# SPDX-License-Identifier: Apache-2.0
"""A tree on this machine: on a portable disk, or the receiving end of ssh.

Objects go into a temporary repository beside the tree's own, which takes them only if every
checksum matches; then publish() makes the release, as if the image were built here.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import IO

from imagebuilder import __version__
from imagebuilder.decode import MAX_BYTES, encode_box
from imagebuilder.digest import Json
from imagebuilder.errors import HostError, ImagebuilderError, InputError, WorkError
from imagebuilder.folders import matching
from imagebuilder.image.types import COMMIT, MANIFEST, read_image
from imagebuilder.process import check_tools
from imagebuilder.publish.channel.gate import check_reason, pass_gate
from imagebuilder.publish.channel.move import check_channel
from imagebuilder.publish.find import changing
from imagebuilder.publish.publish import drop_leftovers, publish
from imagebuilder.publish.release.repo import (
    Commits,
    copy_objects,
    make_scratch,
    move_objects,
    open_repo,
    verify_objects,
)
from imagebuilder.publish.transport.protocol import PREFIX, Activated, Order, PlaceContents
from imagebuilder.publish.transport.reports import KeptReports, list_ids, take_reports
from imagebuilder.publish.transport.stream import unpack_objects
from imagebuilder.rights import check_root, check_roots_alone
from imagebuilder.settings import find_caller
from imagebuilder.store.repository import ImageRef, Store
from imagebuilder.store.verify import objects_in
from imagebuilder.store.workplace import new_id, workplace
from imagebuilder.tree import FOLDERS, Tree, is_name, make_tree
from imagebuilder.ui import Ui

# Increase this if the input, output or arguments of `receive` change.
PROTOCOL = 4
CALLED = "imagebuilder publish --to calls this; --have says what the tree has"
SIZE = 3  # after mode, owner and group in a line of ostree ls


@dataclass(frozen=True)
class LocalArrival:
    """An image that is received in `scratch` for the repository of a tree.

    Releases may be removed until verify() has read every object; then `stack` keeps them.  So a
    sender that never ends keeps nobody from changing the tree.
    """

    tree: Tree
    image: ImageRef
    order: Order
    repo: Store
    scratch: Store
    ui: Ui
    stack: ExitStack

    def send(self, source: Store, objects: Sequence[str]) -> int:
        """Copy these objects."""
        with self.ui.step(f"Copying {self.image.name}"):
            deque(copy_objects(source, objects, self.scratch), maxlen=0)
        return sum((source.path / "objects" / name).lstat().st_size for name in objects)

    def unpack(self, stream: IO[bytes], first: bytes) -> None:
        """Take the objects from a stream, of which `first` was read.

        Raises WorkError if the stream is invalid.
        """
        with self.ui.step(f"Receiving {self.image.name}"):
            unpack_objects(stream, self.scratch.path / "objects", first)

    def verify(self) -> None:
        """Verify every object, then give them to the tree's repository.

        Raises WorkError for one that is damaged or missing: a removal may have taken those that the
        sender saw in the tree.
        """
        try:
            with self.ui.step(f"Verifying {self.image.name}"):
                verify_objects(self.scratch, objects_in(self.scratch.path))
                self.stack.enter_context(changing(self.tree, self.ui))
                check_manifest(self.scratch, self.image)
                root = read_image(self.scratch, self.image).root.commit
                move_objects(self.scratch, self.repo, Commits(self.image.commit, root))
        except WorkError as error:
            raise WorkError(
                f"{self.image.name} was damaged in transit; nothing was published\n"
                f"{error.faults[0].what}",
                hint="publish again; if that does not help, run imagebuilder fsck on the sender, "
                "and imagebuilder fsck --tree on the receiver",
            ) from error

    def activate(self) -> Activated:
        """Publish the image from the tree's own repository."""
        order = self.order
        done = publish(
            self.repo, self.image, self.tree, self.ui,
            channel=order.channel, formats=order.formats, untested=order.untested,
        )  # fmt: skip
        return Activated(done.as_json(), done.render())


@dataclass(frozen=True)
class LocalTree:
    """A tree on this machine, made when the first image arrives."""

    tree: Tree

    @property
    def name(self) -> str:
        return self.where

    @property
    def where(self) -> str:
        return os.fspath(self.tree.path)

    @property
    def keeps_reports(self) -> bool:
        return True

    def check(self) -> None:
        """Raise HostError unless this is root and the tools are installed."""
        check_root("receiving a release, whose files keep their owners,")
        check_tools("ostree", "tar", "zstd")

    def list(self, image: ImageRef | None) -> PlaceContents:
        """Refs and their commits, free bytes; of `image` its reports."""
        tree = self.tree
        there = next(p for p in (tree.path, *tree.path.parents) if p.is_dir())
        return PlaceContents(
            refs=Store(tree.repo).refs("") if tree.repo.is_dir() else {},
            free=shutil.disk_usage(there).free,
            reports=list_ids(tree, image.release) if image else None,
        )

    def have(self) -> frozenset[str]:
        """The start of the name of every object."""
        names = matching(self.tree.repo / "objects", "??/*")
        return frozenset((path.parent.name + path.name)[:PREFIX] for path in names)

    @contextmanager
    def arrival(self, image: ImageRef, order: Order, ui: Ui) -> Iterator[LocalArrival]:
        """A temporary repository for an image.  Raises WorkError if it may not become stable."""
        check_channel(order.channel)
        check_reason(order.untested)
        tree = make_tree(self.tree.path)
        if not order.untested:
            pass_gate(tree, image.release, ui, channel=order.channel)
        try:
            with workplace(tree.path, new_id("receive")) as place, ExitStack() as stack:
                repo = open_repo(tree)
                scratch = make_scratch(repo, place / "repo")
                yield LocalArrival(tree, image, order, repo, scratch, ui, stack)
        except ImagebuilderError:
            drop_leftovers(tree)  # objects that no release has, and no list shows
            raise

    def add_reports(self, image: ImageRef, lines: bytes, ui: Ui) -> KeptReports:
        """Keep boot tests of the bytes that are published here."""
        return take_reports(self.tree, image.name, BytesIO(lines), ui)


def check_called(tree: Tree, env: Mapping[str, str]) -> None:
    """Raise HostError unless whoever called sudo may have root write into this tree.

    sudo may let them run `receive` and nothing else, and they choose the tree.
    """
    if find_caller(env) is None:
        return
    check_roots_alone(tree.path)
    is_tree = (tree.path / FOLDERS[-1]).is_dir()
    if not is_tree and tree.path.exists() and any(tree.path.iterdir()):
        raise HostError(
            "is neither a netboot tree nor an empty folder",
            where=os.fspath(tree.path),
            hint="name the tree that the nodes are served from, or a new folder",
        )


def check_manifest(scratch: Store, image: ImageRef) -> None:
    """Raise WorkError if the manifest is too large to be read: what it says is held in memory."""
    listed = scratch.ostree("ls", image.commit, "/manifest.json").split()
    if not (len(listed) > SIZE and listed[SIZE].isdecimal() and int(listed[SIZE]) <= MAX_BYTES):
        raise WorkError(f"its manifest is not a file of at most {MAX_BYTES >> 20} MiB")


def describe(place: LocalTree, name: str, *, objects: bool) -> Mapping[str, Json]:
    """The answer to a sender's question: versions and list(); with `objects` also have()."""
    ref = image_named(name, "") if name else None
    answer: dict[str, Json] = {
        "protocol": PROTOCOL,
        "schema": MANIFEST.schema,
        "version": __version__,
        "tree": place.where,
        **encode_box(place.list(ref)),
    }
    return answer | ({"objects": sorted(place.have())} if objects else {})


def image_named(name: str, commit: str) -> ImageRef:
    """Parse `profile@version` and its commit (may be ""). Raises InputError."""
    profile, _, version = name.partition("@")
    if not (is_name(profile) and is_name(version)):
        raise InputError("is not PROFILE@VERSION", where=repr(name), hint=CALLED)
    if commit and not re.fullmatch(COMMIT, commit):
        raise InputError("is not a commit", where=repr(commit), hint=CALLED)
    return ImageRef(profile, version, commit)
