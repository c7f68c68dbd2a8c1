# SPDX-License-Identifier: Apache-2.0
"""Prove an image in the store, and list the proofs of each profile's newest image."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from imagebuilder.apart import run_apart
from imagebuilder.digest import Json
from imagebuilder.image.proof import Answer, Proof, Question
from imagebuilder.image.types import read_image
from imagebuilder.locks import file_lock
from imagebuilder.proof.prove import prove_tree
from imagebuilder.proof.provenance.read import read_history, read_provenance
from imagebuilder.recipe.engines import load_engines
from imagebuilder.recipe.find import find_profiles
from imagebuilder.rights import check_root
from imagebuilder.root import FinishedRoot
from imagebuilder.settings import Settings
from imagebuilder.store.repository import Store
from imagebuilder.store.state import open_store
from imagebuilder.store.workplace import new_id, workplace
from imagebuilder.ui import Ui


def prove_image(settings: Settings, name: str, ui: Ui) -> Proof:
    """Prove an image in the store with this version of the program.

    Raises InputError, HostError, WorkError.
    """
    check_root("proving an image, in a sandbox,")
    store = open_store(settings)
    image = read_image(store, store.image(name))

    def hear(answer: Answer) -> None:
        ui.detail(f"{answer.question}: {answer.result}")

    with (
        file_lock(settings.state / "locks" / "gc", shared=True),
        workplace(settings.state, new_id(f"prove-{image.profile}")) as work,
        ui.step(f"Proving {image.name}"),
    ):
        with ThreadPoolExecutor(2) as beside:
            history = beside.submit(read_history, store, image)
            engines = beside.submit(load_engines, settings.find_overlays(), image.overlays)
            store.checkout(image.root.commit, work / "root")
        root = FinishedRoot(work / "root")
        trace = partial(read_provenance, store, image, root, history=history.result())
        asked = partial(prove_tree, image, work, "root", engines.result(), trace)
        return run_apart("the proof", lambda tell: asked(on_answer=tell), hear)


@dataclass(frozen=True)
class ProvedImage:
    """A profile, the version of its newest image ("": none), and the proof of that image.

    `proof` is None without an image, and for an image older than proofs.
    """

    profile: str
    version: str
    proof: Proof | None

    def as_json(self) -> dict[str, Json]:
        results = {a.question: a.result for a in self.proof.answers} if self.proof else {}
        return {
            "profile": self.profile,
            "version": self.version or None,
            "ok": self.proof.ok if self.proof else None,
            "results": {str(q): str(results[q]) for q in Question if q in results},
        }


def list_proofs(settings: Settings) -> list[ProvedImage]:
    """Every profile of the project with the proof in its newest image's manifest."""
    store = Store(settings.state / "store")
    images = store.images()
    listed: list[ProvedImage] = []
    for profile in find_profiles(settings):
        of_profile = [image for image in images if image.profile == profile.name]
        newest = max(of_profile, key=store.made_at, default=None)
        proof = read_image(store, newest).proof if newest else None
        listed.append(ProvedImage(profile.name, newest.version if newest else "", proof))
    return listed
