# SPDX-License-Identifier: Apache-2.0
"""Taking work off nodes before a reboot, and letting it onto them again: only what we drained.

A scheduler itself remembers who drained a node: by the reason (Slurm), by an annotation
(Kubernetes).  A node that somebody else drained is rebooted, and stays drained.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from imagebuilder.errors import ImagebuilderError, InputError
from imagebuilder.fleet.limited import run_limited, try_each
from imagebuilder.fleet.select import fold
from imagebuilder.process import check_tools
from imagebuilder.untrusted import fit

AT_ONCE = 32
NOTE = "imagebuilder/rollout"  # an annotation
# The reason is followed by who gave it, and when.
SLURM_NODE = re.compile(
    r"^NodeName=(?P<name>\S+) (?:.*? )?State=(?P<state>\S+)"
    r"(?:.*? Reason=(?P<reason>.*?) \[\S+@\S+\])?",
    re.MULTILINE,
)
WORD = re.compile(r"[A-Z_]+")
EVICTION = "20s"  # a look; work that takes longer to end is asked again
KLOG = re.compile(r"[IWEF]\d{4} [\d:.]+ +\d+ \S+\] ")  # what kubectl logs before it says why
# Where a person's cluster is, unless it is at the usual place.
SETTINGS = ("KUBECONFIG", "SLURM_CONF")


class Drainer(Protocol):
    """A scheduler.  Its methods may be called again and again, and take nodes by name."""

    def check(self, names: Sequence[str]) -> None:
        """Raises ImagebuilderError if it does not answer, or does not know one of them."""
        ...

    def drain(self, names: Sequence[str], reason: str) -> dict[str, str]:
        """Ask that no work begins on them; what still runs on each, empty for nothing."""
        ...

    def resume(self, names: Sequence[str], reason: str) -> None:
        """Let work onto those that were drained for this reason.  Raises ImagebuilderError."""
        ...


def choose_drainer(kind: str) -> Drainer:
    """The scheduler that `--drain` names.  Raises HostError when its program is not installed."""
    match kind:
        case "none":
            return NoDrain()
        case "slurm":
            check_tools("scontrol")
            return SlurmDrain()
        case "kubernetes":
            check_tools("kubectl")
            return KubernetesDrain()
        case _:
            check_tools(kind)
            return ProgramDrain(kind)


class NoDrain:
    """Nothing schedules work on these nodes."""

    def check(self, names: Sequence[str]) -> None:
        del names

    def drain(self, names: Sequence[str], reason: str) -> dict[str, str]:
        del reason
        return dict.fromkeys(names, "")

    def resume(self, names: Sequence[str], reason: str) -> None:
        del names, reason


class SlurmDrain:
    """scontrol(1).  A node that is down or failing gets no job either: it stays as it is.

    One that is resumed gets no job before its slurmd has registered again (_require_node_reg in
    Slurm's src/slurmctld/node_mgr.c), so nobody has to wait for slurmd after a boot.
    """

    def check(self, names: Sequence[str]) -> None:
        known = read_slurm()
        if unknown := [name for name in names if name not in known]:
            raise unknown_to("Slurm", unknown, "scontrol show node lists its nodes")

    def drain(self, names: Sequence[str], reason: str) -> dict[str, str]:
        try:
            known = read_slurm()
            fresh = [name for name in names if name in known and not known[name].closed]
            if fresh:
                change_slurm(fresh, "State=DRAIN", f"Reason={reason}")
                known = read_slurm()
        except ImagebuilderError as error:
            return dict.fromkeys(names, fit(error.faults[0].what))
        unknown = "Slurm does not know this node"
        return {name: known[name].work if name in known else unknown for name in names}

    def resume(self, names: Sequence[str], reason: str) -> None:
        known = read_slurm()
        ours = [name for name in names if name in known and known[name].is_ours(reason)]
        # Each by itself: Slurm stops at the first that it refuses, such as one with no slurmd.
        tell_all(ours, lambda name: change_slurm([name], "State=RESUME"))


@dataclass(frozen=True)
class SlurmNode:
    """Words such as IDLE, DRAIN, INVALID_REG, and why somebody took it out of service."""

    state: frozenset[str]
    reason: str

    @property
    def closed(self) -> bool:
        """Whether no job begins on it."""
        return bool(self.state & {"DRAIN", "DOWN", "FAIL"})

    @property
    def work(self) -> str:
        if self.closed and not self.state & {"ALLOCATED", "MIXED", "COMPLETING"}:
            return ""
        said = "+".join(sorted(self.state)).lower()
        return f"Slurm says {said}" + (f" ({fit(self.reason)})" if self.reason else "")

    def is_ours(self, reason: str) -> bool:
        return "DRAIN" in self.state and self.reason == reason


def read_slurm() -> dict[str, SlurmNode]:
    """Every node.  sinfo(1) has only those in partitions, and says `inval` of some drained ones."""
    said = run_scheduler("slurm", ["scontrol", "--all", "--oneliner", "show", "node"])
    return {
        match["name"]: SlurmNode(frozenset(WORD.findall(match["state"])), match["reason"] or "")
        for match in SLURM_NODE.finditer(said)
    }


def change_slurm(names: Sequence[str], *words: str) -> str:
    where = names[0] if len(names) == 1 else "slurm"
    return run_scheduler(where, ["scontrol", "update", f"NodeName={','.join(names)}", *words])


class KubernetesDrain:
    """kubectl(1); the annotation is written before the node is cordoned."""

    def check(self, names: Sequence[str]) -> None:
        tell_all(names, lambda name: ask_kubernetes(name, "{.metadata.name}"))

    def drain(self, names: Sequence[str], reason: str) -> dict[str, str]:
        return each(names, lambda name: drain_kubernetes(name, reason))

    def resume(self, names: Sequence[str], reason: str) -> None:
        tell_all(names, lambda name: resume_kubernetes(name, reason))


def drain_kubernetes(name: str, reason: str) -> str:
    closed = ask_kubernetes(name, "{.spec.unschedulable}")
    if closed != "true":
        run_scheduler(
            name, ["kubectl", "annotate", "--overwrite", "node", name, f"{NOTE}={reason}"]
        )
        run_scheduler(name, ["kubectl", "cordon", name])
    options = ["--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={EVICTION}"]
    run_scheduler(name, ["kubectl", "drain", name, *options])
    return ""


def resume_kubernetes(name: str, reason: str) -> str:
    if ask_kubernetes(name, f"{{.metadata.annotations.{NOTE}}}") == reason:
        run_scheduler(name, ["kubectl", "uncordon", name])
        run_scheduler(name, ["kubectl", "annotate", "node", name, f"{NOTE}-"])
    return ""


def ask_kubernetes(name: str, path: str) -> str:
    return run_scheduler(name, ["kubectl", "get", "node", name, "-o", f"jsonpath={path}"]).strip()


@dataclass(frozen=True)
class ProgramDrain:
    """`PROGRAM drain NODE REASON` succeeds once nothing runs on the node, `PROGRAM resume NODE
    REASON` lets work onto it again; the program knows what it drained.
    """

    program: str

    def check(self, names: Sequence[str]) -> None:
        del names  # it may not know such a verb

    def drain(self, names: Sequence[str], reason: str) -> dict[str, str]:
        return each(names, lambda name: self.call("drain", name, reason))

    def resume(self, names: Sequence[str], reason: str) -> None:
        tell_all(names, lambda name: self.call("resume", name, reason))

    def call(self, verb: str, name: str, reason: str) -> str:
        run_scheduler(name, [self.program, verb, name, reason])
        return ""


def run_scheduler(where: str, argv: Sequence[str]) -> str:
    """What a scheduler's program prints.  Raises WorkError."""
    env = {name: os.environ[name] for name in SETTINGS if name in os.environ}
    return run_limited(where, argv, env=env, noise=KLOG)


def unknown_to(scheduler: str, names: Sequence[str], hint: str) -> InputError:
    what = f"{scheduler} does not know {fold(names)}"
    return InputError(what, hint=f"{hint}; it must use the node names of nodes.yaml")


def each(names: Sequence[str], ask: Callable[[str], str]) -> dict[str, str]:
    """What `ask` says of each node; what it raises is work that is still there."""
    return {
        name: fit(said.faults[0].what) if isinstance(said, ImagebuilderError) else said
        for name, said in try_each(dict(zip(names, names, strict=True)), ask, AT_ONCE).items()
    }


def tell_all(names: Sequence[str], tell: Callable[[str], str]) -> None:
    """Raises what the first one raised, once all were told."""
    for said in try_each(dict(zip(names, names, strict=True)), tell, AT_ONCE).values():
        if isinstance(said, ImagebuilderError):
            raise said
