# SPDX-License-Identifier: Apache-2.0
"""Compare what the nodes of a profile get with what was published, built or edited since.

None of this changes what a reboot does: nodes boot what `stable` points to.
"""

from __future__ import annotations

from dataclasses import dataclass

from imagebuilder.drift.compare import differences
from imagebuilder.drift.content import image_content, release_content
from imagebuilder.drift.types import BootContent, Other, ProfileDrift
from imagebuilder.errors import ImagebuilderError
from imagebuilder.nodes.references import find_version
from imagebuilder.pipeline import plan_of
from imagebuilder.plan import Plan
from imagebuilder.publish.find import check_channels
from imagebuilder.recipe.load import load_recipe
from imagebuilder.settings import Settings
from imagebuilder.store.repository import ImageRef, Store
from imagebuilder.tree import CANDIDATE, STABLE, ReleaseName, Tree

DAMAGED = "it cannot be read"


@dataclass(frozen=True)
class RecipeState:
    """What the recipe and its lock build now: a version, why it is not built yet, or a problem."""

    builds: str = ""
    reasons: tuple[str, ...] = ()
    problem: str = ""


def drift_of_profile(tree: Tree, settings: Settings, profile: str) -> ProfileDrift:
    check_channels(tree, profile)
    stable, candidate = (find_version(tree, profile, name) for name in (STABLE, CANDIDATE))
    base = release_content(tree, ReleaseName(profile, stable)) if stable else None
    other = None
    if candidate and candidate != stable:
        release = ReleaseName(profile, candidate)
        other = Other(str(release), tell(base, release_content(tree, release)))
    store = Store(settings.state / "store")
    image = newest_image(store, profile)
    recipe = find_recipe(tree, profile, settings)
    return ProfileDrift(
        profile=profile,
        stable=str(ReleaseName(profile, stable)) if stable else "",
        candidate=other,
        image=Other(image.name, tell(base, image_content(store, image))) if image else None,
        published=image is not None and tree.release(ReleaseName(profile, image.version)).is_dir(),
        builds=recipe.builds,
        reasons=recipe.reasons,
        problem=recipe.problem,
    )


def tell(base: BootContent | None, other: BootContent | None) -> tuple[str, ...]:
    """How `other` differs from `base`, if these exist."""
    if other is None:
        return (DAMAGED,)
    return differences(base, other) if base else ("no stable release to compare with",)


def newest_image(store: Store, profile: str) -> ImageRef | None:
    images = [image for image in store.images() if image.profile == profile]
    return max(images, key=store.made_at, default=None)


def find_recipe(tree: Tree, profile: str, settings: Settings) -> RecipeState:
    """What a build with the current lock would make, without building or fetching anything."""
    try:
        plan = plan_of(load_recipe(profile, settings), settings)
    except ImagebuilderError as error:
        return RecipeState(
            problem="; ".join(f"{f.where}: {f.what}".lstrip(": ") for f in error.faults)
        )
    exists = plan.ready or tree.release(ReleaseName(profile, plan.version)).is_dir()
    return RecipeState(f"{profile}@{plan.version}", () if exists else reasons_of(plan))


def reasons_of(plan: Plan) -> tuple[str, ...]:
    """Why a plan needs to build an image: the changes of its steps, or else their reasons.

    A step that is only built because one below it changed has no changes of its own.
    """
    found = [f"{s.step.title}: {change}" for s in plan.to_build for change in s.changes]
    first = next((f"{s.step.title}: {s.reason}" for s in plan.to_build), "the image was removed")
    return tuple(found) or (first,)
