# SPDX-License-Identifier: Apache-2.0
"""A real root in the clothes of a profile with a card: `generic`, with that recipe's own files.

systemd, kmod, udev and the kernel's modules are those that nodes run, so the questions that ask
them can be asked.  ROCm and firmware are not in it: only the question that must find the fault is
asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from imagebuilder.families.registry import family_of_distribution
from imagebuilder.image.files import CommittedRoot, read_root
from imagebuilder.image.proof import Proof, Question
from imagebuilder.image.types import Image, encode_image, load_image
from imagebuilder.proof.prove import image_sandbox, prove
from imagebuilder.proof.provenance.read import read_provenance
from imagebuilder.proof.reading.provenance import (
    CONTENT,
    METADATA,
    Compared,
    Provenance,
    Trace,
    TraceKind,
)
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.engines import load_engines
from imagebuilder.root import Root
from imagebuilder.store.repository import Store
from imagebuilder.tree import ReleaseName, Tree
from tests.faults.roots.nvidia import SOURCES
from tests.faults.roots.shipped import put_overlays, shipped
from tests.faults.site import Site, copy_site
from tests.strange import REMOVED, find_strange
from tests.unit.proof.trees import make_tree
from tests.workshop import SHIPPED_OVERLAYS

BASE = "generic"
PREFIX = "real-"
PROFILES = ("rx7600xt",)
NAMES = tuple(f"{PREFIX}{profile}" for profile in PROFILES)
# These compare the root with what the repository holds.
COMPARED = (Question.PROVENANCE, Question.PRIVILEGES, Question.SECRETS)
SCRIPT = "configure planted"  # the step that a fault stands for
ASKED = (Question.KERNEL, Question.ACCESS, Question.SERVICES, Question.SYSTEM)


def make_real(
    good: Tree, base: ReleaseName, tree: Tree, profiles: Sequence[str] = PROFILES
) -> Tree:
    """A tree with the base as each of some profiles."""
    for profile in profiles:
        site = copy_site(good, base, tree.path / profile, with_repo=False)
        recipe = shipped(profile)
        named = ReleaseName(f"{PREFIX}{profile}", base.version)
        put_overlays(site.root, recipe)
        if any(overlay.name == "vllm" for overlay in recipe.overlays):
            make_tree(site.root, SOURCES)
        image = replace(
            load_image(site.folder),
            profile=named.profile,
            boot=replace(load_image(site.folder).boot, cmdline=recipe.cmdline),
            hardware=recipe.hardware,
            expectations=recipe.expectations,
            listens=recipe.listens,
        )
        site.write("release/manifest.json", encode_image(image))
        for old, new in (
            (site.folder, tree.release(named)),
            (site.root, tree.root(named)),
        ):
            new.parent.mkdir(parents=True)
            old.rename(new)
    return tree


def prove_site(site: Site, question: Question | None = None, *, by_overlay: bool = False) -> Proof:
    """What the programs of the root itself say to one question, or to all.

    An overlay placed what the good root lacks, or else a script left it.
    """
    image = load_image(site.folder)
    engines = load_engines(SHIPPED_OVERLAYS, SHIPPED_OVERLAYS)
    place, root = site.tree.path, Root(site.root)
    with image_sandbox(place, str(site.root.relative_to(place)), image.epoch) as run_in:
        provenance = provenance_of(site, image, by_overlay=by_overlay)
        subject = Subject(image, root, run_in, engines, lambda: provenance)
        return prove(subject, only=question)


def provenance_of(site: Site, image: Image, *, by_overlay: bool) -> Provenance | None:
    """That of the good root and of what was planted; None without its commit.

    A tree's repository has no layers but the root's: contents alone tell who answers for a path.
    """
    if not site.tree.repo.is_dir():
        return None
    good, committed = good_provenance(image.root.commit, Store(site.tree.repo), image)
    # Of the copy at hand: another one is removed when a test that uses it fails.
    strange = find_strange(replace(committed, repo=Store(site.tree.repo)), Root(site.root))
    traces = {path: trace for path, trace in good.traces.items() if path not in strange}
    for path in (path for path, how in strange.items() if how != REMOVED):
        if by_overlay:
            traces[path] = Trace(path, TraceKind.OVERLAY, overlay="planted")
        elif package := good.traces[path].package if path in good.traces else "":
            change = METADATA if has_content(site, path, good) else CONTENT
            traces[path] = Trace(path, TraceKind.CHANGED, (SCRIPT,), package, change=change)
        else:
            traces[path] = Trace(path, TraceKind.STEP, (SCRIPT,))
    intact = {p: checksum for p, checksum in good.compared.intact.items() if p not in strange}
    return replace(good, traces=traces, compared=Compared(intact))


def has_content(site: Site, path: str, good: Provenance) -> bool:
    """Whether a file has the content that its package recorded."""
    checksum = good.compared.intact.get(path)
    return checksum is not None and checksum.is_of(Path(f"{site.root}{path}"))


KNOWN: dict[str, tuple[Provenance, CommittedRoot]] = {}


def good_provenance(commit: str, repo: Store, image: Image) -> tuple[Provenance, CommittedRoot]:
    """The provenance of an image's root, read once: every fault is planted into the same one."""
    if commit not in KNOWN:
        with TemporaryDirectory(dir=repo.path.parent) as place:
            root = Path(place, "root")
            repo.checkout(commit, root)
            committed = read_root(repo, commit, family_of_distribution(image.distribution))
            KNOWN[commit] = (read_provenance(repo, image, Root(root)), committed)
    return KNOWN[commit]
