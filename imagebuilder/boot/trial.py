# SPDX-License-Identifier: Apache-2.0
"""What a tested node must do: boot, pass its checks, compute, shut down and come back."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

from imagebuilder.boot.engine import EngineNode, EngineUnderTest, infer, infer_over, prepare
from imagebuilder.boot.lab import SERVER
from imagebuilder.boot.login import Login, login
from imagebuilder.boot.machine import Firmware, Machine
from imagebuilder.boot.server import VIEW, BootServer
from imagebuilder.boot.start import (
    DAEMONS,
    DISK,
    POLL_SECONDS,
    FailedError,
    Runner,
    Setting,
    TrialRun,
    boot,
    log_name,
    switch_on,
)
from imagebuilder.boot.watch import Watch
from imagebuilder.checks.facts import NodeFacts
from imagebuilder.checks.run import NothingSelectedError, run_boot
from imagebuilder.errors import WorkError
from imagebuilder.report.types import (
    Inference,
    MachineReport,
    Outcome,
    Reached,
    Stage,
    Trial,
    TrialVerdict,
)
from imagebuilder.ui import format_count

# Until a node that was told to reboot does, under KVM and emulated.  A service that does not end is
# waited for 90 s by systemd.
DOWN_SECONDS, EMULATED_DOWN_SECONDS = 30.0, 85.0
DOWN = r"reboot: (Restarting system|machine restart)"


def run_trial(
    boot_server: BootServer,
    setting: Setting,
    firmware: Firmware,
    root: str,
    *,
    afterwards: Callable[[BootServer, Sequence[Machine]], None] | None = None,
) -> Trial:
    """Boot the guests of `boot_server` and test them; the result has the verdict.

    `afterwards` is called while the machines still run, whatever the verdict.  Raises HostError if
    this host is not fit.
    """
    with ExitStack() as stack:
        run = switch_on(boot_server, setting, firmware, root, stack)
        try:
            prove(run)
            verdict = TrialVerdict(passed=True)
        except FailedError as failed:
            verdict = failed.verdict
        if afterwards:
            afterwards(boot_server, [runner.machine for runner in run.runners])
    for daemon in DAEMONS:
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(boot_server.log(daemon), setting.logs / log_name(run, daemon))
    return Trial(
        firmware=str(firmware),
        root=root,
        machines=tuple(
            MachineReport(
                name=runner.guest.name,
                mac=runner.guest.nic.mac,
                address=runner.guest.address,
                stages=tuple(runner.stages) or runner.watch.stages,
                checks=tuple(runner.checks),
                console=runner.console.log.path.name,
            )
            for runner in run.runners
        ),
        verdict=verdict,
        seconds=time.monotonic() - run.started,
        inference=run.inference,
    )


def prove(run: TrialRun) -> None:
    """Everything a node must do, in order.  Raises FailedError at the first failure."""
    boot(run, "Booting")
    with ExitStack() as logins:
        entered = [logins.enter_context(log_in(run, runner)) for runner in run.runners]
        for runner, enter in zip(run.runners, entered, strict=True):
            check(run, runner, enter, run.setting.selection)
        if run.setting.selection:
            return
        compute(run, entered)
        for runner, enter in zip(run.runners, entered, strict=True):
            go_down(run, runner, enter)
    boot(run, "Booting again")
    for runner in run.runners:
        with log_in(run, runner) as enter:
            come_back(run, runner, enter)


@contextlib.contextmanager
def log_in(run: TrialRun, runner: Runner) -> Iterator[Login]:
    """Log in to a guest.  Raises FailedError if that fails."""
    guest, boot_server = runner.guest, run.boot_server
    try:
        opened = ExitStack()
        entered = opened.enter_context(
            login(
                boot_server.lab,
                guest.name,
                guest.address,
                boot_server.host_key(guest),
                boot_server.key,
            )
        )
    except WorkError as error:
        raise FailedError(failure(run, runner, Stage.SSH, error)) from error
    with opened:
        yield entered


def failure(run: TrialRun, runner: Runner, stage: Stage, error: WorkError) -> TrialVerdict:
    """The verdict for an error of a command on a node."""
    fault = error.faults[0]
    what, *lines = fault.what.splitlines()
    return TrialVerdict(
        passed=False,
        stage=stage,
        what=what,
        evidence=tuple(line.strip() for line in lines) or runner.console.tail(12),
        log=log_name(run, f"console-{runner.guest.name}"),
        hint=fault.hint,
    )


def reach(runner: Runner, stage: Stage) -> None:
    """Record that a machine has passed a stage now."""
    runner.stages.append(Reached(stage, runner.console.seconds))


def check(run: TrialRun, runner: Runner, enter: Login, selection: str, note: str = "") -> None:
    """Run the boot checks on a node.  Raises FailedError if one fails."""
    setting = run.setting
    if not runner.stages:
        runner.stages += runner.watch.stages
    facts = replace(setting.facts, node=node_facts(run, runner))
    place = run.boot_server.lab.work / f"{runner.guest.name}{note.replace(' ', '-')}"
    with setting.ui.step(f"Checking {runner.guest.name}{note}") as step:
        try:
            found = run_boot(setting.files, facts, enter.words, place, selection=selection)
        except NothingSelectedError:
            found = ()
        except WorkError as error:
            raise FailedError(failure(run, runner, Stage.CHECKS, error)) from error
        broken = [one for one in found if one.outcome is Outcome.FAILED]
        step.remark(
            format_count(len(found), "check") + (f", {len(broken)} failed" if broken else "")
        )
    runner.checks += [replace(one, name=f"{one.name}{note.replace(' ', '_')}") for one in found]
    if broken:
        raise FailedError(
            TrialVerdict(
                passed=False,
                stage=Stage.CHECKS,
                what="; ".join(f"{one.title}{note}" for one in broken),
                evidence=tuple(line for one in broken for line in one.message.splitlines()),
                log=log_name(run, f"console-{runner.guest.name}"),
                hint=f"run imagebuilder test {setting.release.profile} -k "
                f"{broken[0].name.split('[')[0]} --keep to keep the machine running "
                "and inspect it",
            )
        )
    if not note:
        reach(runner, Stage.CHECKS)


def node_facts(run: TrialRun, runner: Runner) -> NodeFacts:
    """What a check may know about the node."""
    guest, boot_server = runner.guest, run.boot_server
    image = run.setting.facts.image
    export = f"{SERVER}:{VIEW}/roots/{image.profile}"
    sources = {"nfs": f"{export}/{image.version}", "nfs-squashfs": export}
    return NodeFacts(
        name=guest.name,
        address=guest.address,
        machine_id=boot_server.machine_id(guest),
        host_key=" ".join(boot_server.host_key(guest).split()[:2]),
        firmware=str(run.firmware),
        root=run.root,
        server=SERVER,
        source=sources.get(run.root, ""),
        seconds=runner.watch.reached[Stage.SSH],
    )


def compute(run: TrialRun, entered: Sequence[Login]) -> None:
    """Attach the disk with the models, and ask the engines.  Raises FailedError."""
    engines = run.setting.engines
    if not engines:
        return
    first = run.runners[0]
    factor = run.setting.acceleration.factor
    nodes = [
        EngineNode(runner.guest.name, runner.guest.address, enter)
        for runner, enter in zip(run.runners, entered, strict=True)
    ]
    try:
        with run.setting.ui.step("Computing with a tiny model") as step:
            for engine in engines:
                prepare(nodes[0], engine)
            first.machine.attach(DISK)
            found = [infer(nodes[0], engine, factor) for engine in engines]
            run.inference = least_of(found)
            step.remark(f"on {run.inference.used}")
        check(run, first, entered[0], checks_with_disk(engines), " with the models disk")
        if len(nodes) > 1:
            with run.setting.ui.step("Computing over two nodes"):
                found = [infer_over(nodes[0], nodes[1], engine, factor) for engine in engines]
                run.inference = least_of(found)
    except WorkError as error:
        raise FailedError(failure(run, first, Stage.INFERENCE, error)) from error
    finally:
        with contextlib.suppress(WorkError):  # the machine may be gone
            first.machine.detach(DISK)
    reach(first, Stage.INFERENCE)


def least_of(found: Sequence[Inference]) -> Inference:
    """The answer that a report keeps of several engines: a degraded one if there is any."""
    return min(found, key=lambda one: not one.degraded)


def checks_with_disk(engines: Sequence[EngineUnderTest]) -> str:
    """The checks to repeat once the disk with the models is attached."""
    overlays = (engine.kind.folder.name.replace("-", "_") for engine in engines)
    return " or ".join(("models", *overlays))


def go_down(run: TrialRun, runner: Runner, enter: Login) -> None:
    """Reboot a node.  Raises FailedError if it does not go down in time."""
    before = len(runner.console.since(0))
    is_emulated = run.setting.acceleration.kind != "kvm"
    most = EMULATED_DOWN_SECONDS if is_emulated else DOWN_SECONDS
    with run.setting.ui.step(f"Rebooting {runner.guest.name}") as step:
        enter("systemctl reboot", check=False)
        started = time.monotonic()
        while not runner.console.said(DOWN, before):
            if time.monotonic() - started > most:
                raise FailedError(
                    TrialVerdict(
                        passed=False,
                        stage=Stage.SHUTDOWN,
                        what=f"the node did not go down within {most:.0f} s",
                        evidence=runner.console.tail(12),
                        log=log_name(run, f"console-{runner.guest.name}"),
                        hint="see which unit does not stop (the last lines of the console), and "
                        "whether the network was stopped before the network root",
                    )
                )
            time.sleep(POLL_SECONDS)
        step.remark("went down in time")
    reach(runner, Stage.SHUTDOWN)
    runner.heard = len(runner.console.since(0))
    runner.watch = Watch(runner.guest.nic.mac, {runner.guest.address})
    runner.machine.power_cycle()


def come_back(run: TrialRun, runner: Runner, enter: Login) -> None:
    """Check that a rebooted node is the same node.  Raises FailedError."""
    try:
        told = enter("cat /etc/machine-id").stdout.strip()
    except WorkError as error:
        raise FailedError(failure(run, runner, Stage.REBOOT, error)) from error
    if told != (kept := run.boot_server.machine_id(runner.guest)):
        raise FailedError(
            TrialVerdict(
                passed=False,
                stage=Stage.REBOOT,
                what=f"the machine-id is {told} after a reboot, but was {kept} before",
                hint="check systemd.machine_id= on the command line and /etc/machine-id of the "
                "image",
            )
        )
    reach(runner, Stage.REBOOT)
