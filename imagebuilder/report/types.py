# SPDX-License-Identifier: Apache-2.0
"""The Report: what was tested, on which bytes, the progress of each machine, and the verdict.

Report      one run of `imagebuilder test` on one release
  Check     a check of the tree (kind "static")
  Trial     one way to boot: firmware and kind of root, with one node or more
    Machine   one machine of it: the stages it reached, its checks, its console
      Check   a check over ssh (kind "boot")
    Inference what an engine answered, and on what it computed
    TrialVerdict   passed, or the stage that failed, with evidence and hint
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pydantic import ConfigDict

from imagebuilder.decode import Amount, JsonFile, Seconds, UtcTime
from imagebuilder.tree import Name, Released

CPU = "cpu"


class Stage(StrEnum):
    """The stages of a boot test, in order: each is passed, or is the one that failed."""

    TREE = "static"  # the static checks of the tree passed
    FIRMWARE = "firmware"  # the firmware has requested an address
    DHCP = "dhcp"  # it got an address
    BOOT_FILE = "boot-file"  # it has fetched iPXE (BIOS machines in QEMU bring it)
    IPXE = "ipxe"  # iPXE has fetched the entry script
    RELEASE = "release"  # iPXE has fetched the kernel of the release
    KERNEL = "kernel"  # the kernel runs
    INITRD = "initrd"  # imagebuilder's part of the initrd runs
    NETWORK = "network"  # the initrd has an address
    ROOT = "root"  # the root is mounted
    SWITCH_ROOT = "switch-root"  # the initrd has ended
    UNITS = "units"  # systemd of the root starts units
    SSH = "ssh"  # ssh answers
    CHECKS = "checks"  # the boot checks passed
    INFERENCE = "inference"  # the inference engines have answered
    SHUTDOWN = "shutdown"  # the node went down in time
    REBOOT = "reboot"  # it came back as the same node


ORDER: tuple[Stage, ...] = tuple(Stage)


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Check:
    """One check that ran.

    `group` is its overlay, or "common"; `kind` is "static" or "boot"; `name` is its function with
    parameters, `message` why it failed or was skipped (several lines, the fact first).
    """

    group: str
    name: str
    kind: str
    outcome: Outcome
    seconds: Seconds
    message: str = ""

    @property
    def title(self) -> str:
        """Its name in words: `ssh: no host key is in the image`."""
        words = self.name.removeprefix("test_").replace("_", " ")
        return f"{self.group}: {words}"


@dataclass(frozen=True)
class Reached:
    """A stage that was passed, `seconds` after power-on."""

    stage: Stage
    seconds: Seconds


@dataclass(frozen=True)
class TrialVerdict:
    """Passed, or which stage failed and why.

    `evidence` are the last lines of `log` (a file of the report: `console-gate-1.log`,
    `dnsmasq.log`), `hint` is what to check next.
    """

    passed: bool
    stage: Stage | None = None
    what: str = ""
    evidence: tuple[str, ...] = ()
    log: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Inference:
    """What an engine did with a tiny model.

    `expected` is the backend that the profile is for (cpu, vulkan, rocm, cuda), `used` the one that
    computed.  `over` names the nodes that took part.  `tokens` were generated in `seconds`.
    `placed` says where the layers are, as the engine told it.
    `refused` is set where the profile's own service refuses the processor, as it should, and the
    answer came from a server that was started by hand.
    """

    expected: str
    used: str
    over: tuple[str, ...]
    completion: str
    chat: str
    tokens: Amount
    seconds: Seconds
    refused: bool = False
    placed: str = ""

    @property
    def degraded(self) -> bool:
        """Whether it computed on less than the profile is for."""
        return self.used != self.expected


@dataclass(frozen=True)
class MachineReport:
    """One machine of a trial; `console` is a file of the report with one timed line per event."""

    name: str
    mac: str
    address: str
    stages: tuple[Reached, ...]
    checks: tuple[Check, ...]
    console: str


@dataclass(frozen=True)
class Trial:
    """One way to boot; `firmware` is uefi or bios, `root` nfs or http, seconds of wall clock."""

    firmware: str
    root: str
    machines: tuple[MachineReport, ...]
    verdict: TrialVerdict
    seconds: Seconds
    inference: Inference | None = None

    @property
    def name(self) -> str:
        """For people: `uefi+nfs`, `uefi+nfs, 2 nodes`."""
        many = len(self.machines)
        return f"{self.firmware}+{self.root}" + (f", {many} nodes" if many > 1 else "")

    @property
    def way(self) -> tuple[str, str, int]:
        """Firmware, root and number of machines: a later trial of the same way replaces it."""
        return self.firmware, self.root, len(self.machines)


@dataclass(frozen=True)
class Report(Released):
    """One run of `imagebuilder test`.

    `id` is unique among the reports of its release and sorts by time.  `digests` are of the bytes
    that were booted, by name: `root` is an OSTree commit, the others sha256 of the release's files.
    `started` is ISO 8601 in UTC.  `acceleration` is kvm or tcg, `why` the reason for it.
    `selection` is the -k expression: a report with one is not complete and does not open the gate.
    `machine` is the name of the machine that ran it, empty in older reports.
    `sizes` are bytes by name: root, vmlinuz, initrd.img, root.squashfs, ...
    `files` are the check files that ran, with their sha256, by `group/file`.
    `after` are the ids of the reports of the release that the machine had before.
    """

    id: str
    profile: Name
    version: Name
    digests: Mapping[str, str]
    started: UtcTime
    seconds: Seconds
    acceleration: str
    why: str
    host: str
    tool: str
    selection: str
    sizes: Mapping[str, Amount]
    files: Mapping[str, str]
    static: tuple[Check, ...]
    trials: tuple[Trial, ...]
    machine: str = ""
    after: tuple[str, ...] = ()
    __pydantic_config__ = ConfigDict(extra="forbid")  # the gate depends on it

    @property
    def complete(self) -> bool:
        """Whether all checks were selected, so that it may open the gate."""
        return self.selection == ""

    @property
    def passed(self) -> bool:
        """Whether everything that ran passed."""
        return self.failure is None and bool(self.trials)

    @property
    def failure(self) -> TrialVerdict | None:
        """The first failed verdict; failed static checks come first."""
        if broken := [check for check in self.static if check.outcome is Outcome.FAILED]:
            return TrialVerdict(
                passed=False,
                stage=Stage.TREE,
                what="; ".join(check.title for check in broken),
                evidence=tuple(line for check in broken for line in check.message.splitlines()),
                hint="run imagebuilder check to see them without a boot",
            )
        return next((trial.verdict for trial in self.trials if not trial.verdict.passed), None)

    @property
    def degraded(self) -> bool:
        """Whether an accelerator of the profile was not used."""
        return any(trial.inference and trial.inference.degraded for trial in self.trials)


# docs/reports.md shows it.  Missing, unknown or invalid keys are faults, never guesses.
REPORT = JsonFile(
    Report, 1, "run imagebuilder test to make a new report", derived=("passed", "degraded")
)
