# SPDX-License-Identifier: Apache-2.0
"""Made-up reports as the gate makes them: passed, failed, degraded, hostile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from imagebuilder.report.types import (
    ORDER,
    Check,
    Inference,
    MachineReport,
    Outcome,
    Reached,
    Report,
    Stage,
    Trial,
    TrialVerdict,
)

PROFILE, VERSION = "rx7600xt", "20261121080801-1c2d3e4f"
DIGESTS = {
    "vmlinuz": "11" * 32,
    "initrd.img": "22" * 32,
    "boot.ipxe": "33" * 32,
    "root": "44" * 32,
    "root.squashfs": "55" * 32,
}
SIZES = {
    "root": 6_401_234_567,
    "vmlinuz": 12_201_984,
    "initrd.img": 41_230_111,
    "root.squashfs": 2_104_115_200,
}
# Seconds after power-on, as a machine under TCG has them.
TIMES = (
    2.1,
    4.4,
    5.2,
    9.8,
    11.3,
    19.6,
    27.9,
    31.0,
    36.4,
    39.2,
    47.5,
    81.6,
    97.2,
    109.4,
    121.7,
    188.3,
)
HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[31mred\x1b[0m\x1b]0;title\x07 \u202eback\x00"
PASSED = TrialVerdict(passed=True)
NO_EXPORT = TrialVerdict(
    passed=False,
    stage=Stage.ROOT,
    what="the root was not mounted: mount.nfs4: mounting 10.77.0.1:/root/rx7600xt failed, reason "
    "given by server: No such file or directory",
    evidence=(
        "34.1 imagebuilder: stage root",
        "35.0 mount.nfs4: mounting 10.77.0.1:/root/rx7600xt failed",
        "96.2 imagebuilder: BOOT FAILED in stage root: no such export",
    ),
    log="console-gate-1.log",
    hint="check root= on the command line, and the export of this release on the server",
)


def check(
    name: str, outcome: Outcome = Outcome.PASSED, message: str = "", group: str = "common",
    kind: str = "boot",
) -> Check:  # fmt: skip
    """A check that took 0.4 s."""
    return Check(group, name, kind, outcome, 0.4, message)


BOOT_CHECKS = (
    check("test_no_unit_failed"),
    check("test_root_is_the_release_and_read_only_below_a_writable_overlay"),
    check("test_no_port_is_open_that_is_not_declared"),
    check("test_host_key_is_the_nodes_own", group="ssh"),
    check("test_models_disk", Outcome.SKIPPED, "this node has no disk for models", "models"),
)
STATIC_CHECKS = tuple(
    check(name, group=group, kind="static")
    for group, name in (
        ("common", "test_modules_fit_the_kernel"),
        ("common", "test_no_machine_id"),
        ("ssh", "test_no_host_key_is_in_the_image"),
        ("rocm", "test_code_objects[gfx1102]"),
    )
)


def machine(number: int = 1, upto: Stage = Stage.REBOOT, *, faster: float = 1.0) -> MachineReport:
    """A machine that passed every stage before `upto` and that one."""
    stages = [Reached(s, round(t * faster, 1)) for s, t in zip(ORDER[1:], TIMES, strict=True)]
    got = ORDER.index(upto)
    return MachineReport(
        name=f"gate-{number}",
        mac=f"52:54:00:77:00:{number:02x}",
        address=f"10.77.0.{100 + number}",
        stages=tuple(stages[:got]),
        checks=BOOT_CHECKS if got >= ORDER.index(Stage.CHECKS) else (),
        console=f"console-gate-{number}.log",
    )


def inference(used: str = "rocm", over: Sequence[str] = ("gate-1",)) -> Inference:
    """An answer of a profile that is for rocm."""
    return Inference(
        expected="rocm",
        used=used,
        over=tuple(over),
        completion="zan tolo miri pa",
        chat="lo mi",
        tokens=32,
        seconds=2.56,
        refused=used == "cpu",
    )


def trial(
    firmware: str = "uefi", root: str = "nfs", *, nodes: int = 1, verdict: TrialVerdict = PASSED,
    answer: Inference | None = None,
) -> Trial:  # fmt: skip
    """A trial; a failed one ends before its stage."""
    stage = verdict.stage or Stage.REBOOT
    upto = stage if verdict.passed else ORDER[ORDER.index(stage) - 1]
    faster = 0.8 if firmware == "bios" else 1.0
    machines = tuple(machine(n, upto, faster=faster) for n in range(1, nodes + 1))
    return Trial(firmware, root, machines, verdict, 201.4 * faster, answer)


def report(
    id: str = "20261121T203104-100",  # noqa: A002
    trials: Sequence[Trial] = (),
    *,
    static: Sequence[Check] = STATIC_CHECKS,
    selection: str = "",
    digests: Mapping[str, str] = DIGESTS,
) -> Report:
    """A report on the one release there is."""
    return Report(
        id=id,
        profile=PROFILE,
        version=VERSION,
        digests=dict(digests),
        started="2026-11-21T20:31:04+00:00",
        seconds=412.6,
        acceleration="tcg",
        why="/dev/kvm is there, but no kernel starts under it; times are scaled by 4",
        host="builder-1",
        tool="0.1.0",
        selection=selection,
        sizes=SIZES,
        files={"common/test_root.py": "66" * 32, "ssh/test_ssh.py": "77" * 32},
        static=tuple(static),
        trials=tuple(trials),
    )


def passed(id: str = "20261121T203104-100") -> Report:  # noqa: A002
    """Both ways passed and the accelerator computed."""
    return report(id, (trial(answer=inference()), trial("bios", "http", answer=inference())))


def failed(id: str = "20261121T203104-100") -> Report:  # noqa: A002
    """The NFS root was not there."""
    return report(id, (trial(verdict=NO_EXPORT), trial("bios", "http", answer=inference())))


def degraded(id: str = "20261121T203104-100") -> Report:  # noqa: A002
    """Passed with two nodes, on the processor."""
    return report(id, (trial(nodes=2, answer=inference("cpu", ("gate-1", "gate-2"))),))


def broken_checks() -> Report:
    """A static check and a boot check failed."""
    leak = check(
        "test_no_host_key_is_in_the_image", Outcome.FAILED,
        "/etc/ssh/ssh_host_ed25519_key is in the image\nevery node would have this key", "ssh",
        "static",
    )  # fmt: skip
    verdict = TrialVerdict(
        passed=False,
        stage=Stage.CHECKS,
        what="common: no unit failed",
        evidence=("networkd-wait-online.service is failed",),
        hint="imagebuilder report shows its message",
    )
    down = trial(verdict=verdict)
    unit = check(
        "test_no_unit_failed", Outcome.FAILED,
        "networkd-wait-online.service is failed\nTimed out while waiting for the network",
    )  # fmt: skip
    nodes = tuple(replace(m, checks=(unit, *BOOT_CHECKS[1:])) for m in down.machines)
    return report(trials=(replace(down, machines=nodes),), static=(leak, *STATIC_CHECKS[:2]))


def hostile() -> Report:
    """Everything that comes from a machine tries to be more than text."""
    bad = check(f"test_x[{HOSTILE}]", Outcome.FAILED, HOSTILE, HOSTILE)
    verdict = TrialVerdict(False, Stage.SSH, HOSTILE, (HOSTILE,), "console-gate-1.log", HOSTILE)  # noqa: FBT003
    answer = replace(inference(), completion=HOSTILE, chat=HOSTILE, over=(HOSTILE,))
    base = trial(verdict=verdict, answer=answer)
    nodes = tuple(replace(m, name=HOSTILE, checks=(bad,)) for m in base.machines)
    made = report(trials=(replace(base, machines=nodes),), static=(bad,), selection=HOSTILE)
    return replace(made, host=HOSTILE, why=HOSTILE, tool=HOSTILE)
