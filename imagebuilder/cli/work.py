# SPDX-License-Identifier: Apache-2.0
"""From recipe to image: lock, plan, build."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from imagebuilder.cli.context import (
    Call,
    Context,
    option,
    print_json,
    print_result,
    print_table,
    print_text,
)
from imagebuilder.cli.names import AsJson, ByEngine, OnBase, Profile
from imagebuilder.digest import Json
from imagebuilder.settings import Settings

if TYPE_CHECKING:
    from imagebuilder.plan import Plan
    from imagebuilder.recipe.types import Recipe


def lock(
    context: Call,
    profile: Profile,
    base: OnBase = "",
    engine: ByEngine = "",
    allow_older: Annotated[
        bool, option("Accept Release files older than those in the lock.", "--allow-older")
    ] = False,
    add_packages: Annotated[
        bool, option("Add the packages that playbooks install to their overlays.", "--add-packages")
    ] = False,
    json: AsJson = False,
) -> None:
    """Choose exact packages from the mirrors, write the lock file, and show what changed.

    The file is recipes/locks/PROFILE.lock; a damaged one is replaced. A Release file of another
    suite, or one older than the lock's, is refused. If tasks of a playbook install packages that
    are not in the lock, they are listed.

    Example: imagebuilder lock rx7600xt
    """
    from imagebuilder.pipeline import refresh_lock
    from imagebuilder.recipe.load import load_recipe

    settings, ui = context.obj.settings, context.obj.ui
    recipe = load_recipe(chosen(profile, context.obj, base, engine), settings)
    done = refresh_lock(recipe, settings, ui, allow_older=allow_older, add_packages=add_packages)
    print_result(done, json=json)


def plan(
    context: Call,
    profile: Profile,
    base: OnBase = "",
    engine: ByEngine = "",
    explain: Annotated[bool, option("Show every input that changed.", "--explain")] = False,
    json: AsJson = False,
) -> None:
    """Show what a build would do: BUILD or REUSE for every step, and why.

    Example: imagebuilder plan rx7600xt --explain
    """
    from imagebuilder.pipeline import plan_of
    from imagebuilder.recipe.load import load_recipe

    recipe = load_recipe(chosen(profile, context.obj, base, engine), context.obj.settings)
    planned = plan_of(recipe, context.obj.settings)
    bases, overlays = find_replaced(recipe, context.obj.settings)
    if json:
        print_json({**plan_json(planned), "replaced": overlays, "replaced-bases": bases})
        return
    print_plan(planned, explain=explain)
    for what, names in (("bases", bases), ("overlays", overlays)):
        if names:
            print_text(f"{what} of this project that replace shipped ones: {', '.join(names)}")


def find_replaced(recipe: Recipe, settings: Settings) -> tuple[list[str], list[str]]:
    """The profile's base and overlays of this project that replace shipped ones."""
    files, folders = settings.find_bases(), settings.find_overlays()
    bases = [name for name in [recipe.base.name] if settings.find_replaced(files[name])]
    overlays = [o.name for o in recipe.overlays if settings.find_replaced(folders[o.name])]
    return bases, overlays


def build(
    context: Call,
    profile: Profile,
    base: OnBase = "",
    engine: ByEngine = "",
    locked: Annotated[
        bool,
        option("Fail if the lock is missing or outdated, and show the difference.", "--locked"),
    ] = False,
    offline: Annotated[
        bool, option("Use only the lock and the package pool, without network.", "--offline")
    ] = False,
    dry_run: Annotated[bool, option("Show the plan and stop.", "--dry-run")] = False,
    keep_failed: Annotated[
        bool, option("Keep the tree of a failed step.", "--keep-failed")
    ] = False,
    json: AsJson = False,
) -> None:
    """Build the image of a profile and prove it. Layers in the store are reused.

    An image that is not proved stays in the store for inspection, and the exit status is 1.

    Example: imagebuilder build rx7600xt --locked
    """
    from imagebuilder.cli.summary import render_summary
    from imagebuilder.image.proof import check_proved
    from imagebuilder.pipeline import BuildOptions, build_profile

    profile = chosen(profile, context.obj, base, engine)
    options = BuildOptions(
        locked=locked or offline, offline=offline, keep_failed=keep_failed, dry_run=dry_run
    )
    done = build_profile(profile, context.obj.settings, context.obj.ui, options)
    if done.image is None:
        print_json(plan_json(done.plan)) if json else print_plan(done.plan, explain=False)
    else:
        proved = done.proof.ok if done.proof else None
        value: dict[str, Json] = {"image": done.image.name, "commit": done.image.commit}
        value |= {"new": done.new, "proved": proved}
        print_json(value) if json else print_text(render_summary(done, context.obj.settings))
    if done.proof:
        check_proved(done.proof)


def chosen(profile: str, common: Context, base: str, engine: str) -> str:
    """The full name of the profile; says so if it is not what was typed.  Raises InputError."""
    from imagebuilder.recipe.variant import choose_profile

    name = choose_profile(profile, common.settings, base, engine)
    if name != profile:
        common.ui.note(f"using profile {name}")
    return name


def print_plan(planned: Plan, *, explain: bool) -> None:
    rows: list[tuple[str, str, str]] = []
    for step in planned.steps:
        rows.append((step.action, step.step.title, step.reason))
        if explain:
            rows.extend(("", "", f"  {change}") for change in step.changes)
    print_table(rows, ("action", "step", "reason"), empty="nothing to do")
    count = len(planned.to_build)
    what = f"{count} of {len(planned.steps)} steps to build" if count else "nothing to build"
    print_text(f"{planned.profile}@{planned.version}: {what}")
    for device in planned.assumed:
        print_text(f"assumed, not proved: {device}")


def plan_json(planned: Plan) -> dict[str, Json]:
    return {
        "profile": planned.profile,
        "version": planned.version,
        "ready": planned.ready,
        "steps": [
            {
                "title": s.step.title,
                "digest": s.digest,
                "action": str(s.action),
                "reason": s.reason,
                "changes": list(s.changes),
            }
            for s in planned.steps
        ],
        "assumed": list(planned.assumed),
    }
