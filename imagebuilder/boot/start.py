# SPDX-License-Identifier: Apache-2.0
"""One trial: machines are switched on and boot like nodes; each stage has a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from imagebuilder.boot.acceleration import Acceleration
from imagebuilder.boot.console import Console
from imagebuilder.boot.engine import EngineUnderTest
from imagebuilder.boot.machine import PLAIN, Firmware, Machine, Shape, netbooting
from imagebuilder.boot.server import BootServer, Guest
from imagebuilder.boot.verdict import PATIENCE, give_verdict
from imagebuilder.boot.watch import Watch
from imagebuilder.checks.facts import Facts
from imagebuilder.checks.find import CheckFile
from imagebuilder.log import Tail
from imagebuilder.report.types import Check, Inference, Reached, Stage, TrialVerdict
from imagebuilder.tree import ReleaseName
from imagebuilder.ui import Ui, format_duration

POLL_SECONDS = 0.2  # seconds
BOOT_SECONDS = 200.0  # to ssh, under KVM
DAEMONS = ("dnsmasq", "nginx", "ganesha", "rpcbind")
DISK = "models"


class FailedError(Exception):
    """The trial has failed, with its verdict."""

    def __init__(self, verdict: TrialVerdict) -> None:
        super().__init__(verdict.what)
        self.verdict = verdict


@dataclass(frozen=True)
class Setting:
    """What all trials of a test have in common.

    `logs` is the folder of the report; `models` is a disk image for /models with the models of
    `engines`, or None if the node needs none; `timeout` is seconds to ssh; `stop` is set once the
    test has failed.
    """

    release: ReleaseName
    files: tuple[CheckFile, ...]
    facts: Facts
    acceleration: Acceleration
    logs: Path
    ui: Ui
    selection: str = ""
    timeout: float = 0.0
    models: Path | None = None
    engines: tuple[EngineUnderTest, ...] = ()
    shape: Shape = PLAIN
    stop: Callable[[], bool] = lambda: False

    @property
    def boot_seconds(self) -> float:
        return self.timeout or BOOT_SECONDS * self.acceleration.factor


@dataclass
class Runner:
    """A guest that is on, and what is known about it so far."""

    guest: Guest
    machine: Machine
    watch: Watch
    heard: int = 0
    booted: float = 0.0  # seconds after power-on when this boot began
    greeted: int = 0  # how often the server has reached its ssh
    checks: list[Check] = field(default_factory=list)
    stages: list[Reached] = field(default_factory=list)

    @property
    def console(self) -> Console:
        return self.machine.console


@dataclass
class TrialRun:
    """A trial in progress."""

    boot_server: BootServer
    setting: Setting
    firmware: Firmware
    root: str
    runners: list[Runner]
    tails: dict[str, Tail]
    started: float
    inference: Inference | None = None

    @property
    def way(self) -> str:
        return f"{self.firmware}+{self.root}"


def switch_on(
    boot_server: BootServer, setting: Setting, firmware: Firmware, root: str, stack: ExitStack
) -> TrialRun:
    """Power on every guest."""
    runners: list[Runner] = []
    run = TrialRun(
        boot_server, setting, firmware, root, runners,
        {daemon: Tail(boot_server.log(daemon)) for daemon in ("dnsmasq", "nginx")},
        time.monotonic(),
    )  # fmt: skip
    for guest in boot_server.guests:
        console = Console(setting.logs / log_name(run, f"console-{guest.name}"))
        machine = netbooting(
            boot_server.lab, guest.name, firmware, [guest.nic], setting.acceleration, console,
            shape=setting.shape, disks=[(DISK, setting.models)] if setting.models else [],
        )  # fmt: skip
        watch = Watch(guest.nic.mac, {guest.address})
        runners.append(Runner(guest, stack.enter_context(machine), watch))
    return run


def log_name(run: TrialRun, what: str) -> str:
    """The file name of a log in the report."""
    return f"{run.way}-{what}.log"


# --- booting


def boot(run: TrialRun, title: str) -> None:
    """Wait until every machine can be logged in to.  Raises FailedError."""
    with run.setting.ui.step(f"{title} {run.way}") as step:
        waiting = list(run.runners)
        deadline = time.monotonic() + run.setting.boot_seconds
        for runner in waiting:
            runner.booted = runner.console.seconds if runner.stages else 0.0
        while waiting:
            listen(run)
            waiting = [runner for runner in waiting if not is_open(run, runner)]
            for runner in waiting:
                if why := lost(run, runner, deadline):
                    raise FailedError(judge(run, runner, why))
            time.sleep(POLL_SECONDS)
        step.remark(", ".join(map(times, run.runners)))


def listen(run: TrialRun) -> None:
    """Read the new lines of all consoles and daemons."""
    daemons = {daemon: tail.read() for daemon, tail in run.tails.items()}
    for runner in run.runners:
        before = len(runner.watch.reached)
        lines = runner.console.since(runner.heard)
        runner.heard += len(lines)
        for line in lines:
            runner.watch.hear_console(line.text, line.seconds)
        for text in daemons["dnsmasq"]:
            runner.watch.hear_dnsmasq(text, runner.console.seconds)
        for text in daemons["nginx"]:
            runner.watch.hear_nginx(text, runner.console.seconds)
        if len(runner.watch.reached) > before and runner.watch.last:
            now = format_duration(runner.console.seconds)
            run.setting.ui.detail(f"{runner.guest.name}: {runner.watch.last} after {now}")


def is_open(run: TrialRun, runner: Runner) -> bool:
    """Whether the server has reached ssh of a machine in this boot."""
    greetings = len(run.boot_server.server.said(rf"^{runner.guest.name} +ssh "))
    if greetings <= runner.greeted:
        return False
    runner.greeted = greetings
    runner.watch.reach(Stage.SSH, runner.console.seconds)
    return True


def lost(run: TrialRun, runner: Runner, deadline: float) -> str:
    """Why waiting longer for a machine is pointless, or nothing."""
    if run.boot_server.server.status is not None:
        raise run.boot_server.server.complaint("ended while a node booted")
    if run.setting.stop():
        return "the static checks have failed"
    if runner.watch.failure:
        return runner.watch.failure.what
    if runner.machine.process.status is not None:
        return "the machine powered itself off"
    stage = runner.watch.current
    since = max(runner.watch.reached.values(), default=runner.booted)
    most = PATIENCE[stage] * run.setting.acceleration.factor
    if runner.console.seconds - since > most:
        return f"it made no progress for {most:.0f} s"
    if time.monotonic() > deadline:
        return f"no ssh after {run.setting.boot_seconds:.0f} s"
    return ""


def judge(run: TrialRun, runner: Runner, why: str) -> TrialVerdict:
    """The verdict on a machine that made no progress."""
    console = f"console-{runner.guest.name}"
    logs: dict[str, Sequence[str]] = {"console": [line.text for line in runner.console.since(0)]}
    for daemon in DAEMONS:
        logs[daemon] = Tail(run.boot_server.log(daemon)).read()
    names = {source: log_name(run, source) for source in logs}
    names["console"] = log_name(run, console)
    return give_verdict(runner.watch, why, logs, names)


def times(runner: Runner) -> str:
    """When a machine reached the main stages, for people."""
    shown = (Stage.RELEASE, Stage.ROOT, Stage.SSH)
    told = [f"{s} {format_duration(t)}" for s, t in runner.watch.reached.items() if s in shown]
    return f"{runner.guest.name} {', '.join(told)}"
