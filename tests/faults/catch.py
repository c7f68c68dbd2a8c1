# SPDX-License-Identifier: Apache-2.0
"""Let the command that must catch a fault look at it: what it found, and whether that is right."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.boot.acceleration import Acceleration
from imagebuilder.boot.gate import read_facts
from imagebuilder.boot.machine import Firmware, Shape
from imagebuilder.boot.server import BootServer, boot_server
from imagebuilder.boot.shape import memory_for
from imagebuilder.boot.start import FailedError, Setting, TrialRun, boot, switch_on
from imagebuilder.boot.trial import check, go_down, log_in
from imagebuilder.checks.find import find_checks
from imagebuilder.checks.run import run_tree_checks
from imagebuilder.image.proof import Finding, Level, Question
from imagebuilder.image.types import load_image
from imagebuilder.process import run
from imagebuilder.proof.prove import prove
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.terminal import evidence_text
from imagebuilder.recipe.engines import load_engines
from imagebuilder.report.types import Check, Outcome, Stage
from imagebuilder.root import Root
from imagebuilder.ui import Ui
from tests.faults.fault import CHECK, PROVE, Fault
from tests.faults.roots.made import PREFIX, Answers
from tests.faults.roots.real import prove_site
from tests.faults.site import Site
from tests.workshop import CHECKOUT, SHIPPED_OVERLAYS

CAUGHT, MISSED = "caught", "MISSED"
ENGINES = load_engines(SHIPPED_OVERLAYS, SHIPPED_OVERLAYS)


@dataclass(frozen=True)
class Found:
    """What a command said: the stage that failed (None: no boot), its message, the checks or the
    questions of a proof.
    """

    stage: Stage | None = None
    said: str = ""
    checks: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether it found no fault."""
        return not self.said


def judge(fault: Fault, found: Found) -> str:
    """CAUGHT, MISSED, or what is not as it should be."""
    if found.nothing:
        return MISSED
    if found.stage is not fault.stage:
        return f"WRONG STAGE {found.stage}: {first_line(found.said)}"
    if not re.search(fault.words, found.said):
        return f"WRONG WORDS: {first_line(found.said)}"
    must = fault.check or (fault.question or "")
    wanted = (must, *fault.also)
    if must and not any(fits(name, must) for name in found.checks):
        return f"OTHER CHECK: {', '.join(found.checks)}"
    if strange := [n for n in found.checks if must and not any(fits(n, w) for w in wanted)]:
        return f"FALSE ALARM BESIDE IT: {', '.join(strange)}"
    return CAUGHT


def fits(name: str, wanted: str) -> bool:
    """Whether a check is the one that is meant; without brackets every parameter of it is."""
    return wanted in (name, name.partition("[")[0])


def first_line(text: str) -> str:
    """The first line of a message."""
    return text.strip().partition("\n")[0]


def catch_static(site: Site, work: Path, selection: str = "") -> Found:
    """`imagebuilder check`, with -k if that is wanted."""
    facts = read_facts(site.tree, site.release)
    files = find_checks(SHIPPED_OVERLAYS, facts.image.overlays)
    return found_by(run_tree_checks(site.root, files, facts, work, epoch=0, selection=selection))


def found_by(checks: Sequence[Check]) -> Found:
    """What checks of the tree found."""
    failed = [one for one in checks if one.outcome is Outcome.FAILED]
    if not failed:
        return Found()
    said = "\n".join(f"{one.title}: {one.message}" for one in failed)
    return Found(Stage.TREE, said, tuple(one.name for one in failed))


def catch_prove(
    site: Site, levels: Sequence[Level] = (Level.FAULT,), only: Question | None = None
) -> Found:
    """A proof of a small root, whose programs answer what is written beside it; `only` one question
    of a real root, whose programs are asked.
    """
    if only is None:
        image = load_image(site.folder)
        ask = Answers.of(site.folder, site.root)
        proof = prove(Subject(image, Root(site.root), ask, ENGINES))
    else:
        proof = prove_site(site, only)
    bad = [f for answer in proof.answers for f in answer.findings if f.level in levels]
    said = "\n".join(
        f"{one.question}: {one.what}\n{evidence_of(one)}  hint: {one.hint}" for one in bad
    )
    return Found(None, said, tuple(dict.fromkeys(str(one.question) for one in bad)))


def evidence_of(finding: Finding) -> str:
    """Where it can be seen, a line each."""
    return "".join(f"  {evidence_text(each)}\n" for each in finding.evidence)


def catch_command(fault: Fault, site: Site) -> Found:
    """Another command of ours, as typed."""
    words = [
        word.format(name=site.release, tree=site.tree.path, profile=site.release.profile)
        for word in fault.caught.split()
    ]
    env = {"PYTHONPATH": str(CHECKOUT), "IMAGEBUILDER_PROJECT": str(CHECKOUT)}
    argv = [sys.executable, "-m", "imagebuilder.cli.main", *words]
    done = run(argv, env=env, check=False, cwd=site.tree.path)
    return Found(said=done.stderr or f"exit status {done.status}") if done.status else Found()


def catch_boot(fault: Fault, site: Site, acceleration: Acceleration, work: Path) -> Found:
    """`imagebuilder test`: one machine, as far as the fault asks for."""
    plan = fault.boot
    logs = work / "logs"
    logs.mkdir()
    spoil: Callable[[BootServer], None] | None = getattr(fault.code, "spoil", None)
    facts = read_facts(site.tree, site.release)
    files = find_checks(SHIPPED_OVERLAYS, facts.image.overlays)
    words = (*acceleration.cmdline, *plan.words)
    place = work / "room"
    place.mkdir()
    with (
        boot_server(site.tree, site.release, place, root=plan.root, cmdline=words) as room,
        ExitStack() as stack,
        (work / "steps").open("w") as told,
    ):
        moment = Moment(plan.at, spoil, room)
        setting = Setting(
            site.release, files, facts, acceleration, logs, Ui(told, verbose=True), plan.select,
            shape=Shape(plan.memory or memory_for(site.tree, site.release, plan.root)), stop=moment,
        )  # fmt: skip
        if spoil and not plan.at:
            spoil(room)
        course = switch_on(room, setting, Firmware(plan.firmware), plan.root, stack)
        moment.course = course
        return follow(course, plan.until)


@dataclass
class Moment:
    """Is asked several times a second while a machine boots; spoils the network when it is time."""

    at: str
    spoil: Callable[[BootServer], None] | None
    room: BootServer
    course: TrialRun | None = None

    def __call__(self) -> bool:
        reached = self.course and self.course.runners[0].watch.reached
        if self.spoil and self.at and reached and Stage(self.at) in reached:
            self.spoil(self.room)
            self.spoil = None
        return False


def follow(course: TrialRun, until: Stage) -> Found:
    """How far a machine comes."""
    runner = course.runners[0]
    try:
        boot(course, "Booting")
        with log_in(course, runner) as enter:
            if until is Stage.CHECKS:
                check(course, runner, enter, course.setting.selection)
            if until is Stage.SHUTDOWN:
                go_down(course, runner, enter)
    except FailedError as failed:
        verdict = failed.verdict
        lines = verdict.evidence if verdict.stage is Stage.CHECKS else ()
        names = [one.name for one in runner.checks if one.outcome is Outcome.FAILED]
        return Found(verdict.stage, "\n".join([verdict.what, *lines, verdict.hint]), tuple(names))
    return Found()


def catch(
    fault: Fault, site: Site, acceleration: Acceleration | None, work: Path, *, quick: bool
) -> Found:
    """What the command that must catch a fault says; `quick` runs only the check that must fail."""
    if fault.caught == CHECK:
        return catch_static(site, work, fault.check.partition("[")[0] if quick else "")
    if fault.caught == PROVE:
        made = fault.image.startswith(PREFIX)
        return catch_prove(site, only=None if made else fault.question)
    if not fault.boots:
        return catch_command(fault, site)
    assert acceleration is not None
    return catch_boot(fault, site, acceleration, work)
