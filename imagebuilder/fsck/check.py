# SPDX-License-Identifier: Apache-2.0
"""`fsck` of store and pool, and of the tree if requested."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from imagebuilder.fsck.pool import check_pool
from imagebuilder.fsck.store import check_store
from imagebuilder.fsck.tree import check_tree
from imagebuilder.fsck.types import Checked, together
from imagebuilder.locks import file_lock
from imagebuilder.publish.find import open_tree
from imagebuilder.rights import check_root
from imagebuilder.settings import Settings
from imagebuilder.store.repository import Store
from imagebuilder.store.state import open_store
from imagebuilder.tree import Tree
from imagebuilder.ui import Ui


def check_all(settings: Settings, ui: Ui, place: Path, *, with_tree: bool, repair: bool) -> Checked:
    """Verify (with `repair` also repair) the store and the pool, and `with_tree` that at `place`.

    A host that only serves has no store.  Raises InputError without anything to verify, HostError
    if it needs root.
    """
    if repair:
        check_root("repairing")
    parts: list[Checked] = []
    store = Store(settings.state / "store")
    tree = open_tree(place) if with_tree else Tree(place.absolute())
    if not with_tree or store.path.is_dir():
        parts += check_state(settings, ui, tree, repair=repair)
    if with_tree:
        with ExitStack() as stack:
            stack.enter_context(file_lock(tree.lock("gc"), shared=not repair))
            with ui.step("Verifying the tree"):
                parts.append(check_tree(tree, repair=repair, donors=(store.path,)))
    return together(parts)


def check_state(settings: Settings, ui: Ui, tree: Tree, *, repair: bool) -> list[Checked]:
    store = open_store(settings)

    def waiting() -> None:
        ui.note("another command uses the store: waiting for it")

    with file_lock(store.gc_lock, shared=not repair, waiting=waiting):
        with ui.step("Verifying the store"):
            donors = (tree.repo,)
            found = check_store(store, settings.state, repair=repair, donors=donors)
        with ui.step("Verifying the package pool"):
            return [found, check_pool(settings, ui, repair=repair)]
