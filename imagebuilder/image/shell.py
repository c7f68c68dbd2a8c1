# SPDX-License-Identifier: Apache-2.0
"""A shell in the sandbox: on top of an image, or in the tree of a build that failed."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from imagebuilder.errors import InputError
from imagebuilder.files import read_text
from imagebuilder.folders import matching
from imagebuilder.image.types import read_image
from imagebuilder.locks import file_lock
from imagebuilder.process import become
from imagebuilder.rights import check_root
from imagebuilder.sandbox.sandbox import Sandbox
from imagebuilder.settings import Settings
from imagebuilder.store.repository import Store
from imagebuilder.store.state import checked_out, open_store
from imagebuilder.store.workplace import KEPT, remove_tree

# A terminal that every root describes (ncurses-base).
ORDINARY = "xterm"
TERMINALS = ("usr/share/terminfo", "usr/lib/terminfo", "etc/terminfo")


def run_image_shell(settings: Settings, name: str, command: str, *, network: bool = False) -> int:
    """Run a shell (or `sh -c command`) on the image; returns its exit status.

    With `network` it has the builder's network, and its names.
    """
    check_root("a shell in an image")
    store = open_store(settings)
    image = read_image(store, store.image(name))
    purpose = f"shell-{image.profile}"
    with checked_out(settings, store, image.root.commit, purpose) as work:
        env = (("TERM", terminal_of([work / "root"])),)
        sandbox = Sandbox(work, ("root",), "changes", image.epoch, network=network, env=env)
        return become(shell_words(work / "root", command), sandbox=sandbox)


def run_failed_shell(settings: Settings, name: str, command: str, *, network: bool = False) -> int:
    """Run a shell in the tree that a failed step of the build `name` left, changes thrown away."""
    check_root("a shell in an image")
    place = settings.state / "work" / name
    kept = place / KEPT
    if not kept.is_file():
        there = sorted(p.parent.name for p in matching(place.parent, f"*/{KEPT}"))
        raise InputError(
            f"no failed build {name} was kept",
            hint=f"there are: {', '.join(there)}" if there else "use build --keep-failed",
        )
    lowers = read_text(kept).split()
    env = (("TERM", terminal_of([place / lower for lower in lowers])),)
    upper = f"look-{os.getpid()}"
    sandbox = Sandbox(place, tuple(lowers), upper, 0, network=network, env=env)
    with file_lock(Store(settings.state / "store").gc_lock, shared=True):
        try:
            return become(shell_words(place / lowers[-1], command), sandbox=sandbox)
        finally:
            for made in (sandbox.upper, sandbox.scratch, sandbox.merged):
                remove_tree(place / made)


def terminal_of(layers: Sequence[Path]) -> str:
    """The person's TERM if the root describes that terminal, else one that every root does."""
    term = os.environ.get("TERM", "")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.+_-]*", term):
        return "dumb"
    places = (f"{folder}/{term[0]}/{term}" for folder in TERMINALS)
    known = any(os.path.lexists(layer / place) for place in places for layer in layers)
    return term if known or term == "dumb" else ORDINARY


def shell_words(root: Path, command: str) -> list[str]:
    """The command line of the shell: what the root has, or `sh -c`."""
    if command:
        return ["sh", "-c", command]
    return ["bash", "-l"] if os.path.lexists(root / "usr/bin/bash") else ["sh", "-l"]
