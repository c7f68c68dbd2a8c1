# SPDX-License-Identifier: Apache-2.0
"""Remove kernel modules that no node of the profile needs; depmod(8) must run afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from imagebuilder.root import Root
from imagebuilder.slim.types import (
    Kept,
    Kind,
    SlimError,
    SlimOrder,
    Told,
    Unmatched,
    entries_below,
    remove,
    remove_empty,
)

MODULE = re.compile(r"\.ko(\.(xz|zst|gz))?$")


def slim_modules(root: Root, order: SlimOrder) -> Iterator[Told]:
    """Remove the modules of the globs, except those that other modules need.

    A glob that matches nothing is only reported, because kernels have different modules.
    """
    if not order.modules:
        return
    top = root.resolve(f"/usr/lib/modules/{order.kernel}")
    if top is None:
        raise SlimError(f"the root has no modules of the kernel {order.kernel}")
    named: dict[str, None] = {}
    for glob in order.modules:
        found = list(modules_of(root, f"{top}/{glob}"))
        if not found:
            yield Unmatched(f"{top}/{glob}")
        named |= {name.removeprefix(f"{top}/"): None for name in found}
    depends = read_depends(root.text(f"{top}/modules.dep"))
    unlisted = [name for name in named if name not in depends]
    if unlisted:
        raise SlimError(
            f"{unlisted[0]} is not in modules.dep of {order.kernel}",
            f"run depmod {order.kernel} after adding the module",
        )
    needed = {
        below: name
        for name, lower in sorted(depends.items(), reverse=True)
        if name not in named
        for below in lower
    }
    for name in named:
        if name in needed:
            yield Kept(f"{top}/{name}", f"{needed[name]} needs it")
        else:
            yield remove(root, f"{top}/{name}", Kind.MODULES)
    for glob in order.modules:
        for folder in root.glob(f"{top}/{glob}"):
            remove_empty(root, folder)


def modules_of(root: Root, glob: str) -> Iterator[str]:
    """The modules that a glob matches, or that are below a matching folder."""
    for name in root.glob(glob):
        for each in entries_below(root, name) if root.is_dir(name) else [name]:
            if MODULE.search(each):
                yield each


def read_depends(text: str) -> Mapping[str, tuple[str, ...]]:
    """modules.dep(5): each module with all modules that it needs, directly or indirectly."""
    rows = (line.partition(":") for line in text.splitlines())
    return {name: tuple(lower.split()) for name, _, lower in rows}
