# SPDX-License-Identifier: Apache-2.0
"""One profile's night: lock -> plan -> build -> prove -> publish -> boot test -> promote.

    choose the lock ----+-- a new one --> go with it -- fails --+
                        |                                       v
                        +-- the file's, archives are away --> go with the lock file, if that
                                                              leads to anything new

A stage whose work is there already is passed by: that is how a night goes on where the one before
ended.  The lock file follows when the image of a new lock has booted, and not before; a lock that
was refused lies beside the report.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from imagebuilder import build as building
from imagebuilder.errors import WorkError
from imagebuilder.families.registry import family_of
from imagebuilder.fetch import fetch
from imagebuilder.image.types import read_image
from imagebuilder.lock.file import find_lock, make_lock_file, render_lock
from imagebuilder.lock.types import Lock
from imagebuilder.locks import held
from imagebuilder.nightly.choose import LockChoice, choose_lock
from imagebuilder.nightly.faults import TROUBLES, fault_of, in_a_line
from imagebuilder.nightly.space import check_room, weigh_tree
from imagebuilder.nightly.types import Ending, NightStage
from imagebuilder.nightly.world import Walk, World
from imagebuilder.nodes.references import find_version
from imagebuilder.pipeline import plan_against
from imagebuilder.plan import Action, Plan
from imagebuilder.proof.as_json import parse_proof
from imagebuilder.proof.terminal import headline
from imagebuilder.proof.types import check_proved
from imagebuilder.publish.channel import promote
from imagebuilder.publish.content import check_release
from imagebuilder.publish.find import ReleaseName
from imagebuilder.publish.journal import PROMOTE, find_moves, read_tail
from imagebuilder.publish.release import publish
from imagebuilder.publish.standing import judge, release_standing
from imagebuilder.recipe.load import load_recipe
from imagebuilder.recipe.types import Recipe
from imagebuilder.report.save import find_reports
from imagebuilder.report.standing import Standing, State
from imagebuilder.report.types import Stage as BootStage
from imagebuilder.store.repository import Store, make_store
from imagebuilder.store.state import make_state
from imagebuilder.supplies import needed, pool_folders
from imagebuilder.tree import CANDIDATE, STABLE, Tree
from imagebuilder.ui import PoolProgress

MOST_REASONS = 8


def go(walk: Walk, world: World) -> None:
    """Bring a profile as far as it comes; `walk` knows what came of it.

    Raises what ended it, of TROUBLES.
    """
    with walk.at(NightStage.LOCK):
        recipe = load_recipe(walk.profile, world.settings)
        with archives(walk):
            chosen = choose_lock(recipe, world.settings, world.upstream, world.ui)
        walk.again = chosen.error is not None
        walk.known = replace(walk.known, changes=chosen.changes)
    if chosen.error is not None:
        go_without(walk, world, recipe, chosen)
        return
    try:
        walk.end(release_with(walk, world, recipe, chosen.lock, chosen))
    except TROUBLES as error:
        if not chosen.new:
            raise
        refuse(walk, world, chosen.lock)
        if not is_the_locks(walk.known.stage, error) or chosen.fallback is None:
            raise
        if is_done(world, plan_with(world, recipe, chosen.fallback)):
            raise
        why = in_a_line(fault_of(error))
        walk.warn(f"the new lock failed in stage {walk.known.stage}, the old one is used: {why}")
        walk.known = replace(walk.known, changes=(), reasons=())
        walk.end(release_with(walk, world, recipe, chosen.fallback, chosen))


@contextmanager
def archives(walk: Walk) -> Iterator[None]:
    """What goes wrong in here may go well later: an archive is away, or in the middle of a change.

    Which errors those are nobody can tell: a package that is cut short is one today.
    """
    try:
        yield
    except TROUBLES:
        walk.again = True
        raise


def go_without(walk: Walk, world: World, recipe: Recipe, chosen: LockChoice) -> None:
    """Go with the lock there is, if it leads to anything new; else raise why there is no other."""
    assert chosen.error is not None
    if is_done(world, plan_with(world, recipe, chosen.lock)):
        raise chosen.error
    why = in_a_line(fault_of(chosen.error))
    walk.warn(f"could not refresh the lock; using the existing one: {why}")
    walk.end(release_with(walk, world, recipe, chosen.lock, chosen))


def is_the_locks(stage: NightStage, error: Exception) -> bool:
    """Whether what went wrong may go well with another lock: not a full tree, a test without QEMU.

    A mirror that went away while packages came is the lock's: what is in the pool needs none.
    """
    return stage in (NightStage.BUILD, NightStage.PROVE) or (
        stage is NightStage.TEST and isinstance(error, WorkError)
    )


def plan_with(world: World, recipe: Recipe, lock: Lock) -> Plan:
    return plan_against(world.store, recipe, lock)


def is_done(world: World, plan: Plan) -> bool:
    """Whether the image of a plan is released and tested, and as stable as it is to be.

    Raises DamagedError when the release is not what was published.
    """
    tree, release = world.tree, ReleaseName(plan.profile, plan.version)
    if not tree.release(release.profile, release.version).is_dir():
        return False
    check_release(tree, release.profile, release.version)
    if release_standing(tree, release).state is not State.PASSED:
        return False
    stable = find_version(tree, release.profile, STABLE) == release.version
    return stable or not world.options.promote or bool(find_hold(tree, release))


def release_with(
    walk: Walk, world: World, recipe: Recipe, lock: Lock, chosen: LockChoice
) -> Ending:
    """From a lock to the channels.  Raises what ends it."""
    with walk.at(NightStage.PLAN):
        plan = plan_with(world, recipe, lock)
        release = ReleaseName(plan.profile, plan.version)
        walk.known = replace(walk.known, version=plan.version)
        done = is_done(world, plan)
        if done:
            tell_hold(walk, world, release)
        elif reasons := reasons_of(plan):
            walk.known = replace(walk.known, reasons=reasons)
        else:
            walk.explain("the image exists; the steps after it were not finished")
    if done:
        accept(walk, world, lock, chosen)
        return Ending.UNCHANGED
    source = image_of(walk, world, recipe, lock, plan)
    publish_image(walk, world, source, release)
    test_release(walk, world, release)
    accept(walk, world, lock, chosen)
    return promote_release(walk, world, release)


def reasons_of(plan: Plan) -> tuple[str, ...]:
    """Why there is something to build, the first few in words."""
    built = [p for p in plan.steps if p.action is Action.BUILD]
    reasons = tuple(dict.fromkeys(f"{p.step.title}: {p.reason}" for p in built))
    more = len(reasons) - MOST_REASONS
    return (*reasons[:MOST_REASONS], f"and {more} more") if more > 0 else reasons


def image_of(walk: Walk, world: World, recipe: Recipe, lock: Lock, plan: Plan) -> Store:
    """The repository with the proved image of a plan: made, or found in the store or the tree."""
    repo = Store(world.tree.repo)
    name = f"{plan.profile}@{plan.version}"
    if not plan.ready and world.tree.release(plan.profile, plan.version).is_dir():
        source = repo  # its image has left the store, and need not be made for this
    elif plan.ready and not plan.to_build:
        source = world.store
    else:
        with walk.at(NightStage.BUILD):
            source = build_image(walk, world, recipe, lock, plan)
    with walk.at(NightStage.PROVE):
        image = read_image(source, source.image(name))
        proof = parse_proof(image)
        walk.known = replace(walk.known, size=image.root.size)
        if proof:
            walk.known = replace(walk.known, proof=headline(proof))
            check_proved(proof)
    return source


def build_image(walk: Walk, world: World, recipe: Recipe, lock: Lock, plan: Plan) -> Store:
    """Make the image; the store it is in."""
    state = world.settings.state
    check_room(world, lock, plan)
    make_state(state)
    store = make_store(state / "store")
    with archives(walk), held(state / "locks" / "gc", shared=True):
        fetch(
            lock,
            family_of(recipe.base),
            world.upstream.mirrors,
            recipe.sources,
            *pool_folders(state),
            world.settings.cache,
            only=needed(plan),
            offline=False,
            progress=PoolProgress(world.ui),
        )
    _, proof = building.build(
        recipe, lock, plan, world.settings, store, world.ui, mirrors=world.upstream.mirrors
    )
    # The proof is made within the build: its time belongs to the next stage.
    proving = sum(answer.seconds for answer in proof.answers)
    walk.spend(NightStage.PROVE, proving)
    walk.spend(NightStage.BUILD, -proving)
    return store


def publish_image(walk: Walk, world: World, source: Store, release: ReleaseName) -> None:
    """Make the release, if it is not there, and let `candidate` lead to it."""
    with walk.at(NightStage.PUBLISH):
        before = weigh_tree(world.tree)
        image = source.image(str(release))
        done = publish(source, image, world.tree, world.ui, channel=CANDIDATE)
        grown = weigh_tree(world.tree) - before if done.made or done.packed else 0
        walk.known = replace(walk.known, published=walk.known.published + grown)


def test_release(walk: Walk, world: World, release: ReleaseName) -> None:
    """See to it that a boot test of these bytes has passed.  Raises WorkError when none does."""
    with walk.at(NightStage.TEST):
        standing = standing_of(world, release)
        if standing.state is State.FAILED:
            walk.explain(f"it failed before and is being tested again: {standing.why}")
        if standing.state is not State.PASSED:
            standing = boot_release(walk, world, release, once=standing.state is State.FAILED)
        walk.known = replace(walk.known, report=standing.report)
        release_standing(world.tree, release)  # `releases` need not ask again
        if standing.state is not State.PASSED:
            raise WorkError(
                f"the boot test did not pass: {standing.why}",
                where=str(release),
                hint=f"imagebuilder report {release} shows it",
            )


def boot_release(walk: Walk, world: World, release: ReleaseName, *, once: bool) -> Standing:
    """Boot it, and again where that fails unless `once`; how it stands then.

    Emulated machines are slow, and one that missed its time is not yet a bad image.  What failed in
    an earlier night as well is booted once a night.
    """
    world.boot(world.tree, release, world.ui)
    standing = standing_of(world, release)
    if once or standing.state is not State.FAILED or is_certain(standing):
        return standing
    walk.warn(f"repeating the boot test: {standing.why}")
    world.boot(world.tree, release, world.ui)
    return standing_of(world, release)


def is_certain(standing: Standing) -> bool:
    """Whether another boot would tell the same: the checks of the tree need no machine."""
    return standing.verdict is not None and standing.verdict.stage is BootStage.STATIC


def standing_of(world: World, release: ReleaseName) -> Standing:
    """What the reports of a release say of its bytes."""
    reports = find_reports(world.tree, release.profile, release.version)
    return judge(world.tree, release, reports)


def promote_release(walk: Walk, world: World, release: ReleaseName) -> Ending:
    """Make it stable where that was asked for, and nobody has taken it back."""
    if not world.options.promote or tell_hold(walk, world, release):
        return Ending.FRESH
    with walk.at(NightStage.PROMOTE):
        moved = promote(world.tree, str(release), world.ui)
        world.ui.note(moved.render())
    return Ending.PROMOTED


def tell_hold(walk: Walk, world: World, release: ReleaseName) -> bool:
    """Whether somebody took this release back from `stable`, which a night respects."""
    hold = find_hold(world.tree, release) if world.options.promote else ""
    if hold:
        walk.explain(hold)
    return bool(hold)


def accept(walk: Walk, world: World, lock: Lock, chosen: LockChoice) -> None:
    """Let the lock file follow: the image of this lock has booted."""
    if lock == chosen.file:
        return
    path = world.settings.lock_file(walk.profile)
    if find_lock(path) != chosen.file:
        walk.warn("the lock file was changed in the meantime; keeping that version")
        return
    make_lock_file(lock, path)
    world.beside(walk.profile, "lock").unlink(missing_ok=True)  # refused in an earlier round


def refuse(walk: Walk, world: World, lock: Lock) -> None:
    """Keep a lock that led to nothing beside the report, for a look."""
    try:
        world.beside(walk.profile, "lock").write_text(render_lock(lock))
    except OSError as error:
        walk.warn(f"could not keep the refused lock: {error}")


def find_hold(tree: Tree, release: ReleaseName) -> str:
    """Why a night does not make a release stable again; "" where nothing is in the way.

    Nights promote; only people roll back, or set `stable` directly.  What they did so to the last
    move away from this release stands until they, or a newer image, move it again.
    """
    now = find_version(tree, release.profile, STABLE)
    if now == release.version:
        return ""
    moves = find_moves(read_tail(tree.journal), release.profile, STABLE, now)
    away = [move for move in moves if move.previous == release.version]
    if not away or away[-1].event == PROMOTE:
        return ""
    by = f"{away[-1].by or 'somebody'} ({away[-1].time[:16].replace('T', ' ')})"
    return (
        f"stable stays {now}: {by} took it back from {release.version}; "
        f"imagebuilder promote {release} ends that"
    )
