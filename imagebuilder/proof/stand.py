# SPDX-License-Identifier: Apache-2.0
"""An image of the store where it can be looked at: its tree checked out, a sandbox on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from imagebuilder.process import check_tools
from imagebuilder.proof.inside import asking
from imagebuilder.proof.prove import hear_nothing, prove
from imagebuilder.proof.subject import subject_of
from imagebuilder.proof.types import Answer, Proof
from imagebuilder.root import Root
from imagebuilder.store.repository import Store


def prove_tree(
    manifest: Mapping[str, Any],
    store: Store,
    work: Path,
    *,
    on_answer: Callable[[Answer], None] = hear_nothing,
) -> Proof:
    """Prove the image with this manifest; its root is checked out below `work` (hard links).

    Raises HostError for missing tools, WorkError when the sandbox does not start.
    """
    check_tools("setpriv", "unshare", "nsenter", "timeout")
    store.checkout(manifest["root"]["commit"], work / "proved")
    with asking(work, "proved", manifest["epoch"]) as ask:
        return prove(subject_of(manifest, Root(work / "proved"), ask), on_answer)
