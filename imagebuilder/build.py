# SPDX-License-Identifier: Apache-2.0
"""Plan -> Image.  `build()` is the table of contents; what it calls is below it and in steps/."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import cast

from imagebuilder.apart import run_apart
from imagebuilder.decode import read_object
from imagebuilder.errors import ImagebuilderError, WorkError
from imagebuilder.families.protocol import Family
from imagebuilder.families.registry import family_of
from imagebuilder.image.assemble import assemble_image, commit_of, draft_image
from imagebuilder.image.proof import Answer, Proof
from imagebuilder.image.types import Image
from imagebuilder.lock.types import Lock
from imagebuilder.lock.verified import Pool
from imagebuilder.locks import file_lock
from imagebuilder.plan import Action, Plan, PlannedStep
from imagebuilder.process import check_tools, end_children
from imagebuilder.proof.terminal import headline
from imagebuilder.recipe.engines import Engines, engines_of
from imagebuilder.recipe.types import Recipe
from imagebuilder.root import FinishedRoot
from imagebuilder.settings import Settings
from imagebuilder.steps.build import tools_upper
from imagebuilder.steps.step import Counted, StepWorkspace
from imagebuilder.store.kept_tree import keep_tree, take_tree
from imagebuilder.store.records import Record, make_record, unfinished
from imagebuilder.store.repository import ImageRef, Store
from imagebuilder.store.upper import Changes, settle, stage, walk
from imagebuilder.store.workplace import keep, new_id, workplace
from imagebuilder.supplies import check_space, supplies
from imagebuilder.ui import Bar, Ui


def build(
    recipe: Recipe,
    lock: Lock,
    plan: Plan,
    settings: Settings,
    store: Store,
    ui: Ui,
    *,
    mirrors: Mapping[str, str],
    offline: bool = False,
    keep_failed: bool = False,
) -> tuple[ImageRef, Proof]:
    """Make the image of `plan`, and its proof; layers that the store has are not made again.

    Raises WorkError when a step fails; then nothing of it is in the store, and with `keep_failed`
    its directory stays for a look.
    """
    check_tools("setpriv", "unshare", "ostree")
    check_steps(plan)
    with file_lock(store.gc_lock, shared=True):
        check_space(settings.state, recipe, lock, plan)
        name = new_id(recipe.profile)
        given = supplies(recipe, lock, plan, settings, ui, mirrors=mirrors, offline=offline)
        layers = [planned.digest for planned in plan.steps]
        with (
            given as pool,
            unfinished(settings.state, plan.profile, layers),
            workplace(settings.state, name) as work,
        ):
            logs = settings.state / "logs" / name
            family = family_of(recipe.base)
            site = Site(plan.profile, settings.state, store, ui, work, logs, pool, family)
            try:
                make_layers(plan, site)
            except ImagebuilderError:
                if keep_failed:
                    keep(work, failed_tree(plan, site))
                    ui.note(f"kept {work}; to look into it, run imagebuilder shell --failed {name}")
                raise
            draft = draft_image(recipe, lock, plan, settings.state, store, work)
            with ui.step("prove") as step:
                tree, engines = finished_tree(plan, site), engines_of(recipe.overlays)
                ask = partial(prove_draft, settings.state, store, draft.image, work, tree, engines)
                proof = run_apart("the proof", ask)
                step.remark(headline(proof))
            image = assemble_image(draft, plan, store, proof=proof)
            keep_tree(settings.state, plan.profile, draft.image.root.commit, work / tree)
            return image, proof


def prove_draft(
    state: Path,
    store: Store,
    image: Image,
    work: Path,
    tree: str,
    engines: Engines,
    tell: Callable[[Answer], None],
) -> Proof:
    """Prove the tree `tree` below `work`, and keep what the profile's next proof may know of it."""
    # All questions take 8 MB, which the steps need for what they run.
    from imagebuilder.proof.memory import Memory
    from imagebuilder.proof.prove import prove_tree

    memory = Memory(state, store, image, FinishedRoot(work / tree))
    proof = prove_tree(image, work, tree, engines, memory.trace, memory.reading, on_answer=tell)
    memory.keep()
    return proof


@dataclass(frozen=True)
class Site:
    """A build under way.  `trees` grows: a layer's digest to the names below `work` that, stacked
    (topmost first), make it.  So does `changes`: an upper's name to what it removes.
    """

    profile: str
    state: Path
    store: Store
    ui: Ui
    work: Path
    logs: Path
    pool: Pool
    family: Family
    trees: dict[str, tuple[str, ...]] = field(default_factory=dict)
    changes: dict[str, Changes] = field(default_factory=dict)


def make_layers(plan: Plan, site: Site) -> None:
    """Build what the plan says: the chain in order, the leaf beside it, commits behind it."""
    pending: list[Future[None]] = []
    leaf: Future[None] | None = None
    with ThreadPoolExecutor(1) as commits, ThreadPoolExecutor(1) as leaves:
        try:
            for number, planned in enumerate(plan.steps):
                if planned.action is Action.REUSE:
                    continue
                raise_first(pending)
                below = lowers_of(site, planned.below)
                log = site.logs / f"{number:02d}-{re.sub('[ /]+', '-', planned.step.title)}.log"
                workspace = make_workspace(site, planned, number, below, log)
                if planned.step.leaf:
                    leaf = leaves.submit(make_leaf, site, planned, workspace)
                    pending.append(leaf)
                else:
                    pending.extend(make_link(site, planned, workspace, commits))
            await_commits(pending, leaf, site.ui)
        except ImagebuilderError:
            # What other steps have made is worth keeping: leaving the pools waits for it.
            raise
        except BaseException:
            commits.shutdown(wait=False, cancel_futures=True)
            leaves.shutdown(wait=False, cancel_futures=True)
            end_all(pending)
            raise


def await_commits(pending: list[Future[None]], leaf: Future[None] | None, ui: Ui) -> None:
    """Wait for the background tasks; the commits that are left when the leaf is made get a bar."""
    if leaf:
        leaf.result()
    waiting = [future for future in pending if not future.done()]
    raise_first([future for future in pending if future not in waiting])
    if waiting:
        with ui.bar(len(waiting), "commit", "layer") as bar:
            for future in waiting:
                future.result()
                bar.advance(1)


def end_all(pending: list[Future[None]]) -> None:
    """End background tasks at once: one that has lost its program may be about to start another."""
    while not all(future.done() for future in pending):
        end_children()
        sleep(0.02)


def failed_tree(plan: Plan, site: Site) -> tuple[str, ...]:
    """The names that, stacked, show what the step that failed saw and wrote."""
    for number, planned in reversed(list(enumerate(plan.steps))):
        upper = f"u{number}"
        if planned.digest not in site.trees and (site.work / upper).is_dir():
            # Of a build that failed, what was in the tree with its tools is what one looks for.
            shown = [name for name in (tools_upper(upper), upper) if (site.work / name).is_dir()]
            return (*shown, *(site.trees.get(planned.below or "") or ()))
    return ("empty",)


def raise_first(pending: list[Future[None]]) -> None:
    """Raise what a finished background task raised: a full disk need not wait for the end."""
    for future in pending:
        if future.done():
            future.result()


def make_workspace(
    site: Site, planned: PlannedStep, number: int, below: tuple[str, ...], log: Path
) -> StepWorkspace:
    return StepWorkspace(
        work=site.work,
        lower=below,
        upper=f"u{number}",
        epoch=planned.step.epoch,
        log=log,
        pool=site.pool,
        family=site.family,
    )


def lowers_of(site: Site, below: str | None) -> tuple[str, ...]:
    """The names that make the layer below a step: uppers of this build, or one checkout."""
    if below is None:
        return ()
    if below not in site.trees:
        commit = site.store.find_layer(below)
        if commit is None:
            raise WorkError(f"layer {below[:12]} disappeared from the store during the build")
        name = f"c{len(site.trees)}"
        take_tree(site.state, site.store, site.profile, commit, site.work / name)
        site.trees[below] = (name,)
    return site.trees[below]


def make_link(
    site: Site, planned: PlannedStep, workspace: StepWorkspace, commits: ThreadPoolExecutor
) -> list[Future[None]]:
    """Build one layer of the chain; its commit runs behind the next step."""
    with ExitStack() as stack:
        if not stack.enter_context(claimed(site, planned)):
            return []
        changes, seconds = run_step(site, planned, workspace)
        site.trees[planned.digest] = (workspace.upper, *workspace.lower)
        site.changes[workspace.upper] = changes
        keep_lock = stack.pop_all()

        def commit() -> None:
            with keep_lock:
                site.store.commit_layer(
                    planned.digest,
                    workspace.tree,
                    changes,
                    below=parent_of(site, planned),
                    epoch=workspace.epoch,
                    record=recorder(site, planned, workspace.tree, seconds, load_facts(workspace)),
                )

        return [commits.submit(commit)]


def finished_tree(plan: Plan, site: Site) -> str:
    """The name below `work` of the finished root as one tree, not to be written to.

    The checkout that the build began on becomes it, and is kept for the next build: 14,000 links
    take longer to make than a small change to apply.  No step may run any more.
    """
    *uppers, lowest = site.trees.get(plan.root.digest, ("root",))
    if lowest in site.changes or not uppers:  # from scratch, or made by another build
        lowest = "root"
        site.store.checkout(commit_of(site.store, plan.root), site.work / lowest)
    else:
        for upper in reversed(uppers):
            stage(site.work / upper, site.work / lowest, site.changes[upper])
    return lowest


def parent_of(site: Site, planned: PlannedStep) -> str | None:
    """The commit of the layer below; None for the first.

    Raises WorkError where its own commit has failed: what a step wrote is no root by itself.
    """
    if planned.below is None:
        return None
    parent = site.store.find_layer(planned.below)
    if parent is None:
        raise WorkError(f"the layer below {planned.step.title} is not in the store")
    return parent


def make_leaf(site: Site, planned: PlannedStep, workspace: StepWorkspace) -> None:
    """Build a layer beside the chain: its content is what the step left in `out`."""
    with claimed(site, planned) as mine:
        if mine:
            _, seconds = run_step(site, planned, workspace)
            site.store.commit_layer(
                planned.digest,
                workspace.out,
                Changes(),
                below=None,
                epoch=workspace.epoch,
                record=recorder(site, planned, workspace.out, seconds, {}),
            )


@contextmanager
def claimed(site: Site, planned: PlannedStep) -> Iterator[bool]:
    """Hold the layer's lock; False when another build has made it meanwhile."""
    title = planned.step.title

    def waiting() -> None:
        site.ui.note(f"{title}: another build makes this layer, waiting for it")

    with file_lock(site.state / "locks" / f"layer-{planned.digest}", waiting=waiting):
        made = site.store.find_layer(planned.digest) is not None
        if made:
            site.ui.note(f"{title}: another build has just made it")
        yield not made


def run_step(site: Site, planned: PlannedStep, workspace: StepWorkspace) -> tuple[Changes, float]:
    """Run one step and settle its upper; what it removes, and its seconds."""
    start = monotonic()
    step = planned.step
    workspace.tree.mkdir()
    workspace.tree.chmod(0o755)  # it becomes / of the root, whatever our umask is
    notes: list[str] = []
    told = replace(workspace, on_line=site.ui.detail, on_note=notes.append)
    with located(step.title):
        if counted := step.counted:
            with site.ui.bar(counted.total, step.title, counted.unit) as bar:
                step.apply(replace(told, on_line=counting(counted, bar, site.ui)))
        else:
            with site.ui.step(step.title):
                step.apply(told)
        for note in notes:
            site.ui.note(f"    {note}")
    below = [workspace.work / name for name in workspace.lower]
    with located(step.title):
        changes = settle(workspace.tree, below)
    return changes, monotonic() - start


@contextmanager
def located(title: str) -> Iterator[None]:
    """Errors of a step, and of the system in it, that do not say where get its title."""
    try:
        yield
    except ImagebuilderError as error:
        fault = error.faults[0]
        if fault.where:
            raise
        raise type(error)(fault.what, where=title, hint=fault.hint) from error
    except OSError as error:
        if error.filename:
            raise
        raise OSError(error.errno, error.strerror, title) from error


def counting(counted: Counted, bar: Bar, ui: Ui) -> Callable[[str], None]:
    """Advance `bar` for each new name that is told; pass every line on as a detail."""

    seen: set[str] = set()

    def see(line: str) -> None:
        ui.detail(line)
        found = counted.line.match(line)
        if found and found[1] not in seen:
            seen.add(found[1])
            bar.advance(1)

    return see


def load_facts(workspace: StepWorkspace) -> Mapping[str, int]:
    """What a step found and left beside its upper."""
    facts = workspace.facts
    return cast("dict[str, int]", read_object(facts)) if facts.exists() else {}


def recorder(
    site: Site, planned: PlannedStep, tree: Path, seconds: float, facts: Mapping[str, int]
) -> Callable[[str], None]:
    """What writes the layer's record: what it added, how long it took, and which commit it is."""

    def record(commit: str) -> None:
        kinds = (stat.S_IFREG, stat.S_IFLNK)  # a whiteout, which removes, is neither
        sizes = [info.st_size for _, info in walk(tree) if stat.S_IFMT(info.st_mode) in kinds]
        title, took = planned.step.title, round(seconds, 2)
        made = Record(title, sum(sizes), len(sizes), took, facts, commit)
        make_record(site.state, planned.digest, made)

    return record


def check_steps(plan: Plan) -> None:
    """Raise HostError unless the host has what the steps to be built need."""
    for check in dict.fromkeys(check for planned in plan.to_build for check in planned.step.checks):
        check()
