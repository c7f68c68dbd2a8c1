# SPDX-License-Identifier: Apache-2.0
"""Release -> Report: the boot test, from the published files to the verdict."""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from imagebuilder import __version__
from imagebuilder.boot.acceleration import Acceleration, probe
from imagebuilder.boot.disk import make_models_disk
from imagebuilder.boot.engine import EngineUnderTest
from imagebuilder.boot.machine import Firmware, Machine, Shape
from imagebuilder.boot.server import BootServer, boot_server
from imagebuilder.boot.shape import (
    AS_NEEDED,
    RequestedShape,
    check_memory,
    check_processor,
    shape_for,
)
from imagebuilder.boot.start import Setting
from imagebuilder.boot.trial import run_trial
from imagebuilder.bootfiles import KERNEL
from imagebuilder.checks.facts import Facts, facts_of
from imagebuilder.checks.find import CheckFile, find_checks
from imagebuilder.checks.run import NothingSelectedError, run_tree_checks, tell_checks
from imagebuilder.errors import HostError, InputError
from imagebuilder.image.types import load_image
from imagebuilder.nodes.references import find_version
from imagebuilder.process import check_tools, run
from imagebuilder.publish.channel.gate import under_test
from imagebuilder.publish.find import check_channels, find_profile, find_release
from imagebuilder.publish.release.content import check_release, release_digests
from imagebuilder.recipe.engines import EngineKind, load_engines
from imagebuilder.report.save import begin_report, save_report
from imagebuilder.report.types import Check, Outcome, Report, Trial
from imagebuilder.rights import check_root
from imagebuilder.root import Root
from imagebuilder.rootkind import FORMAT_OF, KINDS, Format, name_of, packed_file
from imagebuilder.sandbox.sandbox import Bind, Sandbox, folders_of
from imagebuilder.sandbox.view import for_anybody
from imagebuilder.store.workplace import workplace
from imagebuilder.tree import CANDIDATE, ReleaseName, Tree
from imagebuilder.ui import Ui

BOTH, ALL = "both", "all"
MIB = 1 << 20
TOOLS = (
    "qemu-system-x86_64", "ganesha.nfsd", "rpcbind", "dnsmasq", "nginx", "ip", "nsenter", "unshare",
    "ssh", "ssh-keygen", "mke2fs",
)  # fmt: skip


@dataclass(frozen=True)
class GateOptions:
    """Options of a boot test.

    `firmware` is uefi, bios or both, `root` a kind of root, both (nfs and http), all, or "" for the
    release's default.
    `timeout` is seconds to ssh, 0 for the default of the acceleration.
    """

    firmware: str = "uefi"
    root: str = ""
    nodes: int = 1
    selection: str = ""
    timeout: float = 0.0
    machine: RequestedShape = AS_NEEDED


@dataclass(frozen=True)
class TrialWay:
    """One way to boot."""

    firmware: Firmware
    root: str
    shape: Shape


@dataclass(frozen=True)
class Job:
    """What is tested and in which ways, decided before anything is started.

    `digests` are of the bytes that will be booted, `unasked` the engines that have no boot test.
    """

    release: ReleaseName
    facts: Facts
    files: tuple[CheckFile, ...]
    engines: tuple[EngineUnderTest, ...]
    untestable: tuple[Check, ...]
    ways: tuple[TrialWay, ...]
    digests: Mapping[str, str]


def try_release(
    tree: Tree,
    name: str,
    overlays: Mapping[str, Path],
    options: GateOptions,
    ui: Ui,
    *,
    afterwards: Callable[[BootServer, Sequence[Machine]], None] | None = None,
) -> Report:
    """Boot `profile@version`, or the candidate of `profile`, and report the result.

    `overlays` are the folders of all overlays.  `afterwards` is called while the machines
    of a trial still run.  Saves the report beside the release.  Raises InputError, HostError, and
    DamagedError if the release differs from what was published.
    """
    check_host()
    release = tell_release(tree, name, ui)
    started = datetime.now(UTC)
    identity = f"{started:%Y%m%dT%H%M%SZ}-{os.getpid()}"
    with (
        under_test(tree, release, ui),
        workplace(tree.path, f"test-{identity}") as work,
        begin_report(tree, release, identity) as staged,
        ThreadPoolExecutor(1) as pool,
    ):
        clock = time.monotonic()
        job = decide(tree, release, overlays, options)
        acceleration = accelerate(tree, job, work, ui)

        # The tree is checked while the machines boot.
        tree_checks = pool.submit(check_tree, tree, job, work, options.selection, ui)
        setting = Setting(
            release, job.files, job.facts, acceleration, staged, ui, options.selection,
            options.timeout, make_disk(tree, release, job.engines, work), job.engines,
            stop=lambda: tree_checks.done() and has_failed(tree_checks.result()),
        )  # fmt: skip
        trials = [try_way(tree, setting, way, options.nodes, work, afterwards) for way in job.ways]
        checks = tree_checks.result()
        if not checks and not any(machine.checks for t in trials for machine in t.machines):
            raise InputError("selects no check", where=f"-k {options.selection}")
        report = Report(
            id=identity,
            profile=release.profile,
            version=release.version,
            digests=job.digests,
            started=started.isoformat(timespec="seconds"),
            seconds=time.monotonic() - clock,
            acceleration=acceleration.kind,
            why=acceleration.why,
            host=describe_host(),
            tool=__version__,
            selection=options.selection,
            sizes=find_sizes(tree, release, job.facts),
            files={file.name: file.digest for file in job.files},
            static=(*checks, *job.untestable),
            trials=tuple(trials),
            machine=platform.node(),
        )
        keep_report(tree, report, staged)
    return report


def keep_report(tree: Tree, report: Report, staged: Path) -> None:
    """Save a report, unless the tested files have changed since.  Raises DamagedError."""
    check_release(tree, report.release)
    save_report(tree, report, staged)


def decide(
    tree: Tree, release: ReleaseName, overlays: Mapping[str, Path], options: GateOptions
) -> Job:
    """Decide what to test, and check the whole request.

    Raises InputError, and DamagedError if the release differs from what was published.
    """
    check_release(tree, release)
    facts = read_facts(tree, release)
    roots = choose_roots(facts, options.root)
    firmwares = choose_firmwares(options.firmware)
    check_roots(tree, release, roots)
    digests = release_digests(tree, release)
    files = find_checks(overlays, facts.image.overlays)
    kinds = load_engines(overlays, facts.image.overlays).values()
    engines = tuple(EngineUnderTest(kind, kind.model.boot) for kind in kinds if kind.model.boot)
    untestable = tuple(untestable_engine(kind) for kind in kinds if not kind.model.boot)
    shapes = {root: shape_for(tree, release, engines, root, options.machine) for root in roots}
    for shape in shapes.values():
        check_memory(shape, options.nodes)
    ways = tuple(TrialWay(firmware, root, shapes[root]) for firmware in firmwares for root in roots)
    return Job(release, facts, files, engines, untestable, ways, digests)


def untestable_engine(kind: EngineKind) -> Check:
    """The skipped check of an engine whose overlay defines no boot test."""
    return Check(
        group=kind.folder.name,
        name="test_the_engine_answers",
        kind="boot",
        outcome=Outcome.SKIPPED,
        seconds=0.0,
        message=f"{kind.folder.name}/overlay.yaml has no `engine: boot:`, so it was not tested",
    )


def check_host() -> None:
    """Raise HostError if no test can run here."""
    check_root("a boot test in an isolated network")
    try:
        check_tools(*TOOLS)
    except HostError as error:
        raise HostError(
            error.faults[0].what, hint="run imagebuilder setup --boot to install what a test needs"
        ) from error


def choose_release(tree: Tree, name: str) -> ReleaseName:
    """The release of that name; for a profile its candidate, or else its newest release."""
    profile, _, version = name.partition("@")
    there = find_profile(tree, profile)
    if not version:
        check_channels(tree, profile)
        version = find_version(tree, profile, CANDIDATE) or there[-1].version
    return find_release(tree, f"{profile}@{version}")


def tell_release(tree: Tree, name: str, ui: Ui) -> ReleaseName:
    """choose_release(), and say which one it is unless `name` does: that of another variant of the
    recipe may have been published last.
    """
    release = choose_release(tree, name)
    if str(release) != name:
        ui.note(f"Testing {release}")
    return release


def read_facts(tree: Tree, release: ReleaseName) -> Facts:
    folder = tree.release(release)
    return facts_of(load_image(folder), folder, release=os.fspath(tree.root(release)))


def choose_firmwares(requested: str) -> tuple[Firmware, ...]:
    """The firmwares to boot with.  Raises InputError."""
    if requested == BOTH:
        return tuple(Firmware)
    try:
        return (Firmware(requested),)
    except ValueError as error:
        raise InputError("must be uefi, bios or both", where=f"--firmware {requested}") from error


def choose_roots(facts: Facts, requested: str) -> tuple[str, ...]:
    """The kinds of root to boot with.  Raises InputError."""
    several: Mapping[str, tuple[str, ...]] = {
        "": (facts.image.boot.root,),
        BOTH: ("nfs", "http"),
        ALL: KINDS,
    }
    if requested in KINDS:
        return (requested,)
    if requested not in several:
        raise InputError(
            f"must be one of {', '.join((*KINDS, BOTH, ALL))}", where=f"--root {requested}"
        )
    return several[requested]


def check_roots(tree: Tree, release: ReleaseName, roots: Sequence[str]) -> None:
    """Raise InputError if the release lacks a packed root of one of these kinds."""
    folder = tree.release(release)
    for root in roots:
        name = packed_file(root)
        if name and not (folder / name).exists():
            raise InputError(
                f"{release} has no {name}",
                where=f"--root {root}",
                hint=f"run imagebuilder publish --format {FORMAT_OF[root]} {release} to add it",
            )


def choose_acceleration(tree: Tree, release: ReleaseName, work: Path, ui: Ui) -> Acceleration:
    """KVM if the release's own kernel starts under it."""
    with ui.step("Looking for KVM") as step:
        kernel = tree.release(release) / KERNEL
        found = probe(kernel, work)
        step.remark(f"{found.kind}: {found.why}")
    return found


def accelerate(tree: Tree, job: Job, work: Path, ui: Ui) -> Acceleration:
    """The acceleration of the machines.  Raises HostError without their processors."""
    found = choose_acceleration(tree, job.release, work, ui)
    check_processor(found, {way.shape.processor for way in job.ways})
    return found


def check_tree(tree: Tree, job: Job, work: Path, selection: str, ui: Ui) -> tuple[Check, ...]:
    """Run the static checks on the exported root."""
    release = job.release
    root = tree.root(release)
    epoch, place = job.facts.image.epoch, work / "static"
    place.mkdir()
    with ui.step("Checking the tree") as step:
        try:
            found = run_tree_checks(
                root, job.files, job.facts, place, epoch=epoch, selection=selection
            )
        except NothingSelectedError:
            found = ()
        step.remark(tell_checks(found))
    return found


def has_failed(checks: Sequence[Check]) -> bool:
    return any(check.outcome is Outcome.FAILED for check in checks)


def try_way(
    tree: Tree,
    setting: Setting,
    way: TrialWay,
    nodes: int,
    work: Path,
    afterwards: Callable[[BootServer, Sequence[Machine]], None] | None,
) -> Trial:
    """Run one trial in a lab of its own."""
    place = work / f"{way.firmware}-{way.root}"
    place.mkdir()
    setting = replace(setting, shape=way.shape)
    words = setting.acceleration.cmdline
    with boot_server(
        tree, setting.release, place, root=way.root, nodes=nodes, cmdline=words
    ) as server:
        return run_trial(server, setting, way.firmware, way.root, afterwards=afterwards)


def make_disk(
    tree: Tree, release: ReleaseName, engines: Sequence[EngineUnderTest], work: Path
) -> Path | None:
    """A models disk for the image with a tiny model for each engine; None without engines."""
    if not engines:
        return None
    root = Root(tree.root(release))
    models: dict[str, Path] = {}
    for number, engine in enumerate(engines):
        place = work / f"model-{number}"
        place.mkdir()
        model = engine.boot.model
        named = rf"{model.variable}=/models/(\S+)"
        name = find_setting(root, model.settings, named) or place.name
        models[name] = make_tiny_model(engine.kind.program(model.program), place)
    mount = "/etc/systemd/system/models.mount"
    label = find_setting(root, mount, r"What=/dev/disk/by-label/(\S+)") or "models"
    disk = work / "models.img"
    make_models_disk(disk, models, label=label)
    return disk


def make_tiny_model(program: Path, place: Path) -> Path:
    """Run an overlay's program in a sandbox that sees only the builder's programs and `place`."""
    made = place / "model"
    sandbox = Sandbox(
        place, ("empty",), "view", 0, (Bind(program.parent, program.parent),),
        enter=False, view=folders_of(Path(sys.executable)),
    )  # fmt: skip
    run([sys.executable, "-I", program, made], sandbox=for_anybody(sandbox))
    return made


def find_setting(root: Root, path: str, pattern: str) -> str:
    """The first group of the first line that matches, or nothing."""
    found = re.search(rf"^{pattern}$", root.text(path), re.MULTILINE)
    return found[1] if found else ""


def find_sizes(tree: Tree, release: ReleaseName, facts: Facts) -> dict[str, int]:
    """Bytes of what nodes fetch, and of the root."""
    folder = tree.release(release)
    names = (*facts.image.kernel.files, *map(name_of, Format))
    sizes = {name: (folder / name).stat().st_size for name in names if (folder / name).exists()}
    return {"root": facts.image.root.size, **sizes}


def describe_host() -> str:
    """The machine that a test ran on: system, processors."""
    return f"{platform.system()} {platform.release()}, {os.cpu_count()} processors"
