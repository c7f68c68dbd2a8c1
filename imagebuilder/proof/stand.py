# SPDX-License-Identifier: Apache-2.0
"""A root where it can be looked at, and a sandbox on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from imagebuilder.image.types import Image
from imagebuilder.process import check_tools
from imagebuilder.proof.inside import asking
from imagebuilder.proof.prove import hear_nothing, prove
from imagebuilder.proof.subject import subject_of
from imagebuilder.proof.types import Answer, Proof
from imagebuilder.recipe.engines import Engines
from imagebuilder.root import Root


def prove_tree(
    image: Image,
    work: Path,
    name: str,
    engines: Engines,
    *,
    on_answer: Callable[[Answer], None] = hear_nothing,
) -> Proof:
    """Prove `image`; its root is the tree `name` below `work`.

    `engines` are those that overlays describe.

    Raises HostError for missing tools, WorkError when the sandbox does not start.
    """
    check_tools("setpriv", "unshare", "nsenter", "timeout")
    with asking(work, name, image.epoch) as ask:
        return prove(subject_of(image, Root(work / name), ask, engines), on_answer)
