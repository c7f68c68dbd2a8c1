# SPDX-License-Identifier: Apache-2.0
"""The far end of `publish --to`: says what this tree has, takes objects in, publishes them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from imagebuilder import __version__
from imagebuilder.digest import Json
from imagebuilder.errors import HostError, InputError, WorkError
from imagebuilder.image.types import SCHEMA, read_image
from imagebuilder.process import check_tools
from imagebuilder.publish.carried import list_ids
from imagebuilder.publish.find import ReleaseName, changing
from imagebuilder.publish.gate import check_reason, pass_gate
from imagebuilder.publish.release import Published, drop_leftovers, publish
from imagebuilder.publish.remote import PREFIX, PROTOCOL
from imagebuilder.publish.repo import make_scratch, open_repo, pull_verified
from imagebuilder.publish.wire import unpack_objects
from imagebuilder.rights import check_root
from imagebuilder.rootkind import Format
from imagebuilder.store.repository import ImageRef, Store
from imagebuilder.store.workplace import new_id, workplace
from imagebuilder.tree import Tree
from imagebuilder.ui import Ui

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
CALLED = "imagebuilder publish --to calls this; --have says what the tree has"
COMMIT = re.compile(r"[0-9a-f]{64}")


def check_fit() -> None:
    """Raise HostError unless objects can be taken in here: root, and the tools."""
    check_root("receiving a release, whose files keep their owners,")
    check_tools("ostree", "tar", "zstd")


def describe(tree: Tree, name: str = "", *, objects: bool = False) -> Mapping[str, Json]:
    """What the sender asks: versions, refs and their commits, free bytes; of `name` its reports.

    With `objects` also the start of the name of every object.
    """
    there = next(p for p in (tree.path, *tree.path.parents) if p.is_dir())
    heads = Store(tree.repo).refs("") if tree.repo.is_dir() else {}
    answer: dict[str, Json] = {
        "protocol": PROTOCOL,
        "schema": SCHEMA,
        "version": __version__,
        "tree": os.fspath(tree.path),
        "free": shutil.disk_usage(there).free,
        "refs": heads,
        "reports": list_ids(tree, check_name(name)) if name else None,
    }
    if objects:
        names = (tree.repo / "objects").glob("??/*")
        answer["objects"] = [(p.parent.name + p.name)[:PREFIX] for p in names]
    return answer


def receive(
    tree: Tree,
    image: ImageRef,
    stream: IO[bytes],
    ui: Ui,
    *,
    channel: str,
    formats: Sequence[Format] = (),
    untested: str = "",
) -> Published:
    """Take the objects of `image` in from `stream` and publish it.

    They are unpacked beside the tree's repository, and enter it only when every checksum fits.
    Raises WorkError when something is missing or was tampered with: nothing is published then.
    What may not become stable is refused before anything is read.
    """
    check_reason(untested)
    if not untested:
        pass_gate(tree, ReleaseName(image.profile, image.version), ui, channel=channel)

    def publish_here(repo: Store) -> Published:
        return publish(repo, image, tree, ui, channel=channel, formats=formats, untested=untested)

    try:
        return take_in(tree, image, stream, ui, publish_here)
    except HostError:
        drop_leftovers(tree)
        raise


def take_in(
    tree: Tree,
    image: ImageRef,
    stream: IO[bytes],
    ui: Ui,
    publish_here: Callable[[Store], Published],
) -> Published:
    """receive() without the clearing up; `publish_here` comes while nothing is removed."""
    with changing(tree, ui), workplace(tree.path, new_id("receive")) as place:
        repo = open_repo(tree)
        scratch = make_scratch(repo, place / "repo")
        with ui.step(f"receive {image.name}"):
            unpack_objects(stream, scratch.path / "objects")
        with ui.step("verify"):
            verify(scratch, repo, image)
        return publish_here(repo)


def verify(scratch: Store, repo: Store, image: ImageRef) -> None:
    """Bring an image and its root from `scratch` into `repo`, every object checked."""
    try:
        pull_verified(scratch, repo, image.commit)
        pull_verified(scratch, repo, read_image(scratch, image).root.commit)
    except WorkError as error:
        raise WorkError(
            f"{image.name} did not arrive as it was sent; nothing was published\n"
            f"{error.faults[0].what}",
            hint="publish again; if that does not help, run imagebuilder fsck on the sender",
        ) from error


def image_named(name: str, commit: str) -> ImageRef:
    """`profile@version` and its commit as a box.  Raises InputError."""
    if not COMMIT.fullmatch(commit):
        raise InputError("is not a commit", where=repr(commit), hint=CALLED)
    profile, _, version = check_name(name).partition("@")
    return ImageRef(profile, version, commit)


def check_name(name: str) -> str:
    """`profile@version` as it is.  Raises InputError for anything else."""
    profile, _, version = name.partition("@")
    if not (NAME.fullmatch(profile) and NAME.fullmatch(version)):
        raise InputError("is not PROFILE@VERSION", where=repr(name), hint=CALLED)
    return name
