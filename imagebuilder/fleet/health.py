# SPDX-License-Identifier: Apache-2.0
"""What nodes say of their own health: their last report to the boot server, or asked over ssh.

A node's program writes the verdict and reports it, signed with the secret of its boot
(overlays/compute-node/files/usr/lib/imagebuilder/health, nodes/evidence/health_report.py).
Reports cost nothing to look at, which is enough to watch nodes.  Before something is done to a node
it is asked: its host key is known, and the answer is of now.  Silence, damage and age are no
verdict: the node is UNKNOWN, with words that say why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from imagebuilder.decode import JsonFile, parse_json
from imagebuilder.digest import Json
from imagebuilder.errors import InputError
from imagebuilder.fleet.ssh import Said, run_on
from imagebuilder.fleet.state import AHEAD, format_ahead
from imagebuilder.nodes.evidence.seen import LIMITS, AnyText, Seen, parse_readings
from imagebuilder.nodes.types import Node
from imagebuilder.tree import Tree
from imagebuilder.ui import format_age
from imagebuilder.untrusted import fit

SECONDS = 20.0
MOST = 65_536  # characters of an answer
FILE = "/run/imagebuilder/health/verdict.json"
# The boot that runs, how long it has been running, and what it says of itself.
ASK = ("cat", "/proc/sys/kernel/random/boot_id", "/proc/uptime", FILE)
# The node's timer elapses every 10 minutes; a check of everything may take some itself.
STALE = timedelta(minutes=45)
# Two of these rounds, and what the checks take: a report may be lost, a second one is silence.
REPORT_STALE = timedelta(minutes=25)
MORE_WORDS = 1000


def one_line(text: str) -> str:
    return fit(text, MORE_WORDS)


class Verdict(StrEnum):
    """How the accelerators and services of a node are."""

    OK = "ok"
    DEGRADED = "degraded"  # it computes on the processor, or slower than before
    WRONG = "wrong results"
    MISSING = "missing device"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Health:
    """A node's verdict on itself.

    `at` is when it was made, by this host's clock; None if there is none.  `release` is the
    PROFILE@VERSION that runs and `boot_id` the kernel's id of that boot (random(4)); both are empty
    if the node did not say.  `source` is `ssh` or `report`; only a
    report has `readings` (nodes/evidence/seen.py).
    """

    node: str
    verdict: Verdict
    words: str
    at: datetime | None
    release: str
    boot_id: str
    source: str = "ssh"
    readings: Mapping[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Json]:
        """For programs: a stable contract."""
        return {
            "verdict": self.verdict.value,
            "source": self.source,
            "words": self.words,
            "at": self.at.isoformat() if self.at else None,
            "release": self.release,
            "boot-id": self.boot_id,
            "readings": {name: self.readings.get(name) for name in LIMITS},
        }


@dataclass(frozen=True)
class HealthCheck:
    name: AnyText
    stage: AnyText
    verdict: Verdict
    words: Annotated[str, AfterValidator(one_line)]
    seconds: float = 0.0


@dataclass(frozen=True)
class HealthFile:
    """FILE of a node; `uptime` in seconds is the time of the verdict since the boot."""

    verdict: Verdict
    words: Annotated[str, AfterValidator(one_line)]
    release: AnyText
    boot_id: Annotated[AnyText, Field(alias="boot-id")]
    uptime: float
    checks: tuple[HealthCheck, ...] = ()


HEALTH = JsonFile(HealthFile, 1, "sudo /usr/lib/imagebuilder/health on the node writes another")


def read_health(tree: Tree, nodes: Sequence[Node]) -> dict[str, Health]:
    """The last verdict of each node, asked over ssh, at most SECONDS on each."""
    said = run_on(tree, nodes, ASK, SECONDS)
    now = datetime.now(UTC)
    return {one.node: parse_health(one, now) for one in said}


def parse_health(said: Said, now: datetime) -> Health:
    """The verdict in what a node answered to ASK."""
    if said.status is None:
        return unknown(said.node, "did not say how it is in time")
    boot_id, _, rest = said.from_boot_id[:MOST].partition("\n")
    uptime, _, content = rest.partition("\n")
    if said.status != 0:
        if said.status == 1 and FILE in said.last_words:
            what = "has no verdict: it has just booted, or its image has no health checks"
            return unknown(said.node, what, boot_id)
        return unknown(said.node, f"could not be asked over ssh: {said.last_words}")
    try:
        box = HEALTH.decode(parse_json(content, said.node), said.node)
        age = timedelta(seconds=max(0.0, float(uptime.split()[0]) - box.uptime))
        at = now - age
    except (InputError, ValueError, IndexError, OverflowError) as error:
        what = error.faults[0].what if isinstance(error, InputError) else "is damaged: uptime"
        return unknown(said.node, f"its verdict {fit(what)}", boot_id)
    if boot_id != box.boot_id:
        return unknown(said.node, "its verdict is of another boot", boot_id)
    if age > STALE:
        words = f"its last verdict is too old: {int(age.total_seconds()) // 60} min"
        return Health(said.node, Verdict.UNKNOWN, words, at, box.release, box.boot_id)
    return Health(said.node, box.verdict, box.words, at, box.release, box.boot_id)


def reported_health(node: str, seen: Seen | None, now: datetime) -> Health:
    """The verdict in what a node reported last; of another boot there is none."""
    told = seen.health if seen else None
    if seen is None or told is None:
        words = "sent no report of its health in this boot; --ask asks it over ssh"
        return unknown(node, words, source="report")
    found = {verdict.value: verdict for verdict in Verdict}.get(told.verdict, Verdict.UNKNOWN)
    words, at = told.words, datetime.fromisoformat(told.at)
    if now - at > REPORT_STALE:
        words = f"its last report is too old: {found.value}, {format_age(now - at)} ago"
        return Health(node, Verdict.UNKNOWN, words, at, str(seen.release), told.boot_id, "report")
    if at - now > AHEAD:
        words = f"its last report, {found.value}, is {format_ahead(at - now)}"
        return Health(node, Verdict.UNKNOWN, words, at, str(seen.release), told.boot_id, "report")
    readings = parse_readings(told.readings or "")
    return Health(node, found, words, at, str(seen.release), told.boot_id, "report", readings)


def unknown(node: str, words: str, boot_id: str = "", source: str = "ssh") -> Health:
    return Health(node, Verdict.UNKNOWN, words, None, "", boot_id, source)
