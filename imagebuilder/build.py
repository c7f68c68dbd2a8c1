# SPDX-License-Identifier: Apache-2.0
"""Plan -> Image.  `build()` is the table of contents; what it calls is below it and in steps/."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic, sleep

from imagebuilder.errors import FullError, HostError, ImagebuilderError, WorkError
from imagebuilder.image.assemble import assemble_image, commit_of, draft_image
from imagebuilder.lock.builds import every_package
from imagebuilder.lock.pool import fetch
from imagebuilder.lock.types import Lock
from imagebuilder.plan import Action, Plan, PlannedStep
from imagebuilder.process import check_tools, end_children
from imagebuilder.proof.as_json import proof_json
from imagebuilder.proof.stand import prove_tree
from imagebuilder.proof.terminal import headline
from imagebuilder.proof.types import Proof
from imagebuilder.recipe.types import Recipe
from imagebuilder.settings import Settings
from imagebuilder.steps.ansible import AnsibleStep, check_ansible
from imagebuilder.steps.bootstrap.step import ENGINES, BootstrapStep
from imagebuilder.steps.bootstrap.tool import check_tool
from imagebuilder.steps.build import BuildStep, tools_upper
from imagebuilder.steps.packages import PackagesStep
from imagebuilder.steps.python import PythonStep
from imagebuilder.steps.workspace import Workspace
from imagebuilder.store.locks import held
from imagebuilder.store.records import Record, make_record
from imagebuilder.store.repository import ImageRef, Store
from imagebuilder.store.upper import Changes, settle, stage, walk
from imagebuilder.store.workplace import keep, new_id, workplace
from imagebuilder.ui import Bar, PoolProgress, Ui, format_size

# What dpkg says of a package it sets up, and what debootstrap makes of that.
SET_UP = re.compile(r"(?:Setting up|I: Configuring) ([^\s:]+?)(?::\w+)?(?: \(|\.\.\.)")


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
    check_tools("setpriv", "unshare", "ostree", "apt-get", "dpkg-deb")
    check_engines(plan)
    if any(isinstance(planned.step, AnsibleStep) for planned in plan.to_build):
        check_ansible()
    with held(settings.state / "locks" / "gc", shared=True):
        check_space(settings.state, lock, plan)
        fetch(
            needed(lock, plan),
            mirrors,
            recipe.sources,
            settings.state / "debs",
            settings.state / "wheels",
            settings.cache,
            offline=offline,
            progress=PoolProgress(ui),
        )
        name = new_id(recipe.profile)
        with workplace(settings.state, name) as work:
            site = Site(settings.state, store, ui, work, settings.state / "logs" / name)
            try:
                make_layers(plan, site)
            except ImagebuilderError:
                if keep_failed:
                    keep(work, failed_tree(plan, site))
                    ui.note(f"imagebuilder shell --failed {name} looks into {work}, which is kept")
                raise
            draft = draft_image(recipe, lock, plan, settings.state, store, work)
            with ui.step("prove") as step:
                proof = prove_tree(draft.manifest, work, finished_tree(plan, site))
                step.remark(headline(proof))
            facts = proof_json(proof, timed=False)
            return assemble_image(draft, plan, store, proof=facts), proof


@dataclass(frozen=True)
class Site:
    """A build under way.  `trees` grows: a layer's digest to the names below `work` that, stacked
    (topmost first), make it.  So does `changes`: an upper's name to what it removes.
    """

    state: Path
    store: Store
    ui: Ui
    work: Path
    logs: Path
    trees: dict[str, tuple[str, ...]] = field(default_factory=dict)
    changes: dict[str, Changes] = field(default_factory=dict)


def make_layers(plan: Plan, site: Site) -> None:
    """Build what the plan says: the chain in order, the leaf beside it, commits behind it."""
    pending: list[Future[None]] = []
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
                    pending.append(leaves.submit(make_leaf, site, planned, workspace))
                else:
                    pending.extend(make_link(site, planned, workspace, commits))
            for future in pending:
                future.result()
        except ImagebuilderError:
            # What other steps have made is worth keeping: leaving the pools waits for it.
            raise
        except BaseException:
            commits.shutdown(wait=False, cancel_futures=True)
            leaves.shutdown(wait=False, cancel_futures=True)
            end_all(pending)
            raise


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
) -> Workspace:
    """The world of one step of the plan."""
    return Workspace(
        work=site.work,
        lower=below,
        upper=f"u{number}",
        epoch=planned.step.epoch,
        log=log,
        pool=site.state / "debs",
        wheels=site.state / "wheels",
    )


def lowers_of(site: Site, below: str | None) -> tuple[str, ...]:
    """The names that make the layer below a step: uppers of this build, or one checkout."""
    if below is None:
        return ()
    if below not in site.trees:
        commit = site.store.find_layer(below)
        if commit is None:
            raise WorkError(f"layer {below[:12]} left the store while building")
        name = f"c{len(site.trees)}"
        site.store.checkout(commit, site.work / name)
        site.trees[below] = (name,)
    return site.trees[below]


def make_link(
    site: Site, planned: PlannedStep, workspace: Workspace, commits: ThreadPoolExecutor
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
                record(site, planned, workspace.tree, seconds, load_facts(workspace))
                parent = parent_of(site, planned)
                site.store.commit_layer(
                    planned.digest, workspace.tree, changes, below=parent, epoch=workspace.epoch
                )

        return [commits.submit(commit)]


def finished_tree(plan: Plan, site: Site) -> str:
    """The name below `work` of the finished root as one tree, not to be written to.

    The checkout that the build began on becomes it, for 14,000 links take longer to make than a
    small change to apply.  No step may run any more.
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
        raise WorkError(f"the layer below {planned.step.title} did not reach the store")
    return parent


def make_leaf(site: Site, planned: PlannedStep, workspace: Workspace) -> None:
    """Build a layer beside the chain: its content is what the step left in `out`."""
    with claimed(site, planned) as mine:
        if mine:
            _, seconds = run_step(site, planned, workspace)
            record(site, planned, workspace.out, seconds, {})
            site.store.commit_layer(
                planned.digest, workspace.out, Changes(), below=None, epoch=workspace.epoch
            )


@contextmanager
def claimed(site: Site, planned: PlannedStep) -> Iterator[bool]:
    """Hold the layer's lock; False when another build has made it meanwhile."""
    title = planned.step.title

    def waiting() -> None:
        site.ui.note(f"{title}: another build makes this layer, waiting for it")

    with held(site.state / "locks" / f"layer-{planned.digest}", waiting=waiting):
        made = site.store.find_layer(planned.digest) is not None
        if made:
            site.ui.note(f"{title}: another build has just made it")
        yield not made


def run_step(site: Site, planned: PlannedStep, workspace: Workspace) -> tuple[Changes, float]:
    """Run one step and settle its upper; what it removes, and its seconds."""
    start = monotonic()
    step = planned.step
    workspace.tree.mkdir()
    workspace.tree.chmod(0o755)  # it becomes / of the root, whatever our umask is
    with located(step.title):
        if isinstance(step, BootstrapStep | PackagesStep):
            with site.ui.bar(len(step.packages), step.title, "packages") as bar:
                step.apply(replace(workspace, on_line=count_packages(bar, site.ui)))
        else:
            notes: list[str] = []
            with site.ui.step(step.title):
                step.apply(replace(workspace, on_line=site.ui.detail, on_note=notes.append))
            for note in notes:
                site.ui.note(f"    {note}")
    below = [workspace.work / name for name in workspace.lower]
    return settle(workspace.tree, below), monotonic() - start


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


def count_packages(bar: Bar, ui: Ui) -> Callable[[str], None]:
    """Advance `bar` for each package that is set up; pass every line on as a detail."""

    seen: set[str] = set()

    def see(line: str) -> None:
        ui.detail(line)
        found = SET_UP.match(line)
        if found and found[1] not in seen:
            seen.add(found[1])
            bar.advance(1)

    return see


def load_facts(workspace: Workspace) -> Mapping[str, int]:
    """What a step found and left beside its upper."""
    facts = workspace.facts
    found: dict[str, int] = json.loads(facts.read_text()) if facts.exists() else {}
    return found


def record(
    site: Site, planned: PlannedStep, tree: Path, seconds: float, facts: Mapping[str, int]
) -> None:
    """Write the layer's record: what it added, and how long it took."""
    kinds = (stat.S_IFREG, stat.S_IFLNK)  # a whiteout, which removes, is neither
    sizes = [info.st_size for _, info in walk(tree) if stat.S_IFMT(info.st_mode) in kinds]
    made = Record(planned.step.title, sum(sizes), len(sizes), round(seconds, 2), facts)
    make_record(site.state, planned.digest, made, site.work)


def check_root() -> None:
    """Raise HostError unless we are root: layers hold files of many owners."""
    if os.geteuid() != 0:
        raise HostError(
            "build needs root: a root filesystem holds files of many owners",
            hint="make image PROFILE=... asks for sudo where needed, or use sudo yourself",
        )


def check_engines(plan: Plan) -> None:
    """Raise HostError unless the engine of each base to be built is here, and new enough."""
    for planned in plan.to_build:
        if isinstance(planned.step, BootstrapStep):
            check_tool(ENGINES[planned.step.engine].tool)


def check_space(state: Path, lock: Lock, plan: Plan) -> None:
    """Raise FullError when the build cannot fit."""
    wanted = room_for(lock, plan)
    stat_of = os.statvfs(state)
    free = stat_of.f_bavail * stat_of.f_frsize
    if free < wanted:
        raise FullError(
            f"{format_size(free)} free, at least {format_size(wanted)} needed",
            where=os.fspath(state),
            hint="imagebuilder gc frees what no image needs; --state names another place",
        )


def room_for(lock: Lock, plan: Plan) -> int:
    """The bytes that a build takes at least: packages take several times their download."""
    return sum(p.size for p in every_package(needed(lock, plan))) * 3


def needed(lock: Lock, plan: Plan) -> Lock:
    """The part of the lock whose layers are to be built."""
    packages = [
        p for s in plan.to_build if isinstance(s.step, BootstrapStep | PackagesStep)
        for p in s.step.packages
    ]  # fmt: skip
    wanted = {(p.name, p.architecture) for p in packages}
    paths = {s.step.locked.path for s in plan.to_build if isinstance(s.step, PythonStep)}
    steps = [s.step for s in plan.to_build if isinstance(s.step, BuildStep)]
    builds = {(step.overlay, step.locked.name) for step in steps}
    if paths or any(s.locked.python for s in steps):  # it tells which wheels fit (lock/wheels.py)
        wanted.add(("libc6", lock.architecture))
    return replace(
        lock,
        layers=tuple(
            replace(
                layer,
                packages=tuple(p for p in layer.packages if (p.name, p.architecture) in wanted),
                python=tuple(p for p in layer.python if p.path in paths),
                builds=tuple(b for b in layer.builds if (layer.overlay, b.name) in builds),
            )
            for layer in lock.layers
        ),
    )
