# SPDX-License-Identifier: Apache-2.0
"""A shell in the sandbox: on top of an image, or in the tree of a build that failed."""

from __future__ import annotations

import os
from pathlib import Path

from imagebuilder.build import check_root
from imagebuilder.errors import InputError
from imagebuilder.inventory import open_store
from imagebuilder.process import become
from imagebuilder.sandbox import Sandbox
from imagebuilder.settings import Settings
from imagebuilder.store.locks import held
from imagebuilder.store.workplace import KEPT, new_id, remove_tree, workplace


def look_at_image(settings: Settings, name: str, command: str) -> int:
    """Run a shell (or `sh -c command`) on the image; returns its exit status."""
    check_root()
    store = open_store(settings)
    image = store.image(name)
    manifest = store.manifest(image)
    root, epoch = manifest["root"], manifest["epoch"]
    assert isinstance(root, dict)
    assert isinstance(epoch, int)
    with (
        held(settings.state / "locks" / "gc", shared=True),
        workplace(settings.state, new_id(f"shell-{image.profile}")) as work,
    ):
        store.checkout(root["commit"], work / "root")
        sandbox = Sandbox(work, ("root",), "changes", epoch)
        return become(shell_words(work / "root", command), sandbox=sandbox)


def look_at_failed(settings: Settings, name: str, command: str) -> int:
    """Run a shell in the tree that a failed step of the build `name` left, changes thrown away."""
    check_root()
    place = settings.state / "work" / name
    kept = place / KEPT
    if not kept.is_file():
        there = sorted(p.parent.name for p in place.parent.glob(f"*/{KEPT}"))
        raise InputError(
            f"no failed build {name} was kept",
            hint=f"there are: {', '.join(there)}" if there else "use build --keep-failed",
        )
    lowers = kept.read_text().split()
    sandbox = Sandbox(place, tuple(lowers), f"look-{os.getpid()}", 0)
    with held(settings.state / "locks" / "gc", shared=True):
        try:
            return become(shell_words(place / lowers[-1], command), sandbox=sandbox)
        finally:
            for made in (sandbox.upper, sandbox.scratch, sandbox.merged):
                remove_tree(place / made)


def shell_words(root: Path, command: str) -> list[str]:
    """The command line of the shell: what the root has, or `sh -c`."""
    if command:
        return ["sh", "-c", command]
    return ["bash", "-l"] if os.path.lexists(root / "usr/bin/bash") else ["sh", "-l"]
