# SPDX-License-Identifier: Apache-2.0
"""One profile in a run: lock -> plan -> build -> prove -> publish -> boot test -> promote.

    choose the lock ----+-- a new lock --> use it -- fails --+
                        |                                    v
                        +-- archives unreachable --> use the lock file, if that leads to
                                                     anything new

A stage that is already done is skipped: so a run resumes what the previous one could not finish.
The lock file is updated only after the image of a new lock has booted; a refused lock is kept
beside the report.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from imagebuilder import build as building
from imagebuilder.errors import WorkError
from imagebuilder.families.registry import family_of
from imagebuilder.files import write_file
from imagebuilder.image.proof import check_proved
from imagebuilder.image.types import read_image
from imagebuilder.lock.file import find_lock, make_lock_file, render_lock
from imagebuilder.lock.types import Lock
from imagebuilder.locks import file_lock
from imagebuilder.nightly.choose import LockChoice, choose_lock, digest_of_lock
from imagebuilder.nightly.context import Attempt, Nightly
from imagebuilder.nightly.faults import TROUBLES, fault_of, in_a_line
from imagebuilder.nightly.space import check_space, measure_tree
from imagebuilder.nightly.types import Ending, NightlyStage
from imagebuilder.nodes.references import find_version
from imagebuilder.pipeline import find_newest, plan_against
from imagebuilder.plan import Action, Plan
from imagebuilder.proof.terminal import headline
from imagebuilder.publish.channel.move import promote
from imagebuilder.publish.channel.standing import judge, release_standing
from imagebuilder.publish.journal import PROMOTE, find_moves, read_tail
from imagebuilder.publish.publish import publish
from imagebuilder.publish.release.content import check_release
from imagebuilder.recipe.load import load_recipe
from imagebuilder.recipe.types import Recipe
from imagebuilder.report.save import find_reports
from imagebuilder.report.standing import Standing, State
from imagebuilder.report.types import Stage as BootStage
from imagebuilder.store.repository import Store, make_store
from imagebuilder.store.state import make_state
from imagebuilder.supplies import fetch, needed, pool_folders
from imagebuilder.tree import CANDIDATE, STABLE, ReleaseName, Tree
from imagebuilder.ui import PoolProgress

MOST_REASONS = 8


def run_profile(attempt: Attempt, nightly: Nightly) -> None:
    """Process a profile as far as possible; `attempt` records the result.

    Raises the error that ended it, one of TROUBLES.
    """
    with attempt.at(NightlyStage.LOCK):
        recipe = load_recipe(attempt.profile, nightly.settings)
        with archives(attempt):
            chosen = choose_lock(recipe, nightly.settings, nightly.upstream, nightly.ui)
        attempt.retry = chosen.error is not None
        attempt.known = replace(attempt.known, changes=chosen.changes)
    if chosen.error is not None:
        run_with_old_lock(attempt, nightly, recipe, chosen)
        return
    try:
        attempt.end(release_with(attempt, nightly, recipe, chosen.lock, chosen))
    except TROUBLES as error:
        if not chosen.new:
            raise
        refuse(attempt, nightly, chosen.lock)
        if not is_the_locks(attempt.known.stage, error) or chosen.fallback is None:
            raise
        if is_done(nightly, plan_with(nightly, recipe, chosen.fallback)):
            raise
        why = in_a_line(fault_of(error))
        attempt.warn(
            f"the new lock failed in stage {attempt.known.stage}; using the old one: {why}"
        )
        attempt.known = replace(attempt.known, changes=(), reasons=())
        attempt.end(release_with(attempt, nightly, recipe, chosen.fallback, chosen))


@contextmanager
def archives(attempt: Attempt) -> Iterator[None]:
    """Mark an error in here for a retry: an archive may be unreachable, or being updated.

    Every error may be one of these, even a truncated package.
    """
    try:
        yield
    except TROUBLES:
        attempt.retry = True
        raise


def run_with_old_lock(
    attempt: Attempt, nightly: Nightly, recipe: Recipe, chosen: LockChoice
) -> None:
    """Use the existing lock if it leads to anything new; otherwise raise the error."""
    assert chosen.error is not None
    if is_done(nightly, plan_with(nightly, recipe, chosen.lock)):
        raise chosen.error
    why = in_a_line(fault_of(chosen.error))
    attempt.warn(f"could not refresh the lock; using the existing one: {why}")
    attempt.end(release_with(attempt, nightly, recipe, chosen.lock, chosen))


def is_the_locks(stage: NightlyStage, error: Exception) -> bool:
    """Whether another lock may avoid the error, unlike a full tree or a missing QEMU.

    An unreachable mirror counts: the packages of an older lock may be in the pool already.
    """
    return stage in (NightlyStage.BUILD, NightlyStage.PROVE) or (
        stage is NightlyStage.TEST and isinstance(error, WorkError)
    )


def plan_with(nightly: Nightly, recipe: Recipe, lock: Lock) -> Plan:
    return plan_against(nightly.store, recipe, lock, find_newest(nightly.store, recipe.profile))


def is_done(nightly: Nightly, plan: Plan) -> bool:
    """Whether the image of a plan is released, tested and, if wanted, stable.

    Raises DamagedError if the release differs from what was published.
    """
    tree, release = nightly.tree, ReleaseName(plan.profile, plan.version)
    if not tree.release(release).is_dir():
        return False
    check_release(tree, release)
    if release_standing(tree, release).state is not State.PASSED:
        return False
    stable = find_version(tree, release.profile, STABLE) == release.version
    return stable or not nightly.options.promote or bool(find_hold(tree, release))


def release_with(
    attempt: Attempt, nightly: Nightly, recipe: Recipe, lock: Lock, chosen: LockChoice
) -> Ending:
    """From a lock to the channels.  Raises the error that ends it."""
    with attempt.at(NightlyStage.PLAN):
        plan = plan_with(nightly, recipe, lock)
        release = ReleaseName(plan.profile, plan.version)
        attempt.known = replace(attempt.known, version=plan.version)
        done = is_done(nightly, plan)
        if done:
            tell_hold(attempt, nightly, release)
        elif reasons := reasons_of(plan):
            attempt.known = replace(attempt.known, reasons=reasons)
        else:
            attempt.explain("the image exists; resuming the steps after it")
    if done:
        accept(attempt, nightly, lock, chosen)
        return Ending.UNCHANGED
    source = image_of(attempt, nightly, recipe, lock, plan)
    publish_image(attempt, nightly, source, release)
    test_release(attempt, nightly, release)
    accept(attempt, nightly, lock, chosen)
    return promote_release(attempt, nightly, release)


def reasons_of(plan: Plan) -> tuple[str, ...]:
    """Why something must be built: the first few reasons."""
    built = [p for p in plan.steps if p.action is Action.BUILD]
    reasons = tuple(dict.fromkeys(f"{p.step.title}: {p.reason}" for p in built))
    more = len(reasons) - MOST_REASONS
    return (*reasons[:MOST_REASONS], f"and {more} more") if more > 0 else reasons


def image_of(attempt: Attempt, nightly: Nightly, recipe: Recipe, lock: Lock, plan: Plan) -> Store:
    """The repository with the proved image of a plan: builds it unless the store or tree has it."""
    repo = Store(nightly.tree.repo)
    release = ReleaseName(plan.profile, plan.version)
    if not plan.ready and nightly.tree.release(release).is_dir():
        source = repo  # the store has dropped the image; no need to build it
    elif plan.ready and not plan.to_build:
        source = nightly.store
    else:
        with attempt.at(NightlyStage.BUILD):
            source = build_image(attempt, nightly, recipe, lock, plan)
    with attempt.at(NightlyStage.PROVE):
        image = read_image(source, source.image(str(release)))
        proof = image.proof
        attempt.known = replace(attempt.known, size=image.root.size)
        if proof:
            attempt.known = replace(attempt.known, proof=headline(proof))
            check_proved(proof)
    return source


def build_image(
    attempt: Attempt, nightly: Nightly, recipe: Recipe, lock: Lock, plan: Plan
) -> Store:
    state = nightly.settings.state
    check_space(nightly, recipe, lock, plan)
    make_state(state)
    store = make_store(state / "store")
    with archives(attempt), file_lock(store.gc_lock, shared=True):
        fetch(
            lock,
            family_of(recipe.base),
            nightly.upstream.mirrors,
            recipe.sources,
            *pool_folders(state, recipe.base.package_manager),
            nightly.settings.cache,
            only=needed(plan),
            offline=False,
            progress=PoolProgress(nightly.ui),
        )
    _, proof = building.build(
        recipe, lock, plan, nightly.settings, store, nightly.ui, mirrors=nightly.upstream.mirrors
    )
    # The build includes the proof, whose time belongs to the next stage.
    proving = sum(answer.seconds for answer in proof.answers)
    attempt.add_seconds(NightlyStage.PROVE, proving)
    attempt.add_seconds(NightlyStage.BUILD, -proving)
    return store


def publish_image(attempt: Attempt, nightly: Nightly, source: Store, release: ReleaseName) -> None:
    """Make the release if it does not exist, and point `candidate` to it."""
    with attempt.at(NightlyStage.PUBLISH):
        before = measure_tree(nightly.tree)
        image = source.image(str(release))
        attempt.save()
        done = publish(source, image, nightly.tree, nightly.ui, channel=CANDIDATE)
        grown = measure_tree(nightly.tree) - before if done.made or done.packed else 0
        attempt.known = replace(attempt.known, published=attempt.known.published + grown)


def test_release(attempt: Attempt, nightly: Nightly, release: ReleaseName) -> None:
    """Run a boot test unless one of these bytes has passed.  Raises WorkError if it fails."""
    with attempt.at(NightlyStage.TEST):
        standing = standing_of(nightly, release)
        if standing.state is State.FAILED:
            attempt.explain(f"testing it again because it failed before: {standing.why}")
        if standing.state is not State.PASSED:
            standing = boot_release(attempt, nightly, release, once=standing.state is State.FAILED)
        attempt.known = replace(attempt.known, report=standing.report)
        release_standing(nightly.tree, release)  # cache it for `releases`
        if standing.state is not State.PASSED:
            raise WorkError(
                f"the boot test did not pass: {standing.why}",
                where=str(release),
                hint=f"run imagebuilder report {release} to see why",
            )


def boot_release(
    attempt: Attempt, nightly: Nightly, release: ReleaseName, *, once: bool
) -> Standing:
    """Boot it, and once more after a failure unless `once`; returns its standing.

    Emulated machines are slow, so a timeout does not prove that an image is bad.  What failed in an
    earlier run too is booted once per run.
    """
    nightly.boot(nightly.tree, release, nightly.ui)
    standing = standing_of(nightly, release)
    # The checks of the tree need no machine: another boot would give the same result.
    certain = standing.verdict and standing.verdict.stage is BootStage.TREE
    if once or certain or standing.state is not State.FAILED:
        return standing
    attempt.warn(f"repeating the boot test: {standing.why}")
    nightly.boot(nightly.tree, release, nightly.ui)
    return standing_of(nightly, release)


def standing_of(nightly: Nightly, release: ReleaseName) -> Standing:
    reports = find_reports(nightly.tree, release)
    return judge(nightly.tree, release, reports)


def promote_release(attempt: Attempt, nightly: Nightly, release: ReleaseName) -> Ending:
    """Make it stable if that is wanted and nobody has rolled it back."""
    if not nightly.options.promote or tell_hold(attempt, nightly, release):
        return Ending.FRESH
    with attempt.at(NightlyStage.PROMOTE):
        attempt.save()
        moved = promote(nightly.tree, str(release), nightly.ui)
        nightly.ui.note(moved.render())
    return Ending.PROMOTED


def tell_hold(attempt: Attempt, nightly: Nightly, release: ReleaseName) -> bool:
    """Whether a person rolled this release back, which a run respects."""
    hold = find_hold(nightly.tree, release) if nightly.options.promote else ""
    if hold:
        attempt.explain(hold)
    return bool(hold)


def accept(attempt: Attempt, nightly: Nightly, lock: Lock, chosen: LockChoice) -> None:
    """Update the lock file: the image of this lock has booted."""
    if lock == chosen.file:
        return
    path = nightly.settings.lock_file(attempt.profile)
    if find_lock(path) != chosen.file:
        attempt.warn("the lock file was changed in the meantime; keeping that version")
        return
    attempt.known = replace(attempt.known, lock=digest_of_lock(lock))
    attempt.save()
    make_lock_file(lock, path)
    with suppress(OSError):  # refused in an earlier attempt; a report folder may be read-only
        nightly.beside(attempt.profile, "lock").unlink()


def refuse(attempt: Attempt, nightly: Nightly, lock: Lock) -> None:
    """Keep a lock that failed beside the report, for people to inspect."""
    try:
        write_file(nightly.beside(attempt.profile, "lock"), render_lock(lock).encode())
    except OSError as error:
        attempt.warn(f"could not keep the refused lock: {error}")


def find_hold(tree: Tree, release: ReleaseName) -> str:
    """Why a run must not make a release stable again; "" if it may.

    Nightly runs promote; only people roll back, or set `stable` directly.  If a person moved
    `stable` away from this release, that decision holds until a person or a newer image moves it.
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
        f"stable stays {now}: {by} rolled back {release.version}; "
        f"run imagebuilder promote {release} to allow it again"
    )
