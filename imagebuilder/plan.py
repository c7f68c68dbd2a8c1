# SPDX-License-Identifier: Apache-2.0
"""Recipe + Lock + what the store has -> Plan.  Pure: reads nothing, writes nothing.

    base -> packages, builds -+-> packages -> builds -> prune -> python -> slim -> configure ->
            up to `initrd`    |   of the other overlays                            finalise
                              +-> initrd (a leaf)

Packages of all overlays come before any configuration, so a changed file never reinstalls
anything; and the initrd depends on what it is made from, and on nothing else.
Playbooks come after all configuration: they find the root that they find on a node.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

from imagebuilder.digest import Json, digest_of
from imagebuilder.families.protocol import Packages
from imagebuilder.families.registry import family_of
from imagebuilder.lock.types import Lock, LockedLayer, LockedPackage
from imagebuilder.phrases import list_first
from imagebuilder.playbook.step import playbook_steps
from imagebuilder.reasons import LayerRecord, differences
from imagebuilder.recipe.cards import find_chip
from imagebuilder.recipe.expectations import plain
from imagebuilder.recipe.generated import all_files
from imagebuilder.recipe.types import Base, Hardware, Overlay, Recipe
from imagebuilder.steps.build import BuildStep
from imagebuilder.steps.config import ConfigStep
from imagebuilder.steps.finalise import FinaliseStep
from imagebuilder.steps.initrd import InitrdStep
from imagebuilder.steps.packages import BootstrapStep, PackagesStep
from imagebuilder.steps.placed import is_boot_file
from imagebuilder.steps.prune import PruneStep
from imagebuilder.steps.python import PythonStep
from imagebuilder.steps.slim import slim_step
from imagebuilder.steps.step import Step


class Action(StrEnum):
    BUILD = "BUILD"
    REUSE = "REUSE"


@dataclass(frozen=True)
class PlannedStep:
    """A step, its layer's digest, the digest below it (None: nothing), and why it is (not) built.

    `changes` says in words which inputs differ from the image it is compared with.
    """

    step: Step
    digest: str
    below: str | None
    action: Action
    reason: str
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """Every step in order.  `version` names the image; `ready` is whether the store has it.

    `assumed` are the devices that nothing is known of, with the reason that the recipe gives.
    """

    profile: str
    version: str
    epoch: int
    cmdline: tuple[str, ...]
    steps: tuple[PlannedStep, ...]
    ready: bool
    assumed: tuple[str, ...] = ()

    @property
    def root(self) -> PlannedStep:
        """The last step of the chain: its layer is the root filesystem."""
        return [s for s in self.steps if not s.step.leaf][-1]

    @property
    def leaf(self) -> PlannedStep:
        """The boot pair's step."""
        return next(s for s in self.steps if s.step.leaf)

    @property
    def to_build(self) -> tuple[PlannedStep, ...]:
        """The steps whose layers the store does not have."""
        return tuple(s for s in self.steps if s.action is Action.BUILD)


def make_plan(
    recipe: Recipe,
    lock: Lock,
    *,
    layers: Container[str],
    images: frozenset[str] = frozenset(),
    previous: Sequence[LayerRecord] = (),
    compared_with: str = "",
) -> Plan:
    """Order the steps of `recipe` and decide each.

    `layers` are the digests the store has, `images` its `profile@version` names; `previous` are
    the layers of the image `compared_with`, from which reasons are told.
    """
    links, version = make_links(recipe, lock)
    wanted = to_build(links, layers)
    history = History(tuple(previous), compared_with)
    return Plan(
        profile=recipe.profile,
        version=version,
        epoch=lock.epoch,
        cmdline=recipe.cmdline,
        steps=tuple(decide(link, links, layers, wanted, history) for link in links),
        ready=f"{recipe.profile}@{version}" in images,
        assumed=tuple(h.assumption for h in recipe.hardware if h.assume),
    )


@dataclass(frozen=True)
class Link:
    """A step with its layer's digest and the digest below it."""

    step: Step
    digest: str
    below: str | None


@dataclass(frozen=True)
class History:
    """The layers of the image that reasons compare with, and its version."""

    records: tuple[LayerRecord, ...]
    version: str

    def find(self, title: str) -> LayerRecord | None:
        return next((r for r in self.records if r.title == title), None)


def make_links(recipe: Recipe, lock: Lock) -> tuple[list[Link], str]:
    """Every step with its digests, and the version of the image, which is named by all of them.

    The leaf's parent is the step before it; the last step writes the version into the root.
    """
    links: list[Link] = []
    below: str | None = None
    initrd = ""
    for step in make_steps(recipe, lock):
        digest = digest_of({"below": below, "inputs": step.inputs()})
        links.append(Link(step, digest, below))
        if step.leaf:
            initrd = digest
        else:
            below = digest
    last = finalise_step(recipe, lock)
    version = name_version(lock.epoch, [below, initrd, last.inputs()])
    digest = digest_of({"below": below, "inputs": last.inputs(), "version": version})
    return [*links, Link(replace(last, version=version), digest, below)], version


def to_build(links: Sequence[Link], layers: Container[str]) -> frozenset[str]:
    """The digests that must be made: the root, the leaf, and below them what is missing.

    A missing layer below one that the store has is not needed.
    """
    below = {link.digest: link.below for link in links}
    found: set[str] = set()
    ends = [links[-1].digest, *(link.digest for link in links if link.step.leaf)]
    for end in ends:
        digest: str | None = end
        while digest is not None and digest not in layers:
            found.add(digest)
            digest = below[digest]
    return frozenset(found)


def name_version(epoch: int, identity: Json) -> str:
    """`YYYYMMDDHHMMSS-<8 hex>`: sorts by the lock's epoch, tells apart what the epoch does not."""
    return f"{datetime.fromtimestamp(epoch, UTC):%Y%m%d%H%M%S}-{digest_of(identity)[:8]}"


def make_steps(recipe: Recipe, lock: Lock) -> list[Step]:
    """The steps of `recipe` but the last, in order; the leaf stands behind its parent."""
    base, locked = recipe.base, {layer.overlay: layer for layer in lock.layers}
    early = recipe.initrd_overlays
    later = recipe.overlays[len(early) :]
    initrd_epoch = locked[early[-1].name if early else ""].epoch
    epoch = lock.layers[-1].epoch
    steps: list[Step] = [bootstrap_step(base, locked[""])]
    for overlay in early:
        steps.extend(packages_steps(base, locked[overlay.name]))
    for overlay in early:
        steps.extend(build_steps(recipe, overlay, locked[overlay.name], initrd_epoch))
    steps.append(initrd_step(recipe, initrd_epoch))
    for overlay in later:
        steps.extend(packages_steps(base, locked[overlay.name]))
    for overlay in later:
        steps.extend(build_steps(recipe, overlay, locked[overlay.name], epoch))
    rules = tuple(rule for overlay in recipe.overlays for rule in overlay.prune)
    if rules:
        steps.append(PruneStep(rules, epoch=epoch))
    for overlay in recipe.overlays:
        steps.extend(python_steps(overlay, locked[overlay.name]))
    slim = slim_step(recipe, epoch)
    if slim is not None:
        steps.append(slim)
    for overlay in recipe.overlays:
        config = config_step(overlay, epoch)
        if not config.empty:
            steps.append(config)
    steps.extend(playbook_steps(recipe, epoch))
    return steps


def finalise_step(recipe: Recipe, lock: Lock) -> FinaliseStep:
    """The step that makes the root the image's."""
    return FinaliseStep(
        profile=recipe.profile,
        packages={family_of(recipe.base).identity(p): p.version for p in lock.packages},
        cmdline=recipe.cmdline,
        listens=recipe.listens,
        grants=grants_of(recipe),
        expects=expects_of(recipe),
        promises=promises_of(recipe),
        epoch=lock.epoch,
    )


def grants_of(recipe: Recipe) -> Mapping[str, Json]:
    """What overlays grant and which secrets they mean; empty keys are left out."""
    grants: dict[str, Json] = {
        name: {key: list(names) for key, names in asdict(given).items() if names}
        for name, given in recipe.grants.items()
    }
    secrets: list[Json] = [{**asdict(secret)} for secret in recipe.allow_secret]
    return {
        **({"grants": grants} if grants else {}),
        **({"allow-secret": secrets} if secrets else {}),
    }


def expects_of(recipe: Recipe) -> Mapping[str, Json]:
    """What the image will be judged by: its hardware, and what its overlays expect."""
    hardware: Json = [f"{h.pci} {h.target}".strip() for h in recipe.hardware]
    own: dict[str, Json] = {h.pci: asdict(h.chip) for h in recipe.hardware if h.chip}
    assumed: Json = [h.assumption for h in recipe.hardware if h.assume]
    more: dict[str, Json] = {"cards": own, "assumed": assumed}
    expected = {"hardware": hardware, **plain(recipe.expectations)}
    return expected | {name: value for name, value in more.items() if value}


def promises_of(recipe: Recipe) -> Mapping[str, Json]:
    """The devices by PCI id, each with its possible drivers, and their device nodes."""
    return {
        "hardware": [promise(device) for device in recipe.hardware],
        "devices": [dict(asdict(device)) for device in recipe.expectations.devices],
    }


def promise(device: Hardware) -> Json:
    chip = device.chip or find_chip(device.pci)
    modules: list[Json] = [*chip.modules] if chip else []
    pci = device.pci.lower()
    return {"pci": pci, "name": device.name, "target": device.target, "modules": modules}


def packages_of(base: Base, packages: tuple[LockedPackage, ...], epoch: int) -> Packages:
    return Packages(base.suite, base.architecture, packages, base.path_excludes, epoch)


def bootstrap_step(base: Base, layer: LockedLayer) -> BootstrapStep:
    first = packages_of(base, layer.packages, layer.epoch)
    return BootstrapStep(family_of(base), first, base.name, base.engine, epoch=layer.epoch)


def packages_steps(base: Base, layer: LockedLayer) -> list[Step]:
    """The packages of one overlay; none when it adds none."""
    if not layer.packages:
        return []
    added = packages_of(base, layer.packages, layer.epoch)
    return [PackagesStep(family_of(base), added, layer.overlay, epoch=layer.epoch)]


def build_steps(
    recipe: Recipe, overlay: Overlay, layer: LockedLayer, epoch: int
) -> list[BuildStep]:
    """What is built aside for one overlay, in its order."""
    locked = {build.name: build for build in layer.builds}
    return [
        BuildStep(
            overlay=overlay.name,
            family=family_of(recipe.base),
            tools=packages_of(recipe.base, locked[build.name].packages, epoch),
            kernel=recipe.base.kernel,
            locked=locked[build.name],
            script=build.script,
            environment=build.env,
            python=build.python,
            signing=recipe.signing,
            epoch=epoch,
        )
        for build in overlay.builds
    ]


def initrd_step(recipe: Recipe, epoch: int) -> InitrdStep:
    """The initrd, made from the base and the recipe's `initrd_overlays`."""
    overlays = recipe.initrd_overlays
    files = tuple(f for o in overlays for f in all_files(o) if is_boot_file(f.target))
    return InitrdStep(recipe.base.kernel, files, epoch=epoch)


def python_steps(overlay: Overlay, layer: LockedLayer) -> list[PythonStep]:
    """The virtual environments of one overlay, in its order."""
    locked = {python.path: python for python in layer.python}
    return [
        PythonStep(overlay.name, env.interpreter, locked[env.path], epoch=layer.epoch)
        for env in overlay.python
    ]


def config_step(overlay: Overlay, epoch: int) -> ConfigStep:
    return ConfigStep(
        overlay=overlay.name,
        groups=overlay.groups,
        users=overlay.users,
        files=all_files(overlay),
        scripts=overlay.scripts,
        units=overlay.units,
        epoch=epoch,
    )


def decide(
    link: Link,
    links: Sequence[Link],
    layers: Container[str],
    wanted: frozenset[str],
    history: History,
) -> PlannedStep:
    """BUILD or REUSE, with the reason.  The first rule that holds decides."""

    def planned(action: Action, reason: str, changes: tuple[str, ...] = ()) -> PlannedStep:
        return PlannedStep(link.step, link.digest, link.below, action, reason, changes)

    before = history.find(link.step.title)
    # 1. The store has exactly this layer.
    if link.digest in layers:
        same = before is not None and before.digest == link.digest
        since = f"no input changed since {history.version}"
        return planned(Action.REUSE, since if same else "already in the store")
    # 2. The store lacks it, but has what is above it.
    if link.digest not in wanted:
        return planned(Action.REUSE, "not needed: the layers above it are in the store")
    # 3. Nothing to compare with.
    if before is None:
        return planned(
            Action.BUILD, f"not in {history.version}" if history.version else "first build"
        )
    # 4. Its own inputs changed.
    changes = differences(before.inputs, link.step.inputs())
    if changes:
        return planned(Action.BUILD, list_first(changes, 1), changes)
    # 5. Only what is below it changed.
    if before.digest != link.digest:
        return planned(Action.BUILD, tell_below(link, links, history))
    # 6. It is known, but gone.
    return planned(Action.BUILD, "no longer in the store")


def tell_below(link: Link, links: Sequence[Link], history: History) -> str:
    """Which layer below `link` is the first that differs from the history."""
    # The last step's layer is named by the leaf too: both make the version it writes.
    chain = [x for x in links[: links.index(link)] if link is links[-1] or not x.step.leaf]
    old = {r.title: r.digest for r in history.records}
    for lower in chain:
        title = lower.step.title
        if old.get(title) != lower.digest:
            return f"{title}, below it, {'changed' if title in old else 'is new'}"
    gone = [title for title in old if title not in {x.step.title for x in links}]
    return f"{gone[0]}, below it, is gone" if gone else "the order of the layers changed"
