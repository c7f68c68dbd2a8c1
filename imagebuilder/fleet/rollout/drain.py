# SPDX-License-Identifier: Apache-2.0
"""Taking work off nodes before a reboot, and letting it onto them again: only what we drained.

A scheduler itself remembers who drained a node: by the reason (Slurm), by an annotation
(Kubernetes).  A node that somebody else drained is rebooted, and stays drained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from imagebuilder.errors import ImagebuilderError
from imagebuilder.fleet.power.limited import run_limited
from imagebuilder.process import check_tools
from imagebuilder.untrusted import fit

AT_ONCE = 32
NOTE = "imagebuilder/rollout"  # an annotation
EVICTION = "20s"  # a look; work that takes longer to end is asked again


class Drainer(Protocol):
    """A scheduler.  Both methods may be called again and again, and take nodes by name."""

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
            check_tools("scontrol", "sinfo")
            return SlurmDrain()
        case "kubernetes":
            check_tools("kubectl")
            return KubernetesDrain()
        case _:
            check_tools(kind)
            return ProgramDrain(kind)


class NoDrain:
    """Nothing schedules work on these nodes."""

    def drain(self, names: Sequence[str], reason: str) -> dict[str, str]:
        del reason
        return dict.fromkeys(names, "")

    def resume(self, names: Sequence[str], reason: str) -> None:
        del names, reason


class SlurmDrain:
    """scontrol(1); a drained node has no job left, a draining one has."""

    def drain(self, names: Sequence[str], reason: str) -> dict[str, str]:
        states = read_slurm(names)
        fresh = [name for name, (state, _) in states.items() if not is_drained(state)]
        if fresh:
            change_slurm(fresh, "State=DRAIN", f"Reason={reason}")
            states |= read_slurm(fresh)
        return {name: slurm_work(*states.get(name, ("", ""))) for name in names}

    def resume(self, names: Sequence[str], reason: str) -> None:
        ours = [name for name, (_, why) in read_slurm(names).items() if why == reason]
        if ours:
            change_slurm(ours, "State=RESUME")


def read_slurm(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """State and reason of each node that Slurm knows."""
    said = run_limited("slurm", ["sinfo", "-h", "-N", "-n", ",".join(names), "-o", "%N|%T|%E"])
    rows = (line.split("|", 2) for line in said.splitlines() if line.count("|") >= 2)
    return {name: (state.lower(), why.strip()) for name, state, why in rows}


def change_slurm(names: Sequence[str], *words: str) -> None:
    run_limited("slurm", ["scontrol", "update", f"NodeName={','.join(names)}", *words])


def is_drained(state: str) -> bool:
    return state.startswith("drain")


def slurm_work(state: str, reason: str) -> str:
    if not state:
        return "Slurm does not know this node"
    if state.startswith(("drained", "down")):
        return ""
    return f"Slurm says {state}" + (f" ({fit(reason)})" if reason else "")


class KubernetesDrain:
    """kubectl(1); the annotation is written before the node is cordoned."""

    def drain(self, names: Sequence[str], reason: str) -> dict[str, str]:
        return each(names, lambda name: drain_kubernetes(name, reason))

    def resume(self, names: Sequence[str], reason: str) -> None:
        tell_all(names, lambda name: resume_kubernetes(name, reason))


def drain_kubernetes(name: str, reason: str) -> str:
    closed = ask_kubernetes(name, "{.spec.unschedulable}")
    if closed != "true":
        run_limited(name, ["kubectl", "annotate", "--overwrite", "node", name, f"{NOTE}={reason}"])
        run_limited(name, ["kubectl", "cordon", name])
    options = ["--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={EVICTION}"]
    run_limited(name, ["kubectl", "drain", name, *options])
    return ""


def resume_kubernetes(name: str, reason: str) -> str:
    if ask_kubernetes(name, f"{{.metadata.annotations.{NOTE}}}") == reason:
        run_limited(name, ["kubectl", "uncordon", name])
        run_limited(name, ["kubectl", "annotate", "node", name, f"{NOTE}-"])
    return ""


def ask_kubernetes(name: str, path: str) -> str:
    return run_limited(name, ["kubectl", "get", "node", name, "-o", f"jsonpath={path}"]).strip()


@dataclass(frozen=True)
class ProgramDrain:
    """`PROGRAM drain NODE REASON` succeeds once nothing runs on the node, `PROGRAM resume NODE
    REASON` lets work onto it again; the program knows what it drained.
    """

    program: str

    def drain(self, names: Sequence[str], reason: str) -> dict[str, str]:
        return each(names, lambda name: self.call("drain", name, reason))

    def resume(self, names: Sequence[str], reason: str) -> None:
        tell_all(names, lambda name: self.call("resume", name, reason))

    def call(self, verb: str, name: str, reason: str) -> str:
        run_limited(name, [self.program, verb, name, reason])
        return ""


def each(names: Sequence[str], ask: Callable[[str], str]) -> dict[str, str]:
    """What `ask` says of each node; what it raises is work that is still there."""

    def one(name: str) -> str:
        try:
            return ask(name)
        except ImagebuilderError as error:
            return fit(error.faults[0].what)

    if not names:
        return {}
    with ThreadPoolExecutor(min(AT_ONCE, len(names))) as pool:
        return dict(zip(names, pool.map(one, names), strict=True))


def tell_all(names: Sequence[str], tell: Callable[[str], str]) -> None:
    """Raises what the first one raised, once all were told."""
    with ThreadPoolExecutor(min(AT_ONCE, max(1, len(names)))) as pool:
        told = [pool.submit(tell, name) for name in names]
    for one in told:
        one.result()
